#include "kernels/cuda/sample.h"

#include <numeric>

#include "kernels/cpu/logit_edits.h"
#include "tests/kernels/common/draw_bodies.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

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
    constexpr int32_t kFirst = 3;
    const auto rows = static_cast<int32_t>(requests.size());
    const auto n = static_cast<int32_t>(logits.size() / requests.size());
    int32_t max_top = 0;
    for (const SampleRequest& request : requests) max_top = std::max(max_top, request.num_top);
    // Rows begin at aligned addresses; the values between them are never drawn.
    const int32_t stride = (n + 7) / 8 * 8;
    std::vector<float> apart(rows * stride, kInfinity);
    for (int32_t r = 0; r < rows; ++r) {
      std::copy_n(logits.begin() + r * n, n, apart.begin() + r * stride);
    }
    const SampleArgs args = {
        .logits = lab_.Put(apart),
        .n = n,
        .stride = stride,
        .requests = lab_.Put(requests),
        .rows = Live(rows),
        .max_top = max_top,
        .scratch = lab_.Room<uint64_t>(rows * n),
        .first = lab_.Put<int32_t>({kFirst}),
        .outcomes = lab_.Room<SampleOutcome>(kFirst + rows),
        .top_ids = lab_.Put(std::vector<int32_t>(rows * max_top, kUnwrittenId)),
        .top_logprobs = lab_.Put(std::vector<float>(rows * max_top, kPoison)),
        .top_scores = lab_.Put(std::vector<float>(rows * max_top, kPoison))};
    Sample(lab_.stream(), args);
    Outcomes outcomes = {lab_.Get(args.outcomes + kFirst, rows), {}, {}};
    EXPECT_TRUE(SameBits(lab_.Get(args.logits, apart.size()), apart)) << "the logits changed";
    const auto ids = lab_.Get(args.top_ids, rows * max_top);
    const auto logprobs = lab_.Get(args.top_logprobs, rows * max_top);
    const auto scores = lab_.Get(args.top_scores, rows * max_top);
    for (int32_t r = 0; r < rows; ++r) {
      for (int32_t i = r * max_top; i < (r + 1) * max_top && ids[i] != kUnwrittenId; ++i) {
        EXPECT_EQ(scores[i], logits[r * n + ids[i]]);
      }
      outcomes.top_ids.emplace_back(ids.begin() + r * max_top, ids.begin() + (r + 1) * max_top);
      outcomes.top_logprobs.emplace_back(logprobs.begin() + r * max_top,
                                         logprobs.begin() + (r + 1) * max_top);
    }
    lab_.Clear();
    return outcomes;
  }

  std::vector<DrawResult> RunCases(const std::vector<DrawCase>& cases) {
    std::vector<float> logits;
    std::vector<SampleRequest> requests;
    for (const DrawCase& c : cases) {
      logits.insert(logits.end(), c.logits.begin(), c.logits.end());
      requests.push_back({.params = c.params,
                          .target = -1,
                          .num_top = c.num_top,
                          .edits = c.edited ? Put(c.edits) : nullptr});
    }
    Outcomes outcomes = Run(logits, requests);
    std::vector<DrawResult> results;
    for (size_t r = 0; r < cases.size(); ++r) {
      std::vector<int32_t>& ids = outcomes.top_ids[r];
      for (size_t i = cases[r].num_top; i < ids.size(); ++i) EXPECT_EQ(ids[i], kUnwrittenId);
      ids.resize(cases[r].num_top);
      results.push_back(
          {outcomes.rows[r].token, outcomes.rows[r].logprob, ids, outcomes.top_logprobs[r]});
    }
    return results;
  }

  auto CaseRunner() {
    return [this](const std::vector<DrawCase>& cases) { return RunCases(cases); };
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

  // Expects the token whose share of the cumulative distribution contains the draw, up to rounding.
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
    if (RandomInt(random_, 0, 2) == 0)
      request.params.typical_p = 0.1f * static_cast<float>(RandomInt(random_, 1, 9));
    return request;
  }
};

// The rows have more than 1,024 tokens. Some nuclei and top_k fit in shared memory, others do not.
TEST_F(SampleTest, DrawsLikeTheReference) {
  for (int32_t n : {1, 2, 255, 257, 1000, 1025, 2500}) {
    const int32_t rows = 25;
    const auto logits = RandomValues<float>(random_, rows * n, n > 1024 ? 3.0f : 8.0f);
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

// Half of the tokens tie, so that the ends of top_k and top_p are among equal tokens.
TEST_F(SampleTest, DrawsAmongTiesLikeTheReference) {
  const int32_t n = 2100, rows = 12;
  std::vector<float> logits = RandomValues<float>(random_, rows * n, 1.0f);
  for (size_t i = 0; i < logits.size(); i += 2) logits[i] = 0.25f;
  std::vector<SampleRequest> requests;
  for (int32_t r = 0; r < rows; ++r) {
    SampleRequest request = kGreedy;
    request.params.seed = random_();
    request.params.temperature = 1;
    if (r % 3 != 1) request.params.top_p = 0.1f * static_cast<float>(RandomInt(random_, 1, 9));
    if (r % 3 != 0) request.params.top_k = RandomInt(random_, 1, n);
    requests.push_back(request);
  }
  const Outcomes outcomes = Run(logits, requests);
  for (int32_t r = 0; r < rows; ++r) {
    SCOPED_TRACE(testing::Message() << "row " << r << ", seed " << kSeed);
    ExpectDrawn(ToDouble(std::span(logits).subspan(r * n, n)), requests[r], outcomes.rows[r].token);
  }
}

// The segments of such a row are longer than the part that a block reads at a time.
TEST_F(SampleTest, DrawsFromALargeVocabularyLikeTheReference) {
  const int32_t n = 70001, rows = 4;
  const auto logits = RandomValues<float>(random_, rows * n, 3.0f);
  std::vector<SampleRequest> requests(rows, kGreedy);
  for (SampleRequest& request : requests) {
    request.params.seed = random_();
    request.params.temperature = 1;
  }
  const Outcomes outcomes = Run(logits, requests);
  for (int32_t r = 0; r < rows; ++r) {
    SCOPED_TRACE(testing::Message() << "row " << r << ", seed " << kSeed);
    ExpectDrawn(ToDouble(std::span(logits).subspan(r * n, n)), requests[r], outcomes.rows[r].token);
  }
}

// Returns the token by the definition, computed one element after another: weights are integers, so
// there is exactly one right token. typical_p must be off.
int32_t ExactToken(std::span<const float> row, const SampleParams& params) {
  constexpr float kUnits = 1099511627776.0f;  // 2^40
  const float largest = *std::ranges::max_element(row);
  const auto weight_of = [&](int32_t i) {
    const float weight = expf((row[i] - largest) / params.temperature);
    return weight < params.min_p ? 0 : static_cast<uint64_t>(weight * kUnits);
  };
  const auto n = static_cast<int32_t>(row.size());
  const bool top_k = params.top_k > 0 && params.top_k < n;
  std::vector<int32_t> kept(n);
  std::iota(kept.begin(), kept.end(), 0);
  if (top_k || params.top_p < 1) {
    std::ranges::stable_sort(kept, [&](int32_t a, int32_t b) { return row[a] > row[b]; });
  }
  if (top_k) kept.resize(params.top_k);
  if (params.top_p < 1) {
    const auto all = [&](int32_t i) {
      return static_cast<uint64_t>(expf((row[i] - largest) / params.temperature) * kUnits);
    };
    uint64_t total = 0, sum = 0;
    for (const int32_t i : kept) total += all(i);
    const auto nucleus = std::clamp<uint64_t>(
        static_cast<uint64_t>(std::ceil(params.top_p * static_cast<double>(total))), 1, total);
    size_t count = 0;
    while (sum < nucleus) sum += all(kept[count++]);
    kept.resize(count);
  }
  uint64_t total = 0, sum = 0;
  for (const int32_t i : kept) total += weight_of(i);
  const auto target = std::min(
      static_cast<uint64_t>(reference::Uniform(params) * static_cast<double>(total)), total - 1);
  for (const int32_t i : kept) {
    sum += weight_of(i);
    if (sum > target) return i;
  }
  return -1;
}

// Rows of every form: short and wide ones are copied to shared memory, long ones are not. Their
// values are random, peaked, uniform, or have ties. A GPU's exponentials differ from the host's.
TEST_F(SampleTest, DrawsExactlyTheTokenOfTheIntegerWeights) {
  if (!Emulated()) GTEST_SKIP();
  for (const int32_t n : {77, 8192, 8193, 60000}) {
    std::vector<float> logits;
    std::vector<SampleRequest> requests;
    std::vector<std::vector<float>> rows;
    for (int32_t kind = 0; kind < 4; ++kind) {
      std::vector<float> row = RandomValues<float>(random_, n, 4.0f);
      if (kind == 1) row[RandomInt(random_, 0, n - 1)] = 16;
      if (kind == 2) row.assign(n, 0.5f);
      if (kind == 3) {
        for (float& x : row) x = std::round(2 * x) / 2;
      }
      std::vector<SampleParams> draws = {{.top_p = 0.9f}, {.top_k = n - 5, .top_p = 0.6f}};
      if (n < 1000) {
        draws.insert(draws.end(),
                     {{}, {.min_p = 0.3f}, {.top_k = 50}, {.top_k = 50, .top_p = 0.5f}});
      } else {
        draws.push_back(kind % 2 == 0 ? SampleParams{} : SampleParams{.top_k = 50, .min_p = 0.1f});
      }
      for (SampleParams params : draws) {
        params.temperature = 0.25f * static_cast<float>(RandomInt(random_, 2, 6));
        params.seed = random_();
        requests.push_back({.params = params, .target = -1, .num_top = 0});
        rows.push_back(row);
        logits.insert(logits.end(), row.begin(), row.end());
      }
    }
    const Outcomes outcomes = Run(logits, requests);
    for (size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(outcomes.rows[r].token, ExactToken(rows[r], requests[r].params))
          << "row " << r << " of " << n << ", seed " << kSeed;
    }
  }
}

// There are few tokens. Each is drawn about as frequently as its probability requires.
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

TEST_F(SampleTest, GreedyIgnoresTheFiltersAndTakesTheFirstOfTheLargest) {
  ExpectGreedyTakesTheFirstOfTheLargest(CaseRunner());
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
  ExpectCandidatesEqualReference(CaseRunner(), random_, 1e-5);
}

TEST_F(SampleTest, RowsThatAreNotFiniteHaveNoTokenAndWriteNoCandidates) {
  ExpectRowsThatAreNotFiniteHaveNoToken(CaseRunner());
}

// Rows with and without edits are mixed. The reported values belong to the unedited row.
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

// The logit of token 0 is the edited logit of token 1 as the CPU computes it, so that the two tie,
// or the next lower number, so that token 1 wins.
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
  ExpectRowsThatAreNotFiniteAfterEditsHaveNoToken(CaseRunner());
}

// A seeded request draws the same token for any other rows and at any place.
TEST_F(SampleTest, ARowsTokenDoesNotDependOnItsBatch) {
  for (int32_t n : {100, Emulated() ? 1030 : 32768}) {
    const int32_t rows = 12;
    const auto logits = RandomValues<float>(random_, rows * n, 2.0f);
    std::vector<SampleRequest> requests;
    for (int32_t r = 0; r < rows; ++r) requests.push_back(RandomRequest(n));
    const Outcomes together = Run(logits, requests);
    for (int32_t r = 0; r < rows; ++r) {
      const std::vector<float> row(&logits[r * n], &logits[r * n] + n);
      const Outcomes alone = Run(row, {requests[r]});
      EXPECT_TRUE(SameBits(alone.rows, {together.rows[r]})) << "row " << r << " of " << n;
    }
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
