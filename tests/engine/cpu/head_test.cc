// Tests the outputs that a replay computes after the last norm: states, logits with bias and soft
// cap, exclusions and edits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/ceil_div.h"
#include "engine/model/output_heads.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/dtype.h"
#include "kernels/reference/sample.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/random_edits.h"

namespace sluice::testing {
namespace {

constexpr int32_t kTokens = 64;

// Runs one sequence in one step, or in steps of `chunk` positions if that is not 0.
class Replayer {
 public:
  explicit Replayer(const ModelConfig& config, int32_t most_tokens = kTokens)
      : bucket_{most_tokens, 2},
        model_(RandomModel(config, 21)),
        runner_(model_, {.threads = 2, .profile = F32Profiles().front()}, bucket_),
        batch_(most_tokens, 2, static_cast<int32_t>(config.max_positions), kernels::kPageTokens),
        pages_(CeilDiv(most_tokens, kernels::kPageTokens)) {
    std::iota(pages_.begin(), pages_.end(), 0);
  }

  const Model& model() const { return *model_; }

  void Replay(const std::vector<int32_t>& tokens, int32_t first, int32_t count,
              std::vector<SampledRow> sampled, std::vector<StateSum> states) {
    const StepSequence step{first, count, tokens.data() + first, pages_.data()};
    batch_.Assign({&step, 1}, sampled, runner_.executable().row_order(), states);
    const auto plan = runner_.executable().Prepare(bucket_);
    ASSERT_TRUE(plan.ok());
    ASSERT_TRUE(runner_.executable().Replay(**plan, runner_.slot(), batch_).ok());
  }

  // Returns the states of all positions, [length, hidden].
  std::vector<double> States(const std::vector<int32_t>& tokens, int32_t chunk) {
    const auto width = static_cast<size_t>(model_->config.hidden_size);
    const auto length = static_cast<int32_t>(tokens.size());
    std::vector<double> all(tokens.size() * width, NAN);
    for (int32_t first = 0; first < length; first += chunk) {
      const int32_t count = std::min(chunk, length - first);
      std::vector<StateSum> rows;
      for (int32_t i = first; i < first + count; ++i) {
        rows.push_back({0, i, all.data() + static_cast<size_t>(i) * width});
      }
      Replay(tokens, first, count, {}, rows);
    }
    return all;
  }

 private:
  const Bucket bucket_;
  std::shared_ptr<const Model> model_;
  Runner runner_;
  StepBatch batch_;
  std::vector<int32_t> pages_;
};

ModelConfig Capped() {
  ModelConfig config = TinySluiceConfig(2);
  config.head_bias = true;
  config.logit_soft_cap = 2.0f;
  return config;
}

TEST(HeadTest, StatesHaveTheSameBitsHoweverThePromptIsCut) {
  std::mt19937_64 random(31);
  for (const bool position_wise : {false, true}) {
    ModelConfig config = TinyConfig(2);
    if (position_wise) {
      config.position_wise.layers[0][0] = true;
      config.position_wise.max_positions = config.max_positions;
    }
    Replayer replayer(config);
    const std::vector<int32_t> tokens = RandomTokens(random, 23, config.vocab_size);
    const std::vector<double> whole = replayer.States(tokens, 23);
    EXPECT_TRUE(std::all_of(whole.begin(), whole.end(), [](double x) { return std::isfinite(x); }));
    for (const int32_t chunk : {1, 5, 16}) EXPECT_EQ(replayer.States(tokens, chunk), whole);
  }
}

TEST(HeadTest, SumsAndMaximaMatchTheStates) {
  std::mt19937_64 random(33);
  const ModelConfig config = TinyConfig(2);
  Replayer replayer(config);
  const std::vector<int32_t> tokens = RandomTokens(random, 23, config.vocab_size);
  const auto width = static_cast<size_t>(config.hidden_size);
  const std::vector<double> states = replayer.States(tokens, 23);
  std::vector<double> sum(width), largest(width);
  replayer.Replay(tokens, 0, 23, {},
                  {{0, 3, sum.data(), 20}, {0, 3, largest.data(), 20, /*largest=*/true}});
  for (size_t j = 0; j < width; ++j) {
    double total = 0, most = -INFINITY;
    for (size_t i = 3; i < 23; ++i) {
      total += states[i * width + j];
      most = std::max(most, states[i * width + j]);
    }
    EXPECT_EQ(sum[j], total);
    EXPECT_EQ(largest[j], most);
  }
}

// More positions than logits that are in memory at a time; a second run changes nothing.
TEST(HeadTest, PeaksAreTheLargestLogitsOverPositions) {
  std::mt19937_64 random(33);
  constexpr int32_t kLength = 39;
  for (const ModelConfig& config : {TinyConfig(2), Capped()}) {
    Replayer replayer(config);
    const std::vector<int32_t> tokens = RandomTokens(random, kLength, config.vocab_size);
    const auto vocab = static_cast<size_t>(config.vocab_size);
    std::vector<float> logits(kLength * vocab), expected(vocab, -INFINITY), peaks = expected;
    std::vector<kernels::SampleResult> results(kLength);
    std::vector<SampledRow> all, raised;
    for (int32_t i = 0; i < kLength; ++i) {
      all.push_back({.position = i, .logits = &logits[i * vocab], .result = &results[i]});
      raised.push_back({.position = i, .target = 0, .peaks = peaks.data(), .result = &results[i]});
    }
    replayer.Replay(tokens, 0, kLength, all, {});
    for (size_t i = 0; i < logits.size(); ++i) {
      expected[i % vocab] = std::max(expected[i % vocab], logits[i]);
    }
    for (int run = 0; run < 2; ++run) {
      replayer.Replay(tokens, 0, kLength, raised, {});
      EXPECT_EQ(peaks, expected);
    }
  }
}

TEST(HeadTest, LogitsAreTheStateTimesTheHeadWithBiasAndSoftCap) {
  std::mt19937_64 random(32);
  for (const ModelConfig& config : {TinyConfig(2), Capped()}) {
    Replayer replayer(config);
    const std::vector<int32_t> tokens = RandomTokens(random, 9, config.vocab_size);
    std::vector<double> state(static_cast<size_t>(config.hidden_size));
    std::vector<float> logits(static_cast<size_t>(config.vocab_size));
    kernels::SampleResult result;
    replayer.Replay(tokens, 0, 9, {{.position = 8, .logits = logits.data(), .result = &result}},
                    {{0, 8, state.data()}});
    ASSERT_TRUE(replayer.model().items.has_value());
    for (int32_t id = 0; id < config.vocab_size; ++id) {
      ASSERT_NEAR(logits[static_cast<size_t>(id)], replayer.model().items->Score(id, state), 1e-5);
    }
    const float most = *std::max_element(logits.begin(), logits.end());
    EXPECT_EQ(result.token, std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (config.logit_soft_cap != 0) {
      EXPECT_LT(most, config.logit_soft_cap);
    }
  }
}

TEST(HeadTest, ExcludedTokensAreNeitherDrawnNorScoredNorListed) {
  std::mt19937_64 random(33);
  const ModelConfig config = Capped();
  Replayer replayer(config);
  const std::vector<int32_t> tokens = RandomTokens(random, 9, config.vocab_size);
  constexpr int kTop = 4;
  int32_t plain_ids[kTop], ids[kTop];
  float logprobs[kTop], scores[kTop];
  std::vector<float> plain(static_cast<size_t>(config.vocab_size)), logits = plain;
  kernels::SampleResult result;
  replayer.Replay(tokens, 0, 9,
                  {{.position = 8,
                    .num_top = kTop,
                    .top_ids = plain_ids,
                    .top_logprobs = logprobs,
                    .logits = plain.data(),
                    .result = &result}},
                  {});
  std::vector<int32_t> excluded = {plain_ids[0], plain_ids[2]};
  std::sort(excluded.begin(), excluded.end());
  // A row of the same step without exclusions gets its usual result.
  kernels::SampleResult neighbour;
  replayer.Replay(tokens, 0, 9,
                  {{.position = 8,
                    .excluded = excluded,
                    .num_top = kTop,
                    .top_ids = ids,
                    .top_logprobs = logprobs,
                    .top_scores = scores,
                    .logits = logits.data(),
                    .result = &result},
                   {.position = 8, .result = &neighbour}},
                  {});
  EXPECT_EQ(neighbour.token, plain_ids[0]);
  EXPECT_EQ(result.token, plain_ids[1]);
  EXPECT_EQ(ids[0], plain_ids[1]);
  EXPECT_EQ(ids[1], plain_ids[3]);
  double sum = 0;
  for (size_t id = 0; id < plain.size(); ++id) {
    const bool gone =
        std::binary_search(excluded.begin(), excluded.end(), static_cast<int32_t>(id));
    EXPECT_EQ(logits[id], gone ? -INFINITY : plain[id]);
    if (!gone) sum += std::exp(double{plain[id]});
  }
  for (int k = 0; k < kTop; ++k) {
    EXPECT_EQ(scores[k], plain[static_cast<size_t>(ids[k])]);
    EXPECT_NEAR(logprobs[k], scores[k] - std::log(sum), 1e-5);
  }
}

TEST(HeadTest, EditsChangeTheDrawButNoReportedValue) {
  std::mt19937_64 random(34);
  const ModelConfig config = Capped();
  Replayer replayer(config);
  const std::vector<int32_t> tokens = RandomTokens(random, 9, config.vocab_size);
  constexpr int kTop = 3;
  std::vector<float> logits[2];
  for (auto& row : logits) row.resize(static_cast<size_t>(config.vocab_size));
  kernels::SampleResult plain, edited, scored, scored_too;
  int32_t ids[2][kTop];
  float logprobs[2][kTop];
  replayer.Replay(tokens, 0, 9, {{.position = 8, .result = &plain}}, {});
  const int32_t banned[] = {plain.token};
  const kernels::LogitEdits edits = {.banned = banned};
  replayer.Replay(tokens, 0, 9,
                  {{.position = 8,
                    .edits = &edits,
                    .num_top = kTop,
                    .top_ids = ids[0],
                    .top_logprobs = logprobs[0],
                    .logits = logits[0].data(),
                    .result = &edited},
                   {.position = 8,
                    .num_top = kTop,
                    .top_ids = ids[1],
                    .top_logprobs = logprobs[1],
                    .logits = logits[1].data(),
                    .result = &plain},
                   {.position = 8, .target = banned[0], .edits = &edits, .result = &scored},
                   {.position = 8, .target = banned[0], .result = &scored_too}},
                  {});
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(ids[0][0], plain.token);
  EXPECT_EQ(edited.token, ids[1][1]) << "the next best";
  EXPECT_EQ(edited.logprob, logprobs[1][1]);
  for (int i = 0; i < kTop; ++i) {
    EXPECT_EQ(ids[0][i], ids[1][i]);
    EXPECT_EQ(logprobs[0][i], logprobs[1][i]);
  }
  EXPECT_EQ(scored.token, banned[0]);
  EXPECT_EQ(scored.logprob, scored_too.logprob);
}

// The step has more rows, with longer lists, than the head computes at a time.
TEST(HeadTest, EveryRowIsDrawnFromItsOwnEditsAndExclusions) {
  constexpr uint64_t kSeed = 35;
  std::mt19937_64 random(kSeed);
  const ModelConfig config = Capped();
  const int64_t vocab = config.vocab_size;
  Replayer replayer(config);
  const std::vector<int32_t> tokens = RandomTokens(random, 9, vocab);
  constexpr size_t kRows = 66;  // Replayer's batch holds this many
  std::vector<float> logits(static_cast<size_t>(vocab));
  std::vector<std::vector<int32_t>> excluded(kRows);
  std::vector<kernels::OwnedEdits> owned(kRows);
  std::vector<kernels::LogitEdits> edits(kRows);
  std::vector<kernels::SampleResult> results(kRows), again(kRows);
  std::vector<SampledRow> rows;
  for (size_t r = 0; r < kRows; ++r) {
    const auto spared = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
    const auto kinds = static_cast<unsigned>(random() % kernels::kAllEditKinds);
    owned[r] = kernels::RandomEdits(random, vocab, kinds, false, spared);
    edits[r] = owned[r].view();
    excluded[r] = kernels::DistinctTokens(random, vocab, r % 2 == 0 ? 0 : vocab / 2);
    std::erase(excluded[r], spared);
    rows.push_back({.position = 8,
                    .params = {.temperature = r % 3 == 0 ? 0.0f : 1.5f,
                               .top_k = r % 4 == 0 ? 5 : 0,
                               .top_p = r % 5 == 0 ? 0.7f : 1.0f,
                               .seed = random()},
                    .edits = r % 8 == 7 ? nullptr : &edits[r],
                    .excluded = excluded[r],
                    .result = &results[r]});
  }
  replayer.Replay(tokens, 0, 9, rows, {});
  kernels::SampleResult plain;
  replayer.Replay(tokens, 0, 9, {{.position = 8, .logits = logits.data(), .result = &plain}}, {});
  for (size_t r = 0; r < kRows; ++r) {
    SCOPED_TRACE(::testing::Message() << "row " << r << ", seed " << kSeed);
    std::vector<double> row(logits.begin(), logits.end());
    for (const int32_t token : excluded[r]) row[static_cast<size_t>(token)] = -INFINITY;
    double sum = 0;
    for (const double x : row) sum += std::exp(x);
    const auto drawn_from =
        rows[r].edits == nullptr ? row : kernels::reference::Edit(row, edits[r]);
    EXPECT_EQ(results[r].token, kernels::reference::Sample(drawn_from, rows[r].params));
    EXPECT_NEAR(results[r].logprob, row[static_cast<size_t>(results[r].token)] - std::log(sum),
                1e-5);
    rows[r].result = &again[r];
    if (r % 11 == 0) {
      replayer.Replay(tokens, 0, 9, {rows[r]}, {});
      EXPECT_EQ(again[r].token, results[r].token) << "alone";
      EXPECT_EQ(again[r].logprob, results[r].logprob) << "alone";
    }
  }
}

// A row of a step that samples many rows, with everything that a row may report.
struct Reported {
  kernels::SampleResult result{};
  std::vector<int32_t> top_ids;
  std::vector<float> top_logprobs, top_scores, logits;

  bool operator==(const Reported& other) const {
    return result.token == other.result.token && result.logprob == other.result.logprob &&
           top_ids == other.top_ids && top_logprobs == other.top_logprobs &&
           top_scores == other.top_scores && logits == other.logits;
  }
};

// Scored and drawn rows with and without candidates, logits, edits and exclusions are neighbours.
// Long runs of them request only a token.
TEST(HeadTest, ARowsAnswersDoNotDependOnOtherRows) {
  constexpr uint64_t kSeed = 77;
  std::mt19937_64 random(kSeed);
  ModelConfig config = Capped();
  config.max_positions = 320;
  const int32_t vocab = config.vocab_size, length = 300;
  Replayer replayer(config, length);
  const std::vector<int32_t> tokens = RandomTokens(random, length, vocab);
  std::vector<Reported> together(length), alone(length);
  std::vector<kernels::OwnedEdits> owned(length);
  std::vector<kernels::LogitEdits> edits(length);
  std::vector<std::vector<int32_t>> excluded(length);
  std::vector<SampledRow> rows(length);
  for (int32_t r = 0; r < length; ++r) {
    SampledRow& row = rows[r];
    row.position = r;
    row.params = {.temperature = r % 3 == 0 ? 0.0f : 0.9f, .seed = random()};
    const bool plain = r > 20 && r < 280;
    if (r % 5 == 1) row.target = tokens[(r + 1) % length];
    if (r % 7 == 2) excluded[r] = {r % vocab};
    if (!plain && r % 4 == 1) row.num_top = 1 + r % vocab;
    if (plain && r % 50 == 0) row.num_top = 3;
    if (r % 101 == 0) row.num_top = vocab;
    if ((!plain && r % 6 == 3) || r == 150) {
      owned[r] = kernels::RandomEdits(random, vocab, 1 + random() % 15, false, (r + 1) % vocab);
      edits[r] = owned[r].view();
      row.edits = &edits[r];
    }
    row.excluded = excluded[r];
  }
  const auto report_to = [&](int32_t r, Reported* to) {
    SampledRow row = rows[r];
    to->top_ids.resize(row.num_top);
    to->top_logprobs.resize(row.num_top);
    row.top_ids = to->top_ids.data();
    row.top_logprobs = to->top_logprobs.data();
    if (r % 9 == 4 && row.num_top > 0) {
      to->top_scores.resize(row.num_top);
      row.top_scores = to->top_scores.data();
    }
    if (r % 97 == 5) {
      to->logits.resize(vocab);
      row.logits = to->logits.data();
    }
    row.result = &to->result;
    return row;
  };
  std::vector<SampledRow> all;
  for (int32_t r = 0; r < length; ++r) all.push_back(report_to(r, &together[r]));
  replayer.Replay(tokens, 0, length, all, {});
  for (int32_t r = 0; r < length; r += r % 6 == 3 ? 7 : 3) {
    replayer.Replay(tokens, r, 1, {report_to(r, &alone[r])}, {});
    EXPECT_EQ(alone[r], together[r]) << "row " << r << ", seed " << kSeed;
    EXPECT_GE(together[r].result.token, 0);
  }
}

}  // namespace
}  // namespace sluice::testing
