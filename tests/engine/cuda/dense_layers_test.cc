#include "engine/cuda/dense_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/cuda/emulator/simt_device.h"
#include "kernels/cuda/bfloat16.h"
#include "tests/support/device_lab.h"

namespace sluice {
namespace {

using kernels::cuda::BFloat16;
using simt::SimtDense;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

constexpr DenseShape kShape = {
    .k = 24, .n = 16, .type = DenseType::kF32, .bias = true, .accumulate = false};

class DenseLayersTest : public ::testing::Test {
 protected:
  void Offer(std::vector<SimtDense> algorithms, int64_t memory_bytes = 1 << 30,
             std::map<int32_t, std::vector<SimtDense>> of_classes = {}) {
    auto device = simt::MakeSimtDevice({.memory_bytes = memory_bytes,
                                        .dense = std::move(algorithms),
                                        .dense_of_classes = std::move(of_classes)});
    device_ = device.get();
    lab_ = std::make_unique<DeviceLab>(std::move(device));
    layers_ = std::make_unique<DenseLayers>(*device_, lab_->stream(), &table_);
    const std::vector<float> weight = Random(kShape.k * kShape.n), bias = Random(kShape.n);
    weight_ = lab_->Put(weight);
    bias_ = lab_->Put(bias);
    half_weight_ = lab_->Put(Halved(weight));
    half_bias_ = lab_->Put(Halved(bias));
  }
  static std::vector<BFloat16> Halved(const std::vector<float>& values) {
    std::vector<BFloat16> halved;
    for (const float value : values) halved.push_back(kernels::cuda::Narrow<BFloat16>(value));
    return halved;
  }
  void Keep(const DenseShape& shape, SimtDense algorithm,
            const std::map<int32_t, SimtDense>& of_classes = {}) {
    DenseAlgorithms algorithms = {.reference = {static_cast<uint64_t>(algorithm)}};
    for (const auto& [rows, kind] : of_classes) {
      algorithms.of_classes[rows] = {static_cast<uint64_t>(kind)};
    }
    ASSERT_TRUE(table_.Add(shape, algorithms, "").ok());
  }
  absl::StatusOr<const DenseFamily*> FindFamily(const DenseShape& shape = kShape) {
    if (shape.half()) return layers_->Find(shape, half_weight_, half_bias_);
    return layers_->Find(shape, weight_, bias_);
  }
  // Returns the reference of the family.
  absl::StatusOr<const DenseLayer*> Find(const DenseShape& shape = kShape) {
    SLUICE_ASSIGN_OR_RETURN(const DenseFamily* const family, FindFamily(shape));
    return family == nullptr ? nullptr : &family->reference();
  }
  // Returns the algorithm of each class that has its own, by the last number of rows.
  std::map<int32_t, SimtDense> OfClasses(const DenseShape& shape = kShape) {
    std::map<int32_t, SimtDense> kinds;
    for (const auto& [rows, algorithm] : FindFamily(shape).value()->algorithms().of_classes) {
      kinds[rows] = static_cast<SimtDense>(algorithm[0]);
    }
    return kinds;
  }
  // Returns which of `algorithms` is chosen for the shape; nullopt if none is.
  std::optional<SimtDense> Found(std::vector<SimtDense> algorithms, const DenseShape& shape) {
    Offer(std::move(algorithms));
    const DenseLayer* const layer = Find(shape).value();
    if (layer == nullptr) return std::nullopt;
    return static_cast<SimtDense>(layer->algorithm()[0]);
  }
  std::vector<float> Random(int64_t n) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = uniform(random_);
    return values;
  }

  std::mt19937_64 random_{7};
  simt::SimtDevice* device_ = nullptr;
  std::unique_ptr<DeviceLab> lab_;
  std::unique_ptr<DenseLayers> layers_;
  const float* weight_ = nullptr;
  const float* bias_ = nullptr;
  const BFloat16* half_weight_ = nullptr;
  const BFloat16* half_bias_ = nullptr;
  AlgorithmTable table_{"SIMT emulator", "pretended"};
};

TEST_F(DenseLayersTest, TakesTheFirstAlgorithmWhoseRowsDoNotDependOnTheirNumber) {
  Offer({SimtDense::kVaries});
  EXPECT_EQ(Find().value(), nullptr);
  Offer({});
  EXPECT_EQ(Find().value(), nullptr);
  Offer({SimtDense::kVaries, SimtDense::kInvariant});
  const DenseLayer* const layer = Find().value();
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(Find().value(), layer) << "tried once";
  DenseShape other = kShape;
  other.accumulate = true;
  EXPECT_NE(Find(other).value(), layer);
}

TEST_F(DenseLayersTest, TheChosenAlgorithmComputesTheLayer) {
  Offer({SimtDense::kVaries, SimtDense::kInvariant});
  constexpr int32_t kRows = 112;
  const std::vector<float> x = Random(kRows * kShape.k);
  auto* const out = lab_->Room<float>(kRows * kShape.n);
  Find().value()->Run({lab_->Put(x), weight_, bias_, kRows, out}, lab_->stream());
  const auto weight = lab_->Get(weight_, static_cast<size_t>(kShape.k * kShape.n));
  const auto bias = lab_->Get(bias_, static_cast<size_t>(kShape.n));
  const auto got = lab_->Get(out, static_cast<size_t>(kRows * kShape.n));
  for (int32_t r = 0; r < kRows; ++r) {
    for (int32_t n = 0; n < kShape.n; ++n) {
      double expected = bias[n];
      for (int32_t k = 0; k < kShape.k; ++k) {
        expected += double{x[r * kShape.k + k]} * weight[k * kShape.n + n];
      }
      ASSERT_NEAR(got[r * kShape.n + n], expected, 1e-5) << r << ", " << n;
    }
  }
}

// The layer's bits equal a run of few rows, for every number of rows and slices.
TEST_F(DenseLayersTest, ManyRowsAreComputedInSlicesThatWereTried) {
  Offer({SimtDense::kInvariant});
  const DenseFamily& family = *FindFamily().value();
  for (const int32_t rows : {1, 33, 1000, kMaxDenseRows, kMaxDenseRows + 33}) {
    const int64_t computed = DenseRows(rows);
    const std::vector<float> x = Random(computed * kShape.k);
    auto* const out = lab_->Room<float>(computed * kShape.n);
    RunInSlices(family, kShape, {lab_->Put(x), weight_, bias_, rows, out}, lab_->stream());
    const auto got = lab_->Get(out, static_cast<size_t>(computed * kShape.n));
    const std::vector<float> last(&x[(rows - 1) * kShape.k], &x[(rows - 1) * kShape.k] + kShape.k);
    auto* const alone = lab_->Room<float>(kShape.n);
    family.For(1).Run({lab_->Put(last), weight_, bias_, 1, alone}, lab_->stream());
    EXPECT_THAT(lab_->Get(alone, kShape.n),
                ElementsAreArray(&got[(rows - 1) * kShape.n], static_cast<size_t>(kShape.n)))
        << rows << " rows";
  }
  EXPECT_TRUE(lab_->Finish().ok());
}

TEST(TriedRowsTest, ANumberOfRowsIsRoundedUpByAtMostAQuarter) {
  int32_t tried = 0;
  for (int32_t rows = 1; rows <= kMaxDenseRows; ++rows) {
    const int32_t computed = TriedRows(rows);
    EXPECT_GE(computed, rows);
    EXPECT_EQ(TriedRows(computed), computed);
    EXPECT_LE(4 * computed, rows > 32 ? 5 * rows + 4 : 8 * rows) << rows;
    if (computed == rows) ++tried;
  }
  EXPECT_EQ(tried, 34);
  EXPECT_EQ(DenseRows(3 * kMaxDenseRows), 3 * kMaxDenseRows);
  EXPECT_EQ(DenseRows(kMaxDenseRows + 33), kMaxDenseRows + 40);
}

TEST_F(DenseLayersTest, AnAlgorithmThatIsWrongInEveryRowIsRefused) {
  for (const DenseType type : {DenseType::kF32, DenseType::kBF16}) {
    DenseShape shape = kShape;
    shape.type = type;
    EXPECT_EQ(Found({SimtDense::kUnfinished}, shape), std::nullopt);
    EXPECT_EQ(Found({SimtDense::kUnfinished, SimtDense::kBackwards}, shape), SimtDense::kBackwards);
    shape.accumulate = true;
    EXPECT_EQ(Found({SimtDense::kUnfinished, SimtDense::kInvariant}, shape), SimtDense::kInvariant);
  }
}

TEST_F(DenseLayersTest, AnAlgorithmThatDependsOnTheWorkspacesContentsIsRefused) {
  EXPECT_EQ(Found({SimtDense::kTrustsWorkspace}, kShape), std::nullopt);
  EXPECT_EQ(Found({SimtDense::kTrustsWorkspace, SimtDense::kWorkspace}, kShape),
            SimtDense::kWorkspace);
  EXPECT_EQ(Find().value()->workspace_bytes(), kShape.n * sizeof(float));
  EXPECT_TRUE(lab_->Finish().ok());
}

TEST_F(DenseLayersTest, AnAlgorithmThatAppliesAnotherActivationIsRefused) {
  for (const DenseType type : {DenseType::kF32, DenseType::kBF16}) {
    for (const auto activation : {DenseActivation::kRelu, DenseActivation::kGeluTanh}) {
      DenseShape shape = kShape;
      shape.type = type;
      EXPECT_EQ(Found({SimtDense::kWrongFunction}, shape), SimtDense::kWrongFunction) << "unused";
      shape.activation = activation;
      for (const SimtDense wrong : {SimtDense::kWrongFunction, SimtDense::kDropsNaN}) {
        EXPECT_EQ(Found({wrong}, shape), std::nullopt) << ToString(shape);
        EXPECT_EQ(Found({wrong, SimtDense::kInvariant}, shape), SimtDense::kInvariant);
      }
    }
  }
}

// The head never has more rows than it is tried with. An algorithm that varies only with more rows
// is therefore accepted.
TEST_F(DenseLayersTest, AHeadIsTriedWithNoMoreRowsThanItEverHas) {
  DenseShape shape = kShape;
  EXPECT_EQ(Found({SimtDense::kVaries}, shape), std::nullopt);
  shape.bias = false;
  shape.type = DenseType::kBF16;
  shape.head = true;
  EXPECT_EQ(Found({SimtDense::kVaries}, shape), SimtDense::kVaries);
  shape.head = false;
  EXPECT_NE(Find(shape).value(), Find().value());
}

TEST(RowClasses, CoverTheTriedNumbersOfRowsOfAShape) {
  const RowClass all[] = {{1, 16}, {32, 64}, {80, 256}, {320, 1024}, {1280, 4096}};
  EXPECT_THAT(ClassesOf(kShape), ElementsAreArray(all));
  DenseShape shape = kShape;
  shape.head = true;
  EXPECT_THAT(ClassesOf(shape), ElementsAreArray(std::span(all).first(3)));
  shape.head = false;
  shape.type = DenseType::kInt8;
  EXPECT_THAT(ClassesOf(shape), ElementsAreArray(std::span(all).last(4)));
  shape.n = 4096;  // with slices of 1,024 rows
  EXPECT_THAT(ClassesOf(shape), ElementsAreArray(std::span(all).subspan(1, 3)));

  EXPECT_EQ(WithEdges(kShape, all[0]), (RowClass{1, 32}));
  EXPECT_EQ(WithEdges(kShape, all[1]), (RowClass{16, 80}));
  EXPECT_EQ(WithEdges(kShape, all[2]), (RowClass{64, 320}));
  EXPECT_EQ(WithEdges(kShape, all[4]), (RowClass{1, 4096}));
  EXPECT_EQ(WithEdges(shape, all[1]), (RowClass{32, 80}));
  EXPECT_EQ(WithEdges(shape, all[3]), (RowClass{32, 1024}));
}

// An algorithm of a class is used only if its rows have the reference's bits, at every number of
// rows of the class and at the next one on each side.
TEST_F(DenseLayersTest, AClassHasItsOwnAlgorithmIfTheBitsAreTheReferences) {
  using enum SimtDense;
  Offer({kInvariant}, 1 << 30,
        {{16, {kOnlyTo64}},                   // differs, but beyond the edge of its class
         {64, {kBackwards, kOnlyTo64}},       // other bits; other bits only beyond the edge
         {256, {kUnfinished, kOtherTile}},    // the first is wrong
         {1024, {kInvariant, kOtherTile}}});  // the library finds the reference the best
  EXPECT_EQ(OfClasses(), (std::map<int32_t, SimtDense>{{16, kOnlyTo64}, {256, kOtherTile}}));
  EXPECT_THAT(layers_->notices(), IsEmpty());
  EXPECT_THAT(
      layers_->Describe(),
      ElementsAre(absl::StrCat(
          "24 x 16 f32, bias: reference algorithm ", static_cast<int>(kInvariant),
          "; up to 16 rows algorithm ", static_cast<int>(kOnlyTo64),
          "; up to 64 rows the reference; up to 256 rows algorithm ", static_cast<int>(kOtherTile),
          "; up to 1024 rows the reference; up to 4096 rows the reference")));
}

TEST_F(DenseLayersTest, ARowHasTheSameBitsInEveryClass) {
  using enum SimtDense;
  Offer({kInvariant}, 1 << 30, {{16, {kOnlyTo64}}, {64, {kOtherTile}}, {1024, {kWorkspace}}});
  const DenseFamily& family = *FindFamily().value();
  EXPECT_EQ(OfClasses(),
            (std::map<int32_t, SimtDense>{{16, kOnlyTo64}, {64, kOtherTile}, {1024, kWorkspace}}));
  const std::vector<float> x = Random(kMaxDenseRows * kShape.k);
  const float* const on_device = lab_->Put(x);
  auto* const workspace = lab_->Room<float>(family.workspace_bytes() / sizeof(float));
  std::vector<float> first;
  for (const int32_t rows : {1, 16, 17, 64, 65, 256, 257, 1024, 1025, 4096, 4097}) {
    const int64_t computed = DenseRows(rows);
    auto* const out = lab_->Room<float>(computed * kShape.n);
    const float* const from =
        rows <= kMaxDenseRows ? on_device : lab_->Put(Random(computed * kShape.k));
    RunInSlices(family, kShape, {from, weight_, bias_, rows, out, workspace}, lab_->stream());
    if (rows > kMaxDenseRows) continue;
    const auto row = lab_->Get(out, kShape.n);
    if (first.empty()) first = row;
    EXPECT_THAT(row, ElementsAreArray(first)) << rows << " rows";
  }
  EXPECT_TRUE(lab_->Finish().ok());
}

// With a trial that leaves the edges out, a row of 80 would be computed with other bits than 64.
TEST_F(DenseLayersTest, ALibraryComputesNoNumberOfRowsThatItsClassDoesNotAllow) {
  Offer({SimtDense::kInvariant}, 1 << 30, {{64, {SimtDense::kOtherTile}}});
  const DenseLayer& own = FindFamily().value()->For(64);
  auto* const out = lab_->Room<float>(256 * kShape.n);
  const float* const x = lab_->Put(Random(256 * kShape.k));
  for (const int32_t rows : {8, 16, 32, 64, 80, 96}) {
    own.Run({x, weight_, bias_, rows, out}, lab_->stream());
    EXPECT_EQ(lab_->stream().Synchronize().ok(), rows >= 16 && rows <= 80) << rows;
  }
}

TEST_F(DenseLayersTest, TheTableNamesAnAlgorithmForEachClass) {
  using enum SimtDense;
  Keep(kShape, kInvariant, {{16, kOnlyTo64}, {64, kOnlyTo64}, {256, kUnfinished}});
  Offer({kBackwards, kInvariant, kOtherTile, kOnlyTo64});
  EXPECT_EQ(Find().value()->algorithm()[0], static_cast<uint64_t>(kInvariant));
  // The library's order decides for 256 rows, whose algorithm is not offered, and for 1,024.
  EXPECT_EQ(OfClasses(), (std::map<int32_t, SimtDense>{{16, kOnlyTo64}}));
  EXPECT_THAT(
      layers_->notices(),
      ElementsAre(HasSubstr("not followed for 24 x 16 f32, bias, up to 256 rows: its algorithm is "
                            "not among the library's candidates"),
                  MatchesRegex("the table of algorithms is not followed for 24 x 16 f32, bias, up "
                               "to 64 rows: row [0-9]+ has other bits among 80 rows than among "
                               "4096")));
  const AlgorithmTable used = layers_->InUse("gpu", "library");
  EXPECT_EQ(used.Find(kShape)->of_classes.size(), 1u);
  Offer({kInvariant});
  (void)Find().value();
  EXPECT_NE(layers_->InUse("gpu", "library").Digest(), used.Digest()) << "the ladder's key";
}

TEST_F(DenseLayersTest, ATableMayNameTheReferenceForAClass) {
  using enum SimtDense;
  for (const bool named : {false, true}) {
    table_ = AlgorithmTable("SIMT emulator", "pretended");
    std::map<int32_t, SimtDense> of_classes;
    if (named) of_classes[16] = kInvariant;
    Keep(kShape, kInvariant, of_classes);
    Offer({kInvariant}, 1 << 30, {{16, {kOtherTile}}});
    EXPECT_EQ(OfClasses().count(16), named ? 0u : 1u);
    EXPECT_THAT(layers_->notices(), IsEmpty());
  }
}

TEST_F(DenseLayersTest, MembersReturnsTheAlgorithmsWithTheReferencesBits) {
  using enum SimtDense;
  Offer({kInvariant}, 1 << 30,
        {{16, {kOtherTile, kBackwards, kOnlyTo64}}, {64, {kOnlyTo64}}, {1024, {kInvariant}}});
  const auto passing = layers_->Passing(kShape, weight_, bias_, 1).value();
  const auto members = layers_->Members(kShape, weight_, bias_, *passing.front()).value();
  std::map<int32_t, size_t> sizes;
  for (const auto& [rows, layers] : members) sizes[rows] = layers.size();
  EXPECT_EQ(sizes, (std::map<int32_t, size_t>{{16, 2}, {64, 0}, {256, 0}, {1024, 0}}));
}

TEST_F(DenseLayersTest, TheTablesAlgorithmIsTriedFirst) {
  Keep(kShape, SimtDense::kBackwards);
  EXPECT_EQ(Found({SimtDense::kInvariant, SimtDense::kBackwards}, kShape), SimtDense::kBackwards);
  DenseShape other = kShape;
  other.accumulate = true;
  EXPECT_EQ(Found({SimtDense::kInvariant, SimtDense::kBackwards}, other), SimtDense::kInvariant);
  EXPECT_THAT(layers_->notices(), IsEmpty());
}

TEST_F(DenseLayersTest, ATablesAlgorithmThatFailsTheTrialIsNotUsed) {
  Keep(kShape, SimtDense::kVaries);
  EXPECT_EQ(Found({SimtDense::kInvariant, SimtDense::kVaries}, kShape), SimtDense::kInvariant);
  EXPECT_THAT(layers_->notices(),
              ElementsAre(MatchesRegex("the table of algorithms is not followed for 24 x 16 f32, "
                                       "bias: row [0-9]+ has other bits among [0-9]+ rows than "
                                       "among 4096")));
  DenseShape other = kShape;
  other.accumulate = true;
  Keep(other, static_cast<SimtDense>(99));
  EXPECT_EQ(Found({SimtDense::kBackwards}, other), SimtDense::kBackwards);
  EXPECT_THAT(layers_->notices(),
              ElementsAre(HasSubstr("its algorithm is not among the library's candidates")))
      << "a table's content is not handed to the library";
}

TEST_F(DenseLayersTest, AShapeThatIsLeftToOurKernelIsNoticed) {
  EXPECT_EQ(Found({SimtDense::kVaries}, kShape), std::nullopt);
  EXPECT_THAT(layers_->notices(),
              ElementsAre("our kernel computes 24 x 16 f32, bias, because none of the library's "
                          "algorithms passes its trial"));
  EXPECT_EQ(Found({}, kShape), std::nullopt);
  EXPECT_THAT(layers_->notices(), IsEmpty()) << "without a library";
}

TEST_F(DenseLayersTest, PassingReturnsUpToTheGivenNumberOfAlgorithms) {
  Offer({SimtDense::kVaries, SimtDense::kBackwards, SimtDense::kUnfinished, SimtDense::kInvariant});
  EXPECT_EQ(layers_->Passing(kShape, weight_, bias_, 9)->size(), 2u);
  EXPECT_EQ(layers_->Passing(kShape, weight_, bias_, 1)->size(), 1u);
}

// Plants one bad argument after another in a call that the library takes.
TEST_F(DenseLayersTest, TheLibraryRefusesBadArguments) {
  for (const DenseType type : {DenseType::kF32, DenseType::kBF16}) {
    DenseShape shape = kShape;
    shape.type = type;
    Offer({SimtDense::kWorkspace});
    const DenseLayer* const layer = Find(shape).value();
    const DenseArgs good = {
        .x = lab_->Put(std::vector<float>(kShape.k * 8)),
        .weight = shape.half() ? static_cast<const void*>(half_weight_) : weight_,
        .bias = shape.half() ? static_cast<const void*>(half_bias_) : bias_,
        .rows = 4,
        .out = lab_->Room<float>(kShape.n * 8),
        .workspace = lab_->Room<float>(kShape.n * 8)};
    const auto run = [&](auto change) {
      DenseArgs args = good;
      change(&args);
      layer->Run(args, lab_->stream());
      return lab_->stream().Synchronize();
    };
    const auto moved = [](const void* memory, int bytes) {
      return const_cast<char*>(static_cast<const char*>(memory) + bytes);
    };
    EXPECT_TRUE(run([](DenseArgs*) {}).ok());
    using Change = std::function<void(DenseArgs*)>;
    for (const int bytes : {4, 128}) {
      for (const Change& change :
           {Change([&](DenseArgs* args) { args->x = moved(args->x, bytes); }),
            Change([&](DenseArgs* args) { args->weight = moved(args->weight, bytes); }),
            Change([&](DenseArgs* args) { args->bias = moved(args->bias, bytes); }),
            Change([&](DenseArgs* args) { args->out = moved(args->out, bytes); }),
            Change([&](DenseArgs* args) { args->workspace = moved(args->workspace, bytes); }),
            Change([&](DenseArgs* args) { args->bias = nullptr; }),
            Change([&](DenseArgs* args) { args->workspace = nullptr; }),
            Change([&](DenseArgs* args) { args->x = args->out; }),
            Change([&](DenseArgs* args) { args->rows = 0; }),
            Change([&](DenseArgs* args) { args->rows = MaxRows(shape) + 1; })}) {
        EXPECT_EQ(run(change), absl::InternalError("cublasLtMatmul failed with status 7"));
      }
    }
    EXPECT_TRUE(run([](DenseArgs*) {}).ok()) << "the stream continues";
    EXPECT_EQ(device_->fault(), "");
  }
}

TEST_F(DenseLayersTest, AWorkspaceThatIsSmallerThanDeclaredIsAFault) {
  Offer({SimtDense::kWorkspace});
  const DenseLayer* const layer = Find().value();
  ASSERT_EQ(layer->workspace_bytes(), kShape.n * sizeof(float));
  layer->Run({.x = lab_->Put(std::vector<float>(kShape.k)),
              .weight = weight_,
              .bias = bias_,
              .rows = 1,
              .out = lab_->Room<float>(kShape.n),
              .workspace = lab_->Room<float>(kShape.n - 1)},
             lab_->stream());
  EXPECT_TRUE(absl::IsUnavailable(lab_->stream().Synchronize()));
  EXPECT_THAT(device_->fault(), HasSubstr("Workspace touches 64 bytes outside of all buffers"));
}

// Of bfloat16; our kernel then computes the layer.
TEST_F(DenseLayersTest, TheLibraryHasNoAlgorithmForRowsThatAreNotMultiplesOf16Bytes) {
  Offer({SimtDense::kInvariant});
  for (const auto& [k, n, aligned] :
       {std::tuple{768, 50257, false}, {768, 50264, true}, {20, 16, false}, {24, 12, false}}) {
    for (const bool head : {false, true}) {
      DenseShape shape = {
          .k = k, .n = n, .type = DenseType::kBF16, .bias = false, .accumulate = false};
      shape.head = head;
      const std::vector<RowClass> classes = ClassesOf(shape);
      EXPECT_EQ(device_->DenseCandidates(shape, classes.back()).size(), aligned ? 1u : 0u)
          << k << ", " << n;
      shape.type = DenseType::kF32;
      EXPECT_EQ(device_->DenseCandidates(shape, classes.back()).size(), 1u);
    }
  }
}

// A layer may be captured, but a trial allocates and waits.
TEST_F(DenseLayersTest, ATrialIsRefusedDuringACapture) {
  Offer({SimtDense::kInvariant});
  const DenseLayer* const layer = Find().value();
  const DenseArgs args = {.x = lab_->Put(std::vector<float>(kShape.k)),
                          .weight = weight_,
                          .bias = bias_,
                          .rows = 1,
                          .out = lab_->Room<float>(kShape.n)};
  DenseShape other = kShape;
  other.accumulate = true;
  const auto stream = device_->CreateStream().value();
  for (const bool trial : {false, true}) {
    stream->BeginCapture();
    layer->Run(args, *stream);
    if (trial) {
      EXPECT_THAT(std::string(Find(other).status().message()), HasSubstr("error 900"));
    }
    EXPECT_EQ(stream->EndCapture().ok(), !trial);
  }
  EXPECT_NE(Find(other).value(), nullptr) << "after the capture";
}

TEST_F(DenseLayersTest, ReturnsErrorsOfTheDevice) {
  Offer({SimtDense::kInvariant}, 1 << 16);
  EXPECT_EQ(Find().status().code(), absl::StatusCode::kResourceExhausted);
  Offer({SimtDense::kInvariant});
  device_->Lose("gone");
  EXPECT_EQ(Find().status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sluice
