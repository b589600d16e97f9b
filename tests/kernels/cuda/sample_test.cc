#include "kernels/cuda/sample.h"

#include <limits>
#include <numeric>

#include "kernels/cpu/logit_edits.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/sample.h"
#include "tests/kernels/cuda/op_test.h"
#include "tests/support/random_edits.h"

namespace sluice::kernels::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr SampleRequest kGreedy = {.params = {.seed = 1}, .target = -1, .num_top = 0};

struct Outcomes {
  std::vector<SampleOutcome> rows;
  std::vector<std::vector<int32_t>> top_ids;
  std::vector<std::vector<float>> top_logprobs;
};

class SampleTest : public OpTest {
 protected:
  // Samples each row and expects its logits unchanged. logits: [requests.size(), n]
  Outcomes Run(const std::vector<float>& logits, const std::vector<SampleRequest>& requests) {
    const auto rows = static_cast<int32_t>(requests.size());
    const auto n = static_cast<int32_t>(logits.size() / requests.size());
    int32_t max_top = 0;
    for (const SampleRequest& request : requests) max_top = std::max(max_top, request.num_top);
    const SampleArgs args = {.logits = lab_.Put(logits),
                             .n = n,
                             .requests = lab_.Put(requests),
                             .rows = Live(rows),
                             .max_top = max_top,
                             .scratch = lab_.Room<uint64_t>(rows * n),
                             .outcomes = lab_.Room<SampleOutcome>(rows),
                             .top_ids = lab_.Put(std::vector<int32_t>(rows * max_top, -7)),
                             .top_logprobs = lab_.Put(std::vector<float>(rows * max_top, -7))};
    Sample(lab_.stream(), args);
    Outcomes outcomes = {lab_.Get(args.outcomes, rows), {}, {}};
    EXPECT_TRUE(SameBits(lab_.Get(args.logits, logits.size()), logits)) << "the logits changed";
    const auto ids = lab_.Get(args.top_ids, rows * max_top);
    const auto logprobs = lab_.Get(args.top_logprobs, rows * max_top);
    for (int32_t r = 0; r < rows; ++r) {
      outcomes.top_ids.emplace_back(ids.begin() + r * max_top, ids.begin() + (r + 1) * max_top);
      outcomes.top_logprobs.emplace_back(logprobs.begin() + r * max_top,
                                         logprobs.begin() + (r + 1) * max_top);
    }
    lab_.Clear();
    return outcomes;
  }

  // Copies edits to the device for the next Run.
  const DrawEdits* Put(const OwnedEdits& edits) {
    const auto count = [](const auto& list) { return static_cast<int32_t>(list.size()); };
    return lab_.Put<DrawEdits>({{.seen = lab_.Put(edits.seen),
                                 .bias = lab_.Put(edits.bias),
                                 .banned = lab_.Put(edits.banned),
                                 .allowed = lab_.Put(edits.allowed),
                                 .seen_count = count(edits.seen),
                                 .bias_count = count(edits.bias),
                                 .banned_count = count(edits.banned),
                                 .allowed_count = count(edits.allowed),
                                 .repetition = edits.repetition,
                                 .presence = edits.presence,
                                 .frequency = edits.frequency}});
  }

  // Expects the token whose share of the cumulative distribution holds the draw, up to rounding.
  static void ExpectDrawn(std::span<const double> logits, const SampleRequest& request,
                          int32_t token) {
    const reference::Distribution kept = reference::Filter(logits, request.params);
    const double total = std::accumulate(kept.weights.begin(), kept.weights.end(), 0.0);
    const double target = reference::Uniform(request.params) * total, slack = 1e-5 * total;
    double sum = 0;
    for (size_t i = 0; i < kept.ids.size(); ++i) {
      if (kept.ids[i] == token) {
        EXPECT_LE(sum - slack, target);
        EXPECT_GE(sum + kept.weights[i] + slack, target);
        EXPECT_GT(kept.weights[i], 0);
        return;
      }
      sum += kept.weights[i];
    }
    ADD_FAILURE() << "token " << token << " was filtered out";
  }

  SampleRequest RandomRequest(int32_t n) {
    SampleRequest request = kGreedy;
    request.params.seed = random_();
    request.params.token_index = random_();
    request.params.sample = static_cast<uint32_t>(random_());
    request.params.temperature = 0.2f * static_cast<float>(RandomInt(random_, 1, 10));
    if (RandomInt(random_, 0, 1) == 0) request.params.top_k = RandomInt(random_, 1, n);
    if (RandomInt(random_, 0, 1) == 0)
      request.params.top_p = 0.1f * static_cast<float>(RandomInt(random_, 1, 9));
    if (RandomInt(random_, 0, 1) == 0)
      request.params.min_p = 0.02f * static_cast<float>(RandomInt(random_, 0, 9));
    return request;
  }
};

TEST_F(SampleTest, DrawsLikeTheReference) {
  for (int32_t n : {1, 2, 255, 257, 1000}) {
    const int32_t rows = 25;
    const auto logits = RandomValues<float>(random_, rows * n, 8.0f);
    std::vector<SampleRequest> requests;
    for (int32_t r = 0; r < rows; ++r) requests.push_back(RandomRequest(n));
    const Outcomes outcomes = Run(logits, requests);
    for (int32_t r = 0; r < rows; ++r) {
      SCOPED_TRACE(testing::Message() << "row " << r << " of " << n << ", seed " << kSeed);
      const auto row = ToDouble(std::span(logits).subspan(r * n, n));
      ASSERT_GE(outcomes.rows[r].token, 0);
      ASSERT_LT(outcomes.rows[r].token, n);
      ExpectDrawn(row, requests[r], outcomes.rows[r].token);
      EXPECT_NEAR(outcomes.rows[r].logprob, reference::LogSoftmax(row)[outcomes.rows[r].token],
                  1e-5);
    }
  }
}

// Each of few tokens is drawn about as often as its probability says.
TEST_F(SampleTest, FrequenciesFollowTheDistribution) {
  const std::vector<float> row = {0.0f, 1.0f, -kInfinity, 2.0f, 1.0f};
  const int32_t draws = 250;
  std::vector<float> logits;
  std::vector<SampleRequest> requests(draws, kGreedy);
  for (int32_t i = 0; i < draws; ++i) {
    logits.insert(logits.end(), row.begin(), row.end());
    requests[i].params.temperature = 1;
    requests[i].params.token_index = i;
  }
  std::vector<int32_t> counts(row.size());
  for (const SampleOutcome& outcome : Run(logits, requests).rows) ++counts[outcome.token];
  double total = 0;
  for (float x : row) total += std::exp(x);
  for (size_t i = 0; i < row.size(); ++i) {
    const double p = std::exp(row[i]) / total;
    EXPECT_NEAR(counts[i], draws * p, 4.5 * std::sqrt(draws * p * (1 - p))) << "token " << i;
  }
}

TEST_F(SampleTest, GreedyTakesTheFirstOfTheLargest) {
  const std::vector<float> logits = {1,          5,  5,  -3, -0.0f, 0.0f,
                                     -kInfinity, -1, -5, -2, -0.5f, -0.5f};
  const Outcomes outcomes = Run(logits, std::vector<SampleRequest>(3, kGreedy));
  EXPECT_EQ(outcomes.rows[0].token, 1);
  EXPECT_EQ(outcomes.rows[1].token, 0);
  EXPECT_EQ(outcomes.rows[2].token, 2);
}

TEST_F(SampleTest, ScoresTheTarget) {
  const int32_t n = 300;
  auto logits = RandomValues<float>(random_, n, 5.0f);
  SampleRequest request = kGreedy;
  for (float offset : {0.0f, 1e4f, -1e4f}) {
    for (float& x : logits) x += offset;
    request.target = RandomInt(random_, 0, n - 1);
    const Outcomes outcomes = Run(logits, {request});
    EXPECT_EQ(outcomes.rows[0].token, request.target);
    EXPECT_NEAR(outcomes.rows[0].logprob, reference::LogSoftmax(ToDouble(logits))[request.target],
                1e-5);
  }
}

TEST_F(SampleTest, ReportsAnyNumberOfTopTokensWithTiesByIndex) {
  const int32_t n = 700;
  auto logits = RandomValues<float>(random_, 4 * n, 3.0f);
  for (int32_t i = n; i < 3 * n; ++i) logits[i] = std::round(logits[i]);  // many ties
  for (int32_t i = 3 * n; i < 4 * n; ++i) logits[i] = i % 3 == 0 ? -0.0f : 0.0f;
  std::vector<SampleRequest> requests(4, kGreedy);
  for (const std::vector<int32_t>& counts :
       {std::vector<int32_t>{1, 2, 50, 10}, {n, n - 1, 256, 257}, {0, 5, 0, n}}) {
    for (int32_t r = 0; r < 4; ++r) requests[r].num_top = counts[r];
    const Outcomes outcomes = Run(logits, requests);
    for (int32_t r = 0; r < 4; ++r) {
      const auto row = ToDouble(std::span(logits).subspan(r * n, n));
      const std::vector<double> logprobs = reference::LogSoftmax(row);
      std::vector<int32_t> expected = reference::TopK(row, counts[r]);
      for (int32_t i = 0; i < counts[r]; ++i) {
        EXPECT_NEAR(outcomes.top_logprobs[r][i], logprobs[expected[i]], 1e-5);
      }
      expected.resize(outcomes.top_ids[r].size(), -7);
      EXPECT_EQ(outcomes.top_ids[r], expected) << "row " << r << ", " << counts[r];
    }
  }
}

TEST_F(SampleTest, RowsThatAreNotFiniteHaveNoTokenAndWriteNoCandidates) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<SampleRequest> requests(4, kGreedy);
  for (SampleRequest& request : requests) request.num_top = 2;
  requests[1].params.temperature = 1;
  const Outcomes outcomes = Run({1, nan, 0, 2, kInfinity, 1, -kInfinity, -kInfinity, -kInfinity,  //
                                 3, -kInfinity, 2},
                                requests);
  for (int32_t r = 0; r < 3; ++r) {
    EXPECT_EQ(outcomes.rows[r].token, -1);
    EXPECT_TRUE(std::isnan(outcomes.rows[r].logprob));
    EXPECT_EQ(outcomes.top_ids[r], (std::vector<int32_t>{-7, -7}));
  }
  EXPECT_EQ(outcomes.rows[3].token, 0);
  EXPECT_EQ(outcomes.top_ids[3], (std::vector<int32_t>{0, 2}));
}

// Rows with and without edits are side by side. The reported values are those of the unedited row.
TEST_F(SampleTest, DrawsFromEditedLogitsAndReportsTheUnedited) {
  for (int32_t n : {1, 2, 255, 700}) {
    const auto logits = RandomValues<float>(random_, kAllEditKinds * n, 5.0f);
    std::vector<SampleRequest> requests;
    std::vector<std::vector<double>> edited;
    for (unsigned kinds = 0; kinds < kAllEditKinds; ++kinds) {
      SampleRequest request = RandomRequest(n);
      if (kinds % 3 == 0) request.params.temperature = 0;
      request.num_top = std::min(n, 3);
      edited.push_back(ToDouble(std::span(logits).subspan(kinds * n, n)));
      if (random_() % 4 != 0) {
        const OwnedEdits edits =
            RandomEdits(random_, n, kinds, false, RandomInt(random_, 0, n - 1));
        request.edits = Put(edits);
        edited.back() = reference::Edit(edited.back(), edits.view());
      }
      requests.push_back(request);
    }
    const Outcomes outcomes = Run(logits, requests);
    for (int32_t r = 0; r < static_cast<int32_t>(kAllEditKinds); ++r) {
      SCOPED_TRACE(testing::Message() << "edits " << r << " of " << n << ", seed " << kSeed);
      const auto row = ToDouble(std::span(logits).subspan(r * n, n));
      const int32_t token = outcomes.rows[r].token;
      ASSERT_GE(token, 0);
      ASSERT_LT(token, n);
      if (requests[r].params.temperature == 0) {
        EXPECT_EQ(token, reference::TopK(edited[r], 1)[0]);
      } else {
        ExpectDrawn(edited[r], requests[r], token);
      }
      EXPECT_NEAR(outcomes.rows[r].logprob, reference::LogSoftmax(row)[token], 1e-5);
      std::vector<int32_t> expected = reference::TopK(row, requests[r].num_top);
      EXPECT_EQ(outcomes.top_ids[r], expected);
    }
  }
}

// Token 0 has the edited logit of token 1 as the CPU computes it, so that the two tie, or the next
// lower one, so that token 1 wins.
TEST_F(SampleTest, EditedLogitsHaveTheBitsOfTheCpu) {
  std::vector<float> logits;
  std::vector<SampleRequest> requests;
  for (int32_t i = 0; i < 200; ++i) {
    OwnedEdits edits = RandomEdits(random_, 1, kRepetition | kPresence | kFrequency, false, 0);
    edits.seen = {{1, RandomInt(random_, 0, 5)}};
    edits.bias = {{1, RandomValues<float>(random_, 1, 2.0f)[0]}};
    const float x = RandomValues<float>(random_, 1, 9.0f)[0];
    float row[] = {0, x}, saved[2];
    ASSERT_TRUE(kernels::ApplyEdits(edits.view(), row, saved));
    logits.insert(logits.end(), {row[1], x, std::nextafter(row[1], -kInfinity), x});
    requests.insert(requests.end(), 2, kGreedy);
    requests[2 * i].edits = requests[2 * i + 1].edits = Put(edits);
  }
  const Outcomes outcomes = Run(logits, requests);
  for (size_t r = 0; r < requests.size(); ++r) {
    EXPECT_EQ(outcomes.rows[r].token, r % 2) << "row " << r << ", seed " << kSeed;
  }
}

TEST_F(SampleTest, RowsThatAreNotFiniteAfterEditsHaveNoToken) {
  const std::vector<float> row = {1.0f, 3.0f, -kInfinity, 2.0f};
  OwnedEdits banned, biased, allowed, dead, overflow, hidden, nan;
  banned.banned = {0, 1, 3};
  biased.bias = {{0, -kInfinity}, {1, -kInfinity}, {3, -kInfinity}};
  allowed.allowed = {1, 3};
  allowed.banned = {1};
  allowed.bias = {{3, -kInfinity}};
  dead.allowed = {2};
  overflow.bias = {{1, 3e38f}};
  overflow.seen = {{1, 1}};
  overflow.presence = -3e38f;
  hidden = overflow;
  hidden.banned = {1};
  hidden.allowed = {0};
  nan.seen = {{2, 2}};
  nan.frequency = -3e38f;  // -inf + inf
  std::vector<float> logits;
  std::vector<SampleRequest> requests;
  for (const OwnedEdits& edits : {banned, biased, allowed, dead, overflow, hidden, nan}) {
    for (const auto& [temperature, top_k] : {std::pair(0.0f, 0), {1.0f, 0}, {1.0f, 2}}) {
      SampleRequest request = kGreedy;
      request.params.temperature = temperature;
      request.params.top_k = top_k;
      request.num_top = 2;
      request.edits = Put(edits);
      requests.push_back(request);
      logits.insert(logits.end(), row.begin(), row.end());
    }
  }
  const Outcomes outcomes = Run(logits, requests);
  for (size_t r = 0; r < requests.size(); ++r) {
    EXPECT_EQ(outcomes.rows[r].token, -1) << "row " << r;
    EXPECT_TRUE(std::isnan(outcomes.rows[r].logprob)) << "row " << r;
    EXPECT_EQ(outcomes.top_ids[r], (std::vector<int32_t>{1, 3})) << "those before the edits";
  }
}

// A seeded request draws the same token whatever the other rows and its place are.
TEST_F(SampleTest, ARowsTokenDoesNotDependOnItsBatch) {
  const int32_t n = 100, rows = 12;
  const auto logits = RandomValues<float>(random_, rows * n, 2.0f);
  std::vector<SampleRequest> requests;
  for (int32_t r = 0; r < rows; ++r) requests.push_back(RandomRequest(n));
  const Outcomes together = Run(logits, requests);
  for (int32_t r = 0; r < rows; ++r) {
    const std::vector<float> row(&logits[r * n], &logits[r * n] + n);
    const Outcomes alone = Run(row, {requests[r]});
    EXPECT_TRUE(SameBits(alone.rows, {together.rows[r]})) << "row " << r;
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
