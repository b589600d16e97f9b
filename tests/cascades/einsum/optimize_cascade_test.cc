#include "cascades/einsum/optimize_cascade.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cascades/einsum/egraph.h"
#include "cascades/einsum/extract.h"
#include "cascades/einsum/lower.h"
#include "cascades/einsum/rewrites.h"
#include "cascades/einsum/terms_of.h"
#include "cascades/einsum/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cascades/einsum/cascades.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kChunk = 3;

// A device whose computation, memory or first level is the scarcest.
DeviceDescription Device(double flops = 1e9, double memory = 1e8, double level_bytes = 64) {
  return {
      .name = "test",
      .workers = 2,
      .flops_per_second = flops,
      .exponentials_per_second = flops / 10,
      .launch_seconds = 1e-9,
      .levels = {{.name = "L1", .bytes = level_bytes, .bytes_per_second = 10 * memory},
                 {.name = "memory", .bytes = 1e15, .bytes_per_second = memory, .shared = true}}};
}

NamedValues RandomInputs(const Cascade& cascade, const Sizes& sizes, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0.2, 2);
  NamedValues inputs;
  for (const Tensor& tensor : cascade.tensors) {
    Values& values = inputs[tensor.name];
    int64_t volume = 1;
    for (const std::string& name : tensor.ranks) {
      const Rank& rank = *std::ranges::find(cascade.ranks, name, &Rank::name);
      values.shape.push_back(*SizeOf(rank, sizes));
      volume *= values.shape.back();
    }
    for (; volume > 0; --volume) values.values.push_back(uniform(random));
  }
  return inputs;
}

// Expects equal values of the outputs of `expected` where both are ordinary numbers, and returns
// how many were compared.
int64_t ExpectSameOutputs(const Cascade& expected, const Cascade& actual, const Sizes& sizes,
                          const NamedValues& inputs) {
  const auto a = Interpret(expected, sizes, inputs), b = Interpret(actual, sizes, inputs);
  EXPECT_TRUE(a.ok() && b.ok()) << a.status() << b.status() << Print(actual);
  if (!a.ok() || !b.ok()) return 0;
  int64_t compared = 0;
  for (const auto& [name, values] : *a) {
    const auto other = b->find(name);
    const auto declared = std::ranges::find(actual.tensors, name, &Tensor::name);
    if (other == b->end() || declared == actual.tensors.end()) continue;
    EXPECT_EQ(values.shape, other->second.shape) << name;
    if (values.shape != other->second.shape) continue;
    for (size_t i = 0; i < values.values.size(); ++i) {
      const double x = values.values[i], y = other->second.values[i];
      if (!std::isfinite(x) || std::abs(x) > 1e9) continue;
      // A point that the conditions leave out has 0, or the identity of a reduction. All inputs are
      // positive.
      if (x == 0 && std::isinf(y)) continue;
      ++compared;
      EXPECT_NEAR(x, y, 1e-9 * std::max(1.0, std::abs(x))) << name << " at " << i << "\n"
                                                           << Print(expected) << "\n"
                                                           << Print(actual);
      if (::testing::Test::HasFailure()) return compared;
    }
  }
  return compared;
}

struct OptimizeRow {
  const char* name;
  const char* text;
  const char* holds;  // text of the cheapest cascade
};

class OptimizeTable : public TableTest<OptimizeRow> {};

TEST_P(OptimizeTable, TheCheapestCascadeHasTheSameValues) {
  const Cascade cascade = ParseOrDie(row().text);
  const uint64_t first = std::random_device{}();
  for (uint64_t seed = first; seed < first + 5; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    Sizes sizes;
    for (const Rank& rank : cascade.ranks) {
      if (!rank.size.symbol.empty()) {
        sizes[rank.size.symbol] = 7 + static_cast<int64_t>(random() % 5);
      }
    }
    const auto found = OptimizeCascade(cascade, sizes, Device(1e6, 1e12), kChunk);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(Check(found->cheapest.cascade), absl::OkStatus());
    EXPECT_LE(found->cheapest.cost.seconds, found->given.cost.seconds);
    EXPECT_THAT(Print(found->cheapest.cascade), HasSubstr(row().holds));
    EXPECT_GT(ExpectSameOutputs(cascade, found->cheapest.cascade, sizes,
                                RandomInputs(cascade, sizes, random)),
              0);
  }
}

const OptimizeRow kOptimizeRows[] = {
    {"AFactorLeavesASum", "T_{i,k} = A_{i,k} × B_i Z_i = T_{i,k}", "Z[i] = S[i] . B[i] :: map x"},
    {"AnEinsumStaysAsItIs", "Z_i = A_i :: unary exp", "Z[i] = A[i] :: unary exp\n"},
    {"AttentionOfThePaper",
     "QK_{m,p} = Q_{e,p} × K_{e,m} GM_p = QK_{m,p} :: ⋁_m max(∪) SN_{m,p} = e^{QK_{m,p} - GM_p} "
     "SD_p = SN_{m,p} A_{m,p} = SN_{m,p} / SD_p AV_{f,p} = A_{m,p} × V_{f,m}",
     "AV[f, p] = "},
    {"CausalAttention",
     "QK_{m,p : m ≤ p} = Q_{e,p} × K_{e,m} GM_p = QK_{m,p} :: ⋁_m max(∪) "
     "SN_{m,p} = e^{QK_{m,p} - GM_p} SD_p = SN_{m,p} A_{m,p} = SN_{m,p} / SD_p "
     "AV_{f,p} = A_{m,p} × V_{f,m}",
     "<= p"},
    {"TwoOutputsAndAnotherOrderOfRanks",
     "rank i = i rank k = k tensor A[i, k] arena tensor B[i] arena tensor S[k, i] arena "
     "tensor Z[i] arena "
     "S[k, i] = A[i, k] . B[i] :: map /(and) Z[i] = S[k, i] :: reduce k +(or)",
     "S[k, i] = "},
};
SLUICE_TABLE(OptimizeTable, kOptimizeRows);

// Returns the text of some einsums, each of which reads inputs and earlier results at their own
// ranks.
std::string RandomText(std::mt19937_64& random) {
  const auto draw = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  const auto access = [](const std::string& name, const std::string& ranks) {
    std::string text = name;
    for (const char rank : ranks) text += (text == name ? "[" : ", ") + std::string(1, rank);
    return text + (ranks.empty() ? "" : "]");
  };
  std::vector<std::pair<std::string, std::string>> tensors = {{"A", "ab"}, {"B", "bc"}, {"C", "a"}};
  std::string text = "rank a = a rank b = b rank c = c ";
  for (const auto& [name, ranks] : tensors) text += "tensor " + access(name, ranks) + " arena ";
  for (int64_t i = 0, n = 2 + draw(4); i < n; ++i) {
    const auto first = tensors[draw(std::ssize(tensors))];
    const auto second = tensors[draw(std::ssize(tensors))];
    const bool two = draw(3) > 0;
    std::string kept, reduced;
    for (const char rank : std::string("abc")) {
      const bool has = first.second.find(rank) != std::string::npos ||
                       (two && second.second.find(rank) != std::string::npos);
      if (has) (draw(2) == 0 ? kept : reduced) += rank;
    }
    const std::string name = absl::StrCat("T", i);
    absl::StrAppend(&text, access(name, kept), " = ", access(first.first, first.second));
    if (two) absl::StrAppend(&text, " . ", access(second.first, second.second));
    std::string actions;
    const char* const kMaps[] = {"x(and)", "x(and)", "/(and)", "-(left)", "+(or)", "max(or)"};
    if (two) actions += std::string(" map ") + kMaps[draw(6)];
    if (draw(4) == 0) actions += " unary exp";
    const char* const reduction = draw(3) == 0 ? " max(or)" : " +(or)";
    for (const char rank : reduced) actions += " reduce " + std::string(1, rank) + reduction;
    const bool has_ab = (kept + reduced).find('a') != std::string::npos &&
                        (kept + reduced).find('b') != std::string::npos;
    if (has_ab && draw(3) == 0) actions += " where b <= a+1";
    absl::StrAppend(&text, actions.empty() ? "" : " ::", actions, " ");
    tensors.emplace_back(name, kept);
  }
  return text;
}

Sizes RandomSizes(const Cascade& cascade, std::mt19937_64& random) {
  Sizes sizes;
  for (const Rank& rank : cascade.ranks) {
    if (!rank.size.symbol.empty()) sizes[rank.size.symbol] = 2 + random() % 6;
  }
  return sizes;
}

// Compares every equal form of each output that the rules find, also forms that are not cheaper.
// Returns the number of forms.
int64_t ExpectSameForms(const Cascade& cascade, std::mt19937_64& random) {
  const Sizes sizes = RandomSizes(cascade, random);
  const NamedValues inputs = RandomInputs(cascade, sizes, random);
  TermPool pool;
  const auto terms = TermsOf(pool, cascade);
  if (!terms.ok()) {
    EXPECT_EQ(terms.status().code(), absl::StatusCode::kInvalidArgument) << terms.status();
    return 0;
  }
  std::vector<Partition> partitions;
  for (const char* const rank : {"m", "b"}) {
    if (std::ranges::find(cascade.ranks, rank, &Rank::name) != cascade.ranks.end()) {
      partitions.push_back({rank, "outer", "inner", kChunk});
    }
  }
  int64_t forms = 0;
  for (const OutputTerm& output : terms->outputs) {
    EGraph graph(&pool);
    const TermId root = graph.AddTerm(output.term);
    graph.Saturate(AllRules({.partitions = partitions, .own_value = {}}), {.nodes = 2000});
    for (const TermId term : VariantsOf(graph, pool, root, 40).terms) {
      Cascade lowered = Lower(pool, {{"form", term}});
      Einsum copy{.out = {.tensor = output.tensor.name}, .in = {{.tensor = "form"}}};
      for (const std::string& rank : output.tensor.ranks) {
        copy.out.indices.push_back({.terms = {{rank}}});
      }
      for (const std::string& rank : pool.RanksOf(term)) {
        copy.in[0].indices.push_back({.terms = {{rank}}});
      }
      copy.where = output.where;
      lowered.statements.emplace_back(std::move(copy));
      lowered.tensors.push_back(output.tensor);
      ExpectSameOutputs(cascade, lowered, sizes, inputs);
      if (::testing::Test::HasFailure()) return forms;
      ++forms;
    }
  }
  return forms;
}

TEST(TermsOf, EveryEqualFormHasTheValuesOfTheCascade) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  for (const OptimizeRow& row : kOptimizeRows) {
    SCOPED_TRACE(row.name);
    EXPECT_GT(ExpectSameForms(ParseOrDie(row.text), random), 0);
    if (HasFailure()) return;
  }
}

TEST(TermsOf, EveryEqualFormOfARandomCascadeHasItsValues) {
  const uint64_t first = std::random_device{}();
  int64_t forms = 0;
  for (uint64_t seed = first; seed < first + 100; ++seed) {
    std::mt19937_64 random(seed);
    const std::string text = RandomText(random);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", text));
    forms += ExpectSameForms(ParseOrDie(text), random);
    if (HasFailure()) return;
  }
  EXPECT_GT(forms, 200);
}

TEST(OptimizeCascade, RandomCascadesKeepTheirValues) {
  const uint64_t first = std::random_device{}();
  constexpr int kCascades = 300;
  int64_t rewritten = 0, refused = 0, compared = 0;
  for (uint64_t seed = first; seed < first + kCascades; ++seed) {
    std::mt19937_64 random(seed);
    const std::string text = RandomText(random);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", text));
    const Cascade cascade = ParseOrDie(text);
    const Sizes sizes = RandomSizes(cascade, random);
    const DeviceDescription device =
        Device(random() % 2 == 0 ? 1e6 : 1e12, random() % 2 == 0 ? 1e6 : 1e12, 64);
    const auto found = OptimizeCascade(cascade, sizes, device, kChunk);
    if (!found.ok()) {
      EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument) << found.status();
      ++refused;
      continue;
    }
    compared += ExpectSameOutputs(cascade, found->cheapest.cascade, sizes,
                                  RandomInputs(cascade, sizes, random));
    if (HasFailure()) return;
    rewritten += !(found->cheapest.cascade == found->given.cascade);
  }
  EXPECT_LT(refused, kCascades / 2);
  EXPECT_GT(rewritten, 4);  // about 20
  EXPECT_GT(compared, 50);
}

TEST(OptimizeCascade, TakesFewerPassesOfALongRank) {
  const Cascade cascade = ParseOrDie(
      "QK_{m,p} = Q_{e,p} × K_{e,m} GM_p = QK_{m,p} :: ∨_m max(∪) SN_{m,p} = e^{QK_{m,p} - GM_p} "
      "SD_p = SN_{m,p} A_{m,p} = SN_{m,p} / SD_p AV_{f,p} = A_{m,p} × V_{f,m}");
  const auto found =
      OptimizeCascade(cascade, {{"m", 4096}, {"p", 1}, {"e", 64}, {"f", 64}}, Device());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->given.analysis.passes, 3);
  EXPECT_LT(found->cheapest.analysis.passes, 3) << Print(found->cheapest.cascade);
  EXPECT_LT(found->cheapest.cost.seconds, found->given.cost.seconds);
  EXPECT_GT(found->compared, 5);
}

struct RefusalRow {
  const char* name;
  const char* text;
  const char* error;
};

class RefusalTable : public TableTest<RefusalRow> {};

TEST_P(RefusalTable, NamesTheResult) {
  const Cascade cascade = ParseOrDie(row().text);
  Sizes sizes;
  for (const Rank& rank : cascade.ranks) sizes[rank.size.symbol] = 4;
  const absl::Status status = OptimizeCascade(cascade, sizes, Device()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), row().error);
}

const RefusalRow kRefusalRows[] = {
    {"AnIteration", "iterate k { init R_{k:k=0} = 0 R_{k+1} = R_k + A_k } Z = R_{end k}",
     "'R' cannot be rewritten: it is computed by an iteration over 'k'. Write its definition with "
     "reductions."},
    {"AnotherPlace", "S_{i} = A_i Z_{i} = S_{i+1}",
     "'Z' cannot be rewritten: it reads the result 'S' at another place than a single rank of the "
     "size of 'i'."},
    {"AnotherSize", "S_{i} = A_i Z_{k} = S_{k}",
     "'Z' cannot be rewritten: it reads the result 'S' at another place than a single rank of the "
     "size of 'i'."},
    {"ACapturedRank",
     "rank i = n rank k = n tensor A[i, k] arena tensor Z[k] arena "
     "S[i] = A[i, k] :: reduce k +(or) Z[k] = S[k] :: unary exp",
     "'Z' cannot be rewritten: it reads the result 'S' at rank 'k', over which 'S' is reduced. Use "
     "another rank."},
    {"ASumOfDifferentPoints", "S_{i : i < 2} = A_i Z_i = S_i + B_i",
     "'Z' cannot be rewritten: the operands of +(or) have values at different points."},
    {"AMissingOperand", "S_i = A_{k : k < i} Z_i = S_i · B_i :: ⋀ ×(∪)",
     "'Z' cannot be rewritten: an operand of x(or) may lack a value."},
    {"AReductionByAll", "Z_i = A_{i,k : k < i} :: ⋁_k +(1)",
     "'Z' cannot be rewritten: its reduction counts missing values as 0 (all)."},
    {"ABroadcastOutput", "Z_{i,k} = A_i", "'Z' cannot be rewritten: no operand has its rank 'k'."},
};
SLUICE_TABLE(RefusalTable, kRefusalRows);

}  // namespace
}  // namespace sluice::einsum
