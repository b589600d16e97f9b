// The contract of every kernel that may serve (engine/cuda/row_check.h), for each candidate of this
// build and for candidates with a planted fault.
#include "engine/cuda/selected_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <optional>
#include <random>

#include "engine/cuda/emulator/simt_device.h"
#include "tests/engine/cuda/planted_candidates.h"
#include "tests/support/device_lab.h"

namespace sluice {
namespace {

namespace cuda = kernels::cuda;
using cuda::BFloat16;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PlantRowFault;
using testing::RowFault;
using ::testing::StartsWith;

constexpr AttentionShape kHeads = {
    .q_heads = 4, .kv_heads = 2, .head_dim = 16, .max_positions = 70, .causal = true};
constexpr GroupedProductShape kPositions = {.k = 40, .n = 72, .matrices = 5, .bias = true};

// Returns the candidate followed by a kernel that plants a fault.
template <typename T>
AttentionCandidate<T> Spoilt(AttentionCandidate<T> candidate, RowFault fault) {
  candidate.tier = std::string(NameOf(fault));
  candidate.run = [run = candidate.run, fault](cuda::Stream& stream,
                                               const cuda::AttentionArgs<T>& args) {
    run(stream, args);
    int32_t rows = 0;
    for (int32_t i = 0; i < args.tiles.counts->wide + args.tiles.counts->narrow; ++i) {
      const cuda::AttentionTile& tile = args.tiles.tiles[i];
      if (tile.first == 0 && tile.first_segment == 0) rows += args.sequences[tile.sequence].count;
    }
    PlantRowFault(stream, fault, rows, args.q_heads * args.kv.head_dim, args.out);
  };
  return candidate;
}
template <typename T>
GroupedProductCandidate<T> Spoilt(GroupedProductCandidate<T> candidate, RowFault fault) {
  candidate.tier = std::string(NameOf(fault));
  candidate.run = [run = candidate.run, fault](cuda::Stream& stream,
                                               const cuda::ProjectionArgs<T>& args) {
    run(stream, args);
    int32_t rows = 0;
    for (int32_t i = 0; i < *args.tiles.count; ++i) rows += args.tiles.tiles[i].count;
    PlantRowFault(stream, fault, rows, args.n, args.out);
  };
  return candidate;
}

// Returns the candidate with a fault that only the runs have for which has_fault(stream) is true.
template <typename Candidate, typename HasFault>
Candidate SometimesSpoilt(const Candidate& candidate, HasFault has_fault) {
  Candidate spoilt = Spoilt(candidate, RowFault::kOtherOrderByPlace);
  spoilt.run = [good = candidate.run, bad = spoilt.run, has_fault](cuda::Stream& stream,
                                                                   const auto& args) mutable {
    has_fault(stream) ? bad(stream, args) : good(stream, args);
  };
  return spoilt;
}
// Returns the candidate with `more` launches after it.
template <typename Candidate>
Candidate Slowed(Candidate candidate, int32_t more) {
  candidate.tier = absl::StrCat("slower by ", more);
  candidate.run = [run = candidate.run, more](cuda::Stream& stream, const auto& args) {
    run(stream, args);
    for (int32_t i = 0; i < more; ++i) {
      PlantRowFault<float>(stream, RowFault::kNothing, 0, 0, nullptr);
    }
  };
  return candidate;
}

template <typename T>
class SelectedKernelsTest : public ::testing::Test {
 protected:
  SelectedKernelsTest() {
    std::cout << "seed " << kSeed << "\n";
    Use("simt");
  }
  void Use(const std::string& architecture, int32_t processors = 1, CheckEffort check = {1, 4096}) {
    auto device = simt::MakeSimtDevice(
        {.seed = kSeed, .architecture = architecture, .processors = processors, .check = check});
    device_ = device.get();
    lab_.emplace(std::move(device));
  }

  static std::vector<T> Random(std::mt19937_64& random, int64_t n) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<T> values(static_cast<size_t>(n));
    for (T& value : values) value = cuda::Narrow<T>(uniform(random));
    return values;
  }
  SelectedKernels<T> Offer(KernelCandidates<T> candidates) {
    return SelectedKernels<T>(lab_->device(), lab_->stream(), std::move(candidates));
  }
  absl::StatusOr<std::string> Choose(SelectedKernels<T>& choice, const AttentionShape& shape) {
    std::vector<float> gates(static_cast<size_t>(shape.q_heads));
    for (float& gate : gates) gate = std::uniform_real_distribution<float>(-1, 1)(random_);
    AttentionTensors tensors;
    if (shape.gated) tensors.gate = lab_->Put(gates);
    if (shape.biased) {
      std::vector<float> bias(shape.q_heads * (2 * shape.max_positions + cuda::kBiasSlack));
      for (float& value : bias) value = std::uniform_real_distribution<float>(-1, 1)(random_);
      tensors.bias = lab_->Put(bias);
    }
    const auto chosen = choice.Attention(shape, tensors);
    if (!chosen.ok()) return chosen.status();
    return (*chosen)->tier;
  }
  absl::StatusOr<std::string> Choose(SelectedKernels<T>& choice, const GroupedProductShape& shape) {
    const int64_t matrices = shape.matrices;
    const T* const weight = lab_->Put(Random(random_, matrices * shape.k * shape.n));
    const T* const bias =
        lab_->Put(Random(random_, (shape.position_bias ? matrices : 1) * shape.n));
    GateWeights<T> gate;
    if (shape.gate_layer) {
      gate.weight = lab_->Put(Random(random_, matrices * shape.k * shape.n));
      gate.bias = shape.bias ? lab_->Put(Random(random_, matrices * shape.n)) : nullptr;
    }
    const auto chosen = choice.Product(shape, weight, shape.bias ? bias : nullptr, gate);
    if (!chosen.ok()) return chosen.status();
    return (*chosen)->tier;
  }
  // Expects that a candidate with the fault is refused for a reason that matches, and that the next
  // candidate serves.
  template <typename Shape>
  void ExpectRefused(RowFault fault, const Shape& shape, const std::string& reason) {
    const AttentionCandidate<T>& attention = PortableAttention<T>();
    const GroupedProductCandidate<T>& product = PortableProduct<T>();
    SelectedKernels<T> choice = Offer({.attention = {Spoilt(attention, fault), attention},
                                       .products = {Spoilt(product, fault), product}});
    const auto chosen = Choose(choice, shape);
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_EQ(*chosen, "portable");
    EXPECT_THAT(choice.notices(),
                ElementsAre(AllOf(StartsWith(std::string("the ") + std::string(NameOf(fault)) +
                                             " kernel is not used for " + ToString(shape)),
                                  ContainsRegex(reason))));
    EXPECT_EQ(device_->fault(), "");
  }

  static constexpr uint64_t kSeed = 20261124;
  std::mt19937_64 random_{kSeed};
  std::optional<DeviceLab> lab_;
  simt::SimtDevice* device_;
};
using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(SelectedKernelsTest, Types);

TYPED_TEST(SelectedKernelsTest, EveryCandidateOfAttentionPassesItsTrial) {
  this->Use("sm_90");
  std::vector<AttentionShape> shapes(9, kHeads);
  shapes[1].head_dim = 24;
  shapes[1].xsa = kernels::XsaForm::kNorm;
  shapes[2].xsa = kernels::XsaForm::kSquared;
  shapes[2].gated = true;
  shapes[3].causal = false;
  shapes[4].max_positions = 1;
  shapes[5] = {.q_heads = 3, .kv_heads = 1, .head_dim = 64, .max_positions = 2000, .causal = true};
  shapes[6].window = 20;
  shapes[6].soft_cap = 1.5f;
  shapes[7].causal = false;
  shapes[7].window = 9;
  shapes[7].biased = true;
  shapes[8].silu_share = 0.05f;
  for (const AttentionCandidate<TypeParam>& candidate : AllCandidates<TypeParam>().attention) {
    const size_t tried = candidate.tier == "portable" ? shapes.size() : 6;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const AttentionShape& shape = shapes[i];
      ASSERT_EQ(candidate.supports(this->device_->info(), shape).ok(), i < tried) << i;
      if (i >= tried) continue;
      SelectedKernels<TypeParam> choice = this->Offer({.attention = {candidate}, .products = {}});
      const auto chosen = this->Choose(choice, shape);
      ASSERT_TRUE(chosen.ok()) << chosen.status();
      EXPECT_EQ(*chosen, candidate.tier);
    }
  }
}

TYPED_TEST(SelectedKernelsTest, EveryCandidateOfProductsPassesItsTrial) {
  this->Use("sm_90");
  std::vector<GroupedProductShape> shapes(9, kPositions);
  shapes[1].matrices = 1;
  shapes[1].bias = false;
  shapes[2].position_bias = shapes[2].accumulate = true;
  shapes[3].activate = true;
  shapes[3].activation = kernels::Activation::kSquaredRelu;
  shapes[4].activate = shapes[4].gated = true;
  shapes[4].matrices = 2;
  shapes[5] = {.k = 33, .n = 65};
  shapes[6] = {.k = 520, .n = 40};
  shapes[7] = shapes[4];
  shapes[7].gate_layer = shapes[7].position_bias = true;
  shapes[8] = shapes[6];
  shapes[8].activate = shapes[8].gated = shapes[8].gate_layer = true;
  for (const auto& candidate : AllCandidates<TypeParam>().products) {
    for (const GroupedProductShape& shape : shapes) {
      if (!candidate.supports(this->device_->info(), shape).ok()) continue;
      SelectedKernels<TypeParam> choice = this->Offer({.attention = {}, .products = {candidate}});
      const auto chosen = this->Choose(choice, shape);
      ASSERT_TRUE(chosen.ok()) << chosen.status();
      EXPECT_EQ(*chosen, candidate.tier);
    }
  }
}

// The reasons for refusing each fault, in attention and in products.
TYPED_TEST(SelectedKernelsTest, ACandidateWithAFaultIsRefusedWithTheReason) {
  const std::pair<RowFault, const char*> kFaults[] = {
      {RowFault::kOtherOrderOfManyRows, "row [0-9]+ has other bits among [0-9]+ rows than among"},
      {RowFault::kOtherOrderByPlace, "row [0-9]+ has other bits at another place"},
      {RowFault::kWrongValue, "row 0 has -?[0-9.]+, expected -?[0-9.e-]+$"},
      {RowFault::kDropsNaN, "row [0-9]+ has 0, but its input is not finite"},
      {RowFault::kSpreadsNaN,
       "row [0-9]+ has -?nan, expected .*, although all its inputs are "
       "finite"}};
  for (const auto& [fault, reason] : kFaults) {
    this->ExpectRefused(fault, kHeads, reason);
    this->ExpectRefused(fault, kPositions, reason);
  }
}

// The first of these computes both layers of a gated MLP in one kernel, with other bits than the
// second, which calls the same kernel for each layer.
TYPED_TEST(SelectedKernelsTest, AKernelOfTwoLayersWithOtherBitsIsRefused) {
  GroupedProductShape shape = kPositions;
  shape.activate = shape.gated = shape.gate_layer = true;
  const GroupedProductCandidate<TypeParam>& good = PortableProduct<TypeParam>();
  for (const RowFault fault : {RowFault::kOtherOrderOfManyRows, RowFault::kWrongValue}) {
    GroupedProductCandidate<TypeParam> bad = good;
    bad.tier = "fused";
    bad.run_gated = [run = Spoilt(good, fault).run, first = good.run](
                        cuda::Stream& stream, const auto& gate, const auto& up) {
      if (up.tiles.capacity > 2) return false;
      first(stream, gate);
      run(stream, up);
      return true;
    };
    SelectedKernels<TypeParam> choice = this->Offer({.attention = {}, .products = {bad, good}});
    const auto chosen = this->Choose(choice, shape);
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_EQ(*chosen, "portable") << NameOf(fault);
    EXPECT_THAT(choice.notices(),
                ElementsAre(HasSubstr("the fused kernel is not used for the product of 40 x 72 by "
                                      "5 matrices, bias, activation of a gate with its layer")));
    // Without the layer of the gate, the kernel is not used.
    shape.gate_layer = false;
    EXPECT_EQ(this->Choose(choice, shape).value(), "fused");
    shape.gate_layer = true;
  }
}

// Each batch runs 20 times. The fault is in one of these runs of one of the batches.
TYPED_TEST(SelectedKernelsTest, ACandidateWhoseBitsVaryFromRunToRunIsRefused) {
  for (const int32_t wrong_run : {2, 19, 35}) {
    this->Use("simt", 1, {.runs = 20, .busy_bytes = 8192});
    int32_t run = 0;
    const auto has_fault = [&run, wrong_run](cuda::Stream&) { return ++run == wrong_run; };
    SelectedKernels<TypeParam> choice = this->Offer(
        {.attention = {}, .products = {SometimesSpoilt(PortableProduct<TypeParam>(), has_fault)}});
    GroupedProductShape shape = kPositions;
    shape.n = 8;
    EXPECT_THAT(std::string(this->Choose(choice, shape).status().message()),
                ContainsRegex("row [0-9]+ has other bits in 1 of (19|20) more runs of the same "
                              "rows"));
    EXPECT_GE(run, wrong_run);
  }
}

// The device has several processors, so only the run through a stream of one has the fault.
TYPED_TEST(SelectedKernelsTest, ACandidateThatIsWrongIfABlockHasManyWorkItemsIsRefused) {
  this->Use("simt", 4);
  const auto has_fault = [](cuda::Stream& stream) { return stream.processors() == 1; };
  const AttentionCandidate<TypeParam>& attention = PortableAttention<TypeParam>();
  const GroupedProductCandidate<TypeParam>& product = PortableProduct<TypeParam>();
  SelectedKernels<TypeParam> choice =
      this->Offer({.attention = {SometimesSpoilt(attention, has_fault), attention},
                   .products = {SometimesSpoilt(product, has_fault), product}});
  EXPECT_EQ(this->Choose(choice, kHeads).value(), "portable");
  EXPECT_EQ(this->Choose(choice, kPositions).value(), "portable");
  const auto refused = ContainsRegex("row [0-9]+ has other bits if one block has many work items");
  EXPECT_THAT(choice.notices(), ElementsAre(refused, refused));
}

// An emulated launch takes a microsecond, so candidates with more launches are slower.
TYPED_TEST(SelectedKernelsTest, TheFastestCandidateThatPassesServes) {
  const AttentionCandidate<TypeParam>& attention = PortableAttention<TypeParam>();
  const GroupedProductCandidate<TypeParam>& product = PortableProduct<TypeParam>();
  const auto chosen = [&](auto... more) {
    SelectedKernels<TypeParam> choice =
        this->Offer({.attention = {}, .products = {Slowed(product, more)...}});
    GroupedProductShape shape = kPositions;
    shape.n = 8;
    const std::string tier = this->Choose(choice, shape).value();
    EXPECT_THAT(choice.notices(), IsEmpty());
    return tier;
  };
  EXPECT_EQ(chosen(3, 0), "slower by 0");
  EXPECT_EQ(chosen(0, 3), "slower by 0");
  EXPECT_EQ(chosen(9, 20, 4), "slower by 4");
  EXPECT_EQ(chosen(20, 19), "slower by 20") << "19 is not clearly faster";

  // A wrong candidate does not serve, however fast it is.
  SelectedKernels<TypeParam> choice =
      this->Offer({.attention = {Slowed(attention, 9), Spoilt(attention, RowFault::kWrongValue),
                                 Slowed(attention, 3)},
                   .products = {}});
  EXPECT_EQ(this->Choose(choice, kHeads).value(), "slower by 3");
}

TYPED_TEST(SelectedKernelsTest, AShapeIsTriedOnce) {
  SelectedKernels<TypeParam> choice = this->Offer(AllCandidates<TypeParam>());
  ASSERT_TRUE(this->Choose(choice, kPositions).ok());
  const int64_t launches = this->device_->counts().launches;
  ASSERT_TRUE(this->Choose(choice, kPositions).ok());
  EXPECT_EQ(this->device_->counts().launches, launches);
  EXPECT_EQ(choice.InUse(), "products portable");
  ASSERT_TRUE(this->Choose(choice, kHeads).ok());
  EXPECT_EQ(choice.InUse(), "attention portable; products portable");
  EXPECT_THAT(choice.notices(), IsEmpty());
}

TYPED_TEST(SelectedKernelsTest, ACandidateThatDoesNotSupportAShapeIsSkipped) {
  KernelCandidates<TypeParam> candidates = AllCandidates<TypeParam>();
  GroupedProductCandidate<TypeParam> narrow = Spoilt(candidates.products.back(), RowFault::kNone);
  narrow.supports = [](const DeviceInfo&, const GroupedProductShape& shape) {
    return shape.n < 72 ? absl::OkStatus() : absl::UnimplementedError("wide");
  };
  candidates.products.insert(candidates.products.begin(), narrow);
  SelectedKernels<TypeParam> choice = this->Offer(candidates);
  EXPECT_EQ(this->Choose(choice, kPositions).value(), "portable");
  EXPECT_THAT(choice.notices(), IsEmpty());
  GroupedProductShape less = kPositions;
  less.n = 64;
  EXPECT_EQ(this->Choose(choice, less).value(), "none");
  EXPECT_EQ(choice.InUse(), "products none, portable");
  EXPECT_THAT(choice.Fingerprint(), HasSubstr("the product of 40 x 64 by 5 matrices, bias: none"));
}

TYPED_TEST(SelectedKernelsTest, TunedKernelsServeOnlyOnTheirArchitecture) {
  const bool half = sizeof(TypeParam) == sizeof(BFloat16);
  for (const auto& [architecture, tier] :
       {std::pair("sm_80", "portable"), {"sm_90", half ? "hopper" : "portable"}}) {
    this->Use(architecture);
    EXPECT_EQ(TunedTiers<TypeParam>(this->device_->info()).size(),
              tier == std::string("portable") ? 0u : 1u);
    SelectedKernels<TypeParam> choice = this->Offer(AllCandidates<TypeParam>());
    EXPECT_EQ(this->Choose(choice, kPositions).value(), tier);
    GroupedProductShape odd = kPositions;
    odd.n = 65;
    EXPECT_EQ(this->Choose(choice, odd).value(), "portable");
    EXPECT_EQ(this->Choose(choice, kHeads).value(), "portable");
    KernelCandidates<TypeParam> candidates = AllCandidates<TypeParam>();
    AttentionCandidate<TypeParam> portable = candidates.attention.front();
    candidates.attention.erase(candidates.attention.begin());
    candidates.attention.push_back(std::move(portable));
    SelectedKernels<TypeParam> tuned_first = this->Offer(std::move(candidates));
    EXPECT_EQ(this->Choose(tuned_first, kHeads).value(), tier);
    AttentionShape longer = kHeads;
    longer.head_dim = 72;
    longer.max_positions = 1100;
    longer.xsa = kernels::XsaForm::kNorm;
    EXPECT_EQ(this->Choose(tuned_first, longer).value(), tier);
    AttentionShape capped = kHeads;
    capped.soft_cap = 30;
    EXPECT_EQ(this->Choose(tuned_first, capped).value(), "portable");
  }
}

TYPED_TEST(SelectedKernelsTest, AGpuWithoutAPassingKernelServesNoModel) {
  KernelCandidates<TypeParam> candidates = AllCandidates<TypeParam>();
  candidates.products = {Spoilt(candidates.products.back(), RowFault::kDropsNaN),
                         Spoilt(candidates.products.back(), RowFault::kWrongValue)};
  SelectedKernels<TypeParam> choice = this->Offer(candidates);
  const absl::Status status = this->Choose(choice, kPositions).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("no kernel passes its trial on SIMT emulator: the drops_nan kernel "
                               "is not used for the product of 40 x 72 by 5 matrices, bias: row "),
                    HasSubstr("; the wrong_value kernel is not used for ")));
}

TYPED_TEST(SelectedKernelsTest, UnsupportedHeadsAreRefusedWithThePortableKernelsError) {
  SelectedKernels<TypeParam> choice = this->Offer(AllCandidates<TypeParam>());
  AttentionShape wide = kHeads;
  wide.head_dim = cuda::kMaxHeadDim + 8;
  EXPECT_EQ(this->Choose(choice, wide).status(),
            absl::UnimplementedError("head_dim is 264; the CUDA kernels support at most 256"));
}

TYPED_TEST(SelectedKernelsTest, ReturnsErrorsOfTheDevice) {
  SelectedKernels<TypeParam> choice = this->Offer(AllCandidates<TypeParam>());
  const TypeParam* const weight = this->lab_->Put(this->Random(this->random_, 5 * 40 * 72));
  this->device_->Lose("gone");
  GroupedProductShape shape = kPositions;
  shape.bias = false;
  EXPECT_EQ(choice.Product(shape, weight, nullptr).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(choice.Attention(kHeads, {}).status().code(), absl::StatusCode::kUnavailable);
}

// Notices, errors and the fingerprint of a profile name shapes in this form.
TEST(ShapeText, NamesEveryPropertyThatSelectsAKernel) {
  const AttentionShape plain{
      .q_heads = 4, .kv_heads = 2, .head_dim = 16, .max_positions = 64, .causal = false};
  AttentionShape whole = plain;
  whole.causal = true;
  whole.xsa = kernels::XsaForm::kNorm;
  whole.gated = whole.biased = true;
  whole.window = 9;
  whole.soft_cap = 30;
  whole.silu_share = 0.05f;
  EXPECT_EQ(ToString(plain), "attention of 4/2 heads of 16, in both directions");
  EXPECT_EQ(ToString(whole),
            "attention of 4/2 heads of 16, XSA with gates, window 9, soft cap, bias, SiLU");
  EXPECT_EQ(ToString(GroupedProductShape{.k = 40, .n = 72}), "the product of 40 x 72");
  EXPECT_EQ(ToString(GroupedProductShape{.k = 40,
                                         .n = 72,
                                         .matrices = 5,
                                         .bias = true,
                                         .accumulate = true,
                                         .activate = true,
                                         .gated = true}),
            "the product of 40 x 72 by 5 matrices, bias, accumulate, activation of a gate");
  EXPECT_EQ(ToString(GroupedProductShape{
                .k = 40, .n = 72, .activate = true, .gated = true, .gate_layer = true}),
            "the product of 40 x 72, activation of a gate with its layer");
}

}  // namespace
}  // namespace sluice
