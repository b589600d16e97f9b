// The tests of sampling that every backend runs. A backend gives a function
//   std::vector<DrawResult> run(const std::vector<DrawCase>& cases)
// for rows of equal size.
#pragma once

#include "kernels/reference/activation.h"
#include "kernels/reference/sample.h"
#include "tests/kernels/common/values.h"
#include "tests/support/random_edits.h"

namespace sluice::kernels {

// A row of logits and a draw from it.
struct DrawCase {
  std::vector<float> logits;
  SampleParams params = {};
  int32_t num_top = 0;
  OwnedEdits edits = {};
  bool edited = false;  // whether `edits` apply
};

inline constexpr int32_t kUnwrittenId = -7;

struct DrawResult {
  int32_t token;
  float logprob;
  std::vector<int32_t> top_ids;     // [num_top], kUnwrittenId if not written
  std::vector<float> top_logprobs;  // [num_top] or more
};

// Returns greedy parameters, and draws from all tokens and from two.
inline std::vector<SampleParams> GreedyAndDraws() {
  return {
      {}, {.temperature = 1}, {.temperature = 1, .top_k = 2}, {.temperature = 1, .top_p = 0.5f}};
}

template <typename Run>
void ExpectGreedyTakesTheFirstOfTheLargest(const Run& run) {
  const SampleParams filters = {.top_k = 3, .top_p = 0.1f, .min_p = 1.0f};
  const std::vector<DrawCase> cases = {{{1, 5, 5, -3}, filters},
                                       {{-0.0f, 0.0f, -kInfinity, -1}, filters},
                                       {{-5, -2, -0.5f, -0.5f}, filters}};
  const std::vector<DrawResult> results = run(cases);
  EXPECT_EQ(results[0].token, 1);
  EXPECT_EQ(results[1].token, 0);
  EXPECT_EQ(results[2].token, 2);
}

// Rows of 700 logits: without ties, with many ties, and with only zeros of both signs.
template <typename Run>
void ExpectCandidatesEqualReference(const Run& run, std::mt19937_64& random, double tolerance) {
  const int32_t n = 700;
  std::vector<std::vector<float>> rows(4);
  for (std::vector<float>& row : rows) row = RandomValues<float>(random, n, 3.0f);
  for (const int r : {1, 2}) {
    for (float& x : rows[r]) x = std::round(x);
  }
  for (int32_t i = 0; i < n; ++i) rows[3][i] = i % 3 == 0 ? -0.0f : 0.0f;
  for (const std::vector<int32_t>& counts :
       {std::vector<int32_t>{1, 2, 50, 10}, {n, n - 1, 256, 257}, {0, 5, 0, n}}) {
    std::vector<DrawCase> cases;
    for (size_t r = 0; r < rows.size(); ++r) {
      cases.push_back({rows[r], {.temperature = r % 2 == 0 ? 0.7f : 0.0f, .top_k = 2}, counts[r]});
    }
    const std::vector<DrawResult> results = run(cases);
    for (size_t r = 0; r < rows.size(); ++r) {
      SCOPED_TRACE(testing::Message() << "row " << r << ", " << counts[r] << " candidates");
      const std::vector<double> row = ToDouble(rows[r]), logprobs = reference::LogSoftmax(row);
      ASSERT_EQ(results[r].top_ids, reference::TopK(row, counts[r]));
      for (int32_t i = 0; i < counts[r]; ++i) {
        EXPECT_NEAR(results[r].top_logprobs[i], logprobs[results[r].top_ids[i]], tolerance);
      }
    }
  }
}

template <typename Run>
void ExpectRowsThatAreNotFiniteHaveNoToken(const Run& run) {
  for (const int64_t n : {3, 2000}) {
    std::vector<std::vector<float>> rows(4, std::vector<float>(n, 1.0f));
    rows[0][1] = kPoison;
    rows[1][2] = kInfinity;
    rows[2].assign(n, -kInfinity);
    rows[3].assign(n, kPoison);
    std::vector<DrawCase> cases;
    for (const std::vector<float>& row : rows) {
      for (const SampleParams& params : GreedyAndDraws()) cases.push_back({row, params, 2});
    }
    cases.push_back({std::vector<float>(n, 1.0f), {}, 2});
    const std::vector<DrawResult> results = run(cases);
    for (size_t i = 0; i + 1 < cases.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "case " << i << " of rows of " << n);
      EXPECT_EQ(results[i].token, -1);
      EXPECT_TRUE(std::isnan(results[i].logprob));
      EXPECT_EQ(results[i].top_ids, std::vector<int32_t>(2, kUnwrittenId));
    }
    EXPECT_EQ(results.back().token, 0);
    EXPECT_EQ(results.back().top_ids, (std::vector<int32_t>{0, 1}));
  }
}

// Covers edits that leave no token and edits that overflow, even in a token that is banned later.
// The candidates are computed from the unedited row.
template <typename Run>
void ExpectRowsThatAreNotFiniteAfterEditsHaveNoToken(const Run& run) {
  OwnedEdits banned, biased, allowed, dead, repetition, presence, bias, hidden, nan;
  banned.banned = {0, 1, 3};
  biased.bias = {{0, -kInfinity}, {1, -kInfinity}, {3, -kInfinity}};
  allowed.allowed = {1, 3};
  allowed.banned = {1};
  allowed.bias = {{3, -kInfinity}};
  dead.allowed = {2};
  repetition.seen = presence.seen = {{1, 2}};
  repetition.repetition = 1e-39f;
  presence.presence = presence.frequency = -3e38f;
  bias.seen = {{1, 1}};
  bias.presence = -3e38f;
  bias.bias = {{1, 3e38f}};
  hidden = bias;
  hidden.banned = {1};
  hidden.allowed = {0};
  nan.seen = {{2, 2}};
  nan.frequency = -3e38f;  // -inf + inf
  std::vector<DrawCase> cases;
  for (const OwnedEdits& edits :
       {banned, biased, allowed, dead, repetition, presence, bias, hidden, nan}) {
    for (const SampleParams& params : GreedyAndDraws()) {
      cases.push_back({{1.0f, 3.0f, -kInfinity, 2.0f}, params, 2, edits, true});
    }
  }
  const std::vector<DrawResult> results = run(cases);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "case " << i);
    EXPECT_EQ(results[i].token, -1);
    EXPECT_TRUE(std::isnan(results[i].logprob));
    EXPECT_EQ(results[i].top_ids, (std::vector<int32_t>{1, 3}));
  }
}

}  // namespace sluice::kernels
