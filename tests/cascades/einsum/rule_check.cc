#include "tests/cascades/einsum/rule_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "cascades/einsum/interpreter.h"
#include "cascades/einsum/lower.h"

namespace sluice::einsum {
namespace {

constexpr int kRounds = 6;

std::vector<double> RandomTensor(int64_t size, std::mt19937& random) {
  std::uniform_real_distribution<double> value(0.5, 2);  // no zero, as divisors must not be
  std::bernoulli_distribution negative;
  std::vector<double> values(size);
  for (double& each : values) each = negative(random) ? -value(random) : value(random);
  return values;
}

// Sets O to V at the last positions.
void FillOwnValues(const TermValues& shape, std::map<std::string, std::vector<double>>* inputs) {
  const auto own = inputs->find("O");
  const auto values = inputs->find("V");
  if (own == inputs->end() || values == inputs->end()) return;
  const int64_t inner = shape.SizeOf("h") * shape.SizeOf("f");
  const int64_t queries = shape.SizeOf("p");
  const int64_t keys = shape.SizeOf("m");
  for (int64_t b = 0; b < shape.SizeOf("b"); ++b) {
    for (int64_t i = 0; i < queries * inner; ++i) {
      own->second[b * queries * inner + i] =
          values->second[(b * keys + keys - queries) * inner + i];
    }
  }
}

}  // namespace

std::vector<double> Lowered(TermPool& pool, TermId term, const TermValues& values) {
  Sizes sizes;
  for (const auto& [symbol, size] : values.sizes()) sizes[symbol] = size;
  NamedValues inputs;
  const Cascade cascade = Lower(pool, {{"Z", term}}, "lowered");
  for (const Tensor& tensor : cascade.tensors) {
    const auto given = values.inputs().find(tensor.name);
    if (given == values.inputs().end()) continue;
    Values& input = inputs[tensor.name];
    input.values = given->second;
    for (const std::string& rank : tensor.ranks) input.shape.push_back(values.SizeOf(rank));
  }
  const absl::StatusOr<NamedValues> results = Interpret(cascade, sizes, inputs);
  if (!results.ok()) {
    ADD_FAILURE() << results.status() << " for " << TermText(pool, term);
    return {};
  }
  return results->at("Z").values;
}

RuleFinding CheckRule(TermPool& pool, const Rule& rule, TermId term, uint32_t seed) {
  RuleFinding finding;
  for (const TermId part : PartsOf(pool, term)) {
    for (const TermId other : rule.apply(pool, pool.TermOf(part))) {
      ++finding.applications;
      for (uint32_t round = 0; round < kRounds && finding.counterexample.empty(); ++round) {
        TermValues values = RandomValues(pool, {part, other}, seed + round);
        const std::vector<std::string>& ranks = pool.RanksOf(part);
        std::string difference;
        if (pool.RanksOf(other) != ranks) {
          difference = "other ranks";
        } else {
          const std::vector<double> expected = values.All(part, ranks);
          difference = Difference(expected, values.All(other, ranks));
          if (difference.empty()) {
            difference = Difference(expected, Lowered(pool, other, values));
          }
        }
        if (!difference.empty()) {
          finding.counterexample = TermText(pool, part) + " became " + TermText(pool, other) +
                                   ", seed " + std::to_string(seed + round) + ": " + difference;
        }
      }
    }
  }
  return finding;
}

TermValues RandomValues(const TermPool& pool, const std::vector<TermId>& terms, uint32_t seed) {
  std::mt19937 random(seed);
  const auto size = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  std::map<std::string, int64_t> sizes = {{"sequences", size(2)}, {"kv_heads", size(2)},
                                          {"group", size(2)},     {"context", size(9)},
                                          {"head_dim", size(3)},  {"vocab", size(9)}};
  sizes["tokens"] = size(std::min<int64_t>(3, sizes["context"]));
  const TermValues shape(pool, sizes, {});
  std::map<std::string, std::vector<double>> inputs;
  for (const TermId term : terms) {
    for (const TermId part : PartsOf(pool, term)) {
      if (pool.TermOf(part).kind != TermKind::kInput) continue;
      const Tensor& tensor = pool.TensorOf(pool.TermOf(part).access.tensor);
      int64_t points = 1;
      for (const std::string& rank : tensor.ranks) points *= shape.SizeOf(rank);
      if (!inputs.contains(tensor.name)) inputs[tensor.name] = RandomTensor(points, random);
    }
  }
  FillOwnValues(shape, &inputs);
  return TermValues(pool, std::move(sizes), std::move(inputs));
}

std::string Difference(const std::vector<double>& expected, const std::vector<double>& actual) {
  if (expected.size() != actual.size()) return "other shapes";
  for (size_t i = 0; i < expected.size(); ++i) {
    const double tolerance = 1e-9 * (1 + std::abs(expected[i]));
    if (expected[i] == actual[i]) continue;  // both may be infinite
    if (!(std::abs(expected[i] - actual[i]) <= tolerance)) {
      return std::to_string(expected[i]) + " became " + std::to_string(actual[i]) + " at " +
             std::to_string(i);
    }
  }
  return "";
}

std::vector<TermId> PartsOf(const TermPool& pool, TermId term) {
  std::vector<TermId> parts;
  std::set<TermId> seen;
  const auto visit = [&](const auto& self, TermId id) -> void {
    if (!seen.insert(id).second) return;
    for (const TermId arg : pool.TermOf(id).args) self(self, arg);
    parts.push_back(id);
  };
  visit(visit, term);
  return parts;
}

}  // namespace sluice::einsum
