#include "cascades/einsum/paper.h"

#include <cmath>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cascades/einsum/analysis.h"
#include "cascades/einsum/text.h"
#include "gtest/gtest.h"
#include "kernels/reference/attention.h"

namespace sluice::einsum {
namespace {

std::vector<double> RandomValues(std::mt19937_64& random, int64_t count) {
  std::uniform_real_distribution<double> uniform(-3, 3);
  std::vector<double> values;
  for (; count > 0; --count) values.push_back(uniform(random));
  return values;
}

// One head of attention of random sizes.
struct Problem {
  explicit Problem(uint64_t seed) : random(seed) {
    const auto draw = [this](uint64_t most) { return 1 + static_cast<int64_t>(random() % most); };
    dim = draw(5);
    context = draw(20);
    tokens = draw(static_cast<uint64_t>(context));
    chunk = draw(7);
    inputs["Q"] = {{tokens, dim}, RandomValues(random, tokens * dim)};
    inputs["K"] = {{context, dim}, RandomValues(random, context * dim)};
    inputs["V"] = {{context, dim}, RandomValues(random, context * dim)};
  }

  std::vector<double> Expected(bool causal) const {
    return kernels::reference::Attention({1, 1, dim}, inputs.at("Q").values, inputs.at("K").values,
                                         inputs.at("V").values, context - tokens, causal, 1);
  }

  // Runs the text with chunks of this problem's size.
  absl::StatusOr<NamedValues> Run(std::string_view text) const {
    const auto cascade =
        Parse(absl::StrReplaceAll(std::string(text), {{"512", absl::StrCat(chunk)}}));
    if (!cascade.ok()) return cascade.status();
    return Interpret(*cascade, {{"tokens", tokens}, {"context", context}, {"head_dim", dim}},
                     inputs);
  }

  std::mt19937_64 random;
  int64_t dim, context, tokens, chunk;
  NamedValues inputs;
};

void ExpectNear(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-12) << i;
}

TEST(PaperCascades, AllComputeAttention) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Problem problem(seed);
    for (const PaperCascade& each : PaperCascades()) {
      SCOPED_TRACE(absl::StrCat(std::string(each.name), ", seed ", seed));
      const auto results = problem.Run(each.text);
      ASSERT_TRUE(results.ok()) << results.status();
      ASSERT_NO_FATAL_FAILURE(ExpectNear(results->at("Y").values, problem.Expected(false)));
    }
  }
}

TEST(PaperCascades, TheCorrectionIsNeeded) {
  const std::string_view one_pass = PaperCascades().back().text;
  const std::string planted =
      absl::StrReplaceAll(std::string(one_pass),
                          {{"W[p, f, c] = Z[p, f, c] . E[p, c]", "W[p, f, c] = Z[p, f, c] . 1"}});
  int64_t differences = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Problem problem(seed);
    const auto results = problem.Run(planted);
    ASSERT_TRUE(results.ok()) << results.status();
    const std::vector<double> expected = problem.Expected(false);
    for (size_t i = 0; i < expected.size(); ++i) {
      differences += std::abs(results->at("Y").values[i] - expected[i]) > 1e-6;
    }
  }
  EXPECT_GT(differences, 0);
}

// Keys after the query's own position have no value: the condition is on N and on the maximum.
TEST(PaperCascades, WithAConditionTheyAreCausal) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const Problem problem(seed);
    for (const PaperCascade& each : PaperCascades()) {
      SCOPED_TRACE(absl::StrCat(std::string(each.name), ", seed ", seed));
      const bool chunks = each.text.find("rank c") != each.text.npos;
      const std::string where =
          chunks ? " where c*512+j+end p <= p+end m\n" : " where m+end p <= p+end m\n";
      std::string text(each.text);
      for (const std::string_view line : {"reduce j max(or)\n", "reduce m max(or)\n"}) {
        const size_t at = text.find(line);
        if (at != text.npos) text.replace(at + line.size() - 1, 1, where);
      }
      const size_t weights = text.find('\n', text.find("N[p, "));
      text.replace(weights, 1, where);
      const auto results = problem.Run(text);
      ASSERT_TRUE(results.ok()) << results.status();
      ASSERT_NO_FATAL_FAILURE(ExpectNear(results->at("Y").values, problem.Expected(true)));
    }
  }
}

// text.h begins with a whole cascade.
std::string ExampleOfTheNotation() {
  std::ifstream file(SLUICE_SOURCE_DIR "/cascades/einsum/text.h");
  std::string text;
  for (std::string line; std::getline(file, line);) {
    const bool shown = line.starts_with("//   ");
    if (!shown && !text.empty()) break;
    if (shown) text += line.substr(5) + "\n";
  }
  return text;
}

TEST(PaperCascades, TheExampleOfTheNotationIsCausalAttention) {
  const std::string text = ExampleOfTheNotation();
  ASSERT_TRUE(text.starts_with("cascade attention\n")) << text;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    const Problem problem(seed);
    const auto results = problem.Run(text);
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_NO_FATAL_FAILURE(ExpectNear(results->at("Y").values, problem.Expected(true)));
  }
}

TEST(PaperCascades, HaveThePassesOfThePaper) {
  for (const PaperCascade& each : PaperCascades()) {
    SCOPED_TRACE(each.name);
    const auto cascade = Parse(each.text);
    ASSERT_TRUE(cascade.ok()) << cascade.status();
    EXPECT_EQ(Passes(*cascade, "context"), each.passes);
    EXPECT_EQ(Passes(*cascade, "m"), each.passes);
  }
}

}  // namespace
}  // namespace sluice::einsum
