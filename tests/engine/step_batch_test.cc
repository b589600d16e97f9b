#include "engine/step_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "engine/backend.h"

namespace sluice {
namespace {

constexpr int32_t kMaxTokens = 120;
constexpr int32_t kMaxSequences = 9;
constexpr int32_t kMaxPositions = 64;
constexpr int32_t kPageTokens = 16;

class TestAdapter final : public LoadedAdapter {
 public:
  int64_t bytes() const override { return 0; }
};

struct Storage {
  std::vector<std::vector<int32_t>> tokens, pages;
  std::vector<StepSequence> sequences;
  std::vector<SampledRow> sampled;
};

// Returns random sequences that fit the capacities, with distinct random pages and some sampled
// rows.
Storage RandomStep(std::mt19937_64& random, bool history) {
  Storage step;
  std::vector<int32_t> free(kMaxTokens / kPageTokens + 1 + kMaxSequences);
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random);
  const auto below = [&random](int32_t n) { return static_cast<int32_t>(random() % n); };
  int32_t tokens = 0;
  for (int32_t s = below(kMaxSequences + 1); s > 0; --s) {
    const int32_t count = std::min(1 + below(40), kMaxTokens - tokens);
    const int32_t first = history ? below(kMaxPositions - count + 1) : 0;
    const int32_t pages = (first + count + kPageTokens - 1) / kPageTokens;
    if (count < 1 || pages > static_cast<int32_t>(free.size())) break;
    tokens += count;
    auto& ids = step.tokens.emplace_back(count);
    for (int32_t& id : ids) id = below(1000);
    step.pages.emplace_back(free.end() - pages, free.end());
    free.resize(free.size() - pages);
    step.sequences.push_back({first, count, nullptr, nullptr});
    step.sampled.push_back({.sequence = static_cast<int32_t>(step.sequences.size()) - 1,
                            .position = first + below(count)});
  }
  for (size_t s = 0; s < step.sequences.size(); ++s) {
    step.sequences[s].tokens = step.tokens[s].data();
    step.sequences[s].pages = step.pages[s].data();
  }
  return step;
}

void ExpectRowsComplete(const StepBatch& batch, const Storage& step) {
  std::set<int32_t> rows;
  for (size_t s = 0; s < step.sequences.size(); ++s) {
    const StepBatch::Sequence& sequence = batch.sequences()[s];
    ASSERT_EQ(sequence.first_position, step.sequences[s].first_position);
    ASSERT_EQ(sequence.count, step.sequences[s].count);
    for (int32_t i = 0; i < sequence.count; ++i) {
      const int32_t row = batch.sequence_rows()[sequence.rows_offset + i];
      const int32_t position = sequence.first_position + i;
      ASSERT_TRUE(rows.insert(row).second) << "row " << row << " twice";
      ASSERT_EQ(batch.token_ids()[row], step.tokens[s][i]);
      ASSERT_EQ(batch.positions()[row], position);
      ASSERT_EQ(batch.kv_slots()[row],
                step.pages[s][position / kPageTokens] * kPageTokens + position % kPageTokens);
      ASSERT_EQ(batch.pages()[sequence.pages_offset + position / kPageTokens],
                step.pages[s][position / kPageTokens]);
    }
  }
  ASSERT_EQ(static_cast<int32_t>(rows.size()), batch.tokens());
  if (!rows.empty()) {
    ASSERT_EQ(*rows.rbegin(), batch.tokens() - 1);
  }
}

void ExpectGroupsCover(const StepBatch& batch, RowOrder order) {
  int32_t next = 0;
  int32_t last_position = -1;
  for (const kernels::RowGroup& group : batch.groups()) {
    ASSERT_EQ(group.first_row, next);
    ASSERT_GE(group.count, 1);
    if (order == RowOrder::kPositionMajor) {
      ASSERT_GT(group.matrix, last_position);
    }
    last_position = group.matrix;
    for (int32_t i = 0; i < group.count; ++i) {
      ASSERT_EQ(batch.positions()[next++], group.matrix);
    }
  }
  ASSERT_EQ(next, batch.tokens());
}

class StepBatchTest : public ::testing::TestWithParam<std::pair<RowOrder, bool>> {};

TEST_P(StepBatchTest, LaysOutRandomSteps) {
  const auto [order, history] = GetParam();
  const uint64_t seed = 7001;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  StepBatch batch(kMaxTokens, kMaxSequences, kMaxPositions, kPageTokens);
  const int32_t* const storage = batch.token_ids().data();
  for (int i = 0; i < 500; ++i) {
    SCOPED_TRACE(i);
    const Storage step = RandomStep(random, history);
    batch.Assign(step.sequences, step.sampled, order);
    ExpectRowsComplete(batch, step);
    ExpectGroupsCover(batch, order);
    int32_t context = 0;
    for (const StepSequence& s : step.sequences) {
      context = std::max(context, s.first_position + s.count);
    }
    ASSERT_EQ(batch.max_context(), context);
    ASSERT_EQ(batch.sampled_rows().size(), step.sampled.size());
    for (size_t j = 0; j < step.sampled.size(); ++j) {
      const StepBatch::Sequence& sequence = batch.sequences()[step.sampled[j].sequence];
      const int32_t index = step.sampled[j].position - sequence.first_position;
      ASSERT_EQ(batch.sampled_rows()[j], batch.sequence_rows()[sequence.rows_offset + index]);
    }
    ASSERT_EQ(batch.token_ids().data(), storage) << "reallocated";
    if (HasFatalFailure()) return;
  }
}

TEST_P(StepBatchTest, GroupsTheRowsOfEachAdapter) {
  const auto [order, history] = GetParam();
  const uint64_t seed = 7002;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const TestAdapter adapters[3];
  StepBatch batch(kMaxTokens, kMaxSequences, kMaxPositions, kPageTokens);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    Storage step = RandomStep(random, history);
    std::set<const LoadedAdapter*> used;
    for (StepSequence& sequence : step.sequences) {
      const uint64_t choice = random() % 4;
      if (choice < 3) used.insert(sequence.adapter = &adapters[choice]);
    }
    batch.Assign(step.sequences, step.sampled, order);
    ExpectRowsComplete(batch, step);
    ASSERT_EQ(std::set(batch.adapters().begin(), batch.adapters().end()), used);
    ASSERT_EQ(batch.adapters().size(), used.size());
    std::vector<const LoadedAdapter*> of_rows(batch.tokens(), nullptr);
    int32_t end = 0;
    for (const kernels::RowGroup& group : batch.adapter_groups()) {
      ASSERT_GE(group.first_row, end);
      end = group.first_row + group.count;
      std::fill(of_rows.begin() + group.first_row, of_rows.begin() + end,
                batch.adapters()[group.matrix]);
    }
    for (size_t s = 0; s < step.sequences.size(); ++s) {
      for (int32_t r = 0; r < step.sequences[s].count; ++r) {
        const int32_t row = batch.sequence_rows()[batch.sequences()[s].rows_offset + r];
        ASSERT_EQ(of_rows[row], step.sequences[s].adapter);
      }
    }
    if (order == RowOrder::kSequenceMajor) {
      ASSERT_EQ(batch.adapter_groups().size(), used.size());
    }
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, StepBatchTest,
                         ::testing::Values(std::pair(RowOrder::kPositionMajor, false),
                                           std::pair(RowOrder::kPositionMajor, true),
                                           std::pair(RowOrder::kSequenceMajor, false),
                                           std::pair(RowOrder::kSequenceMajor, true)));

TEST(StepBatchOrderTest, PositionMajorIsStableInSequences) {
  const int32_t a[] = {10, 11, 12};
  const int32_t b[] = {20};
  const int32_t c[] = {30, 31};
  const int32_t pages[] = {0};
  StepBatch batch(8, 3, 8, kPageTokens);
  const StepSequence sequences[] = {{0, 3, a, pages}, {1, 1, b, pages}, {0, 2, c, pages}};
  batch.Assign(sequences, {}, RowOrder::kPositionMajor);
  EXPECT_EQ(std::vector<int32_t>(batch.token_ids().begin(), batch.token_ids().end()),
            (std::vector<int32_t>{10, 30, 11, 20, 31, 12}));
  batch.Assign(sequences, {}, RowOrder::kSequenceMajor);
  EXPECT_EQ(std::vector<int32_t>(batch.token_ids().begin(), batch.token_ids().end()),
            (std::vector<int32_t>{10, 11, 12, 20, 30, 31}));
}

std::vector<int32_t> Copy(std::span<const int32_t> values) {
  return {values.begin(), values.end()};
}

TEST(StepBatchOrderTest, PositionsDoNotCountPaddingTokens) {
  constexpr int32_t kPad = 1;
  const int32_t a[] = {7, kPad, 8, kPad, kPad, 9};
  const int32_t b[] = {kPad, 7};
  const int32_t pages[] = {0, 1};
  StepBatch batch(8, 2, 8, kPageTokens, /*input_width=*/0, kPad);
  const StepSequence sequences[] = {{0, 6, a, pages}, {0, 2, b, pages}};
  batch.Assign(sequences, {}, RowOrder::kSequenceMajor);
  EXPECT_EQ(Copy(batch.positions()), (std::vector<int32_t>{1, 0, 2, 0, 0, 3, 0, 1}));
  const StepSequence aligned[] = {{0, 2, a, pages, 5}};
  batch.Assign(aligned, {}, RowOrder::kSequenceMajor);
  EXPECT_EQ(Copy(batch.positions()), (std::vector<int32_t>{6, 0}));
}

TEST(StepBatchOrderTest, SequencesAlignedAtTheirEndSharePositionsButNotPages) {
  const int32_t a[] = {10, 11, 12};
  const int32_t b[] = {20};
  const int32_t pages_a[] = {3}, pages_b[] = {1};
  StepBatch batch(8, 3, 8, kPageTokens);
  const StepSequence sequences[] = {{0, 3, a, pages_a, 5}, {0, 1, b, pages_b, 7}};
  batch.Assign(sequences, {}, RowOrder::kPositionMajor);
  EXPECT_EQ(Copy(batch.token_ids()), (std::vector<int32_t>{10, 11, 12, 20}));
  EXPECT_EQ(Copy(batch.positions()), (std::vector<int32_t>{5, 6, 7, 7}));
  EXPECT_EQ(Copy(batch.kv_slots()), (std::vector<int32_t>{3 * kPageTokens, 3 * kPageTokens + 1,
                                                          3 * kPageTokens + 2, 1 * kPageTokens}));
  EXPECT_EQ(batch.groups().size(), 3u);
  EXPECT_EQ(batch.groups().back().count, 2);
  EXPECT_EQ(batch.max_context(), 3);
}

// In a padded layout, rows after the last position have the last position.
TEST(StepBatchOrderTest, PaddingStaysAtTheLastPosition) {
  const int32_t tokens[] = {1, 2, 3, 0, 0};
  const int32_t pages[] = {0};
  StepBatch batch(8, 1, 8, kPageTokens);
  const StepSequence sequence{0, 5, tokens, pages, 5};
  batch.Assign({&sequence, 1}, {}, RowOrder::kPositionMajor);
  EXPECT_EQ(Copy(batch.positions()), (std::vector<int32_t>{5, 6, 7, 7, 7}));
  EXPECT_EQ(Copy(batch.token_ids()), (std::vector<int32_t>{1, 2, 3, 0, 0}));
}

TEST(StepBatchOrderTest, VectorsFollowTheirRowsAndTokensHaveZeros) {
  const int32_t a[] = {0, 0, 12};
  const int32_t b[] = {20};
  const int32_t pages[] = {0};
  const float vectors[] = {1, 2, 3, 4};
  StepBatch batch(8, 3, 8, kPageTokens, /*input_width=*/2);
  const StepSequence sequences[] = {{0, 3, a, pages, 0, 2, vectors}, {1, 1, b, pages}};
  const StateSum states[] = {{0, 2, nullptr}, {1, 1, nullptr}, {0, 0, nullptr, 3}};
  batch.Assign(sequences, {}, RowOrder::kPositionMajor, states);
  EXPECT_EQ(Copy(batch.token_ids()), (std::vector<int32_t>{-1, -1, 20, 12}));
  EXPECT_EQ(std::vector<float>(batch.inputs().begin(), batch.inputs().end()),
            (std::vector<float>{1, 2, 3, 4, 0, 0, 0, 0}));
  std::vector<std::vector<int32_t>> state_rows;
  for (const auto [begin, count] : batch.state_places()) {
    state_rows.push_back(Copy(batch.sequence_rows().subspan(begin, count)));
  }
  EXPECT_EQ(state_rows, (std::vector<std::vector<int32_t>>{{3}, {2}, {0, 1, 3}}));
}

TEST(StepBatchOrderTest, AssignClearsThePreviousStep) {
  const int32_t token = 5, page = 0;
  float value = 0;
  kernels::SampleResult result;
  StepBatch batch(8, 3, 8, kPageTokens);
  const StepSequence sequence{0, 1, &token, &page};
  const SampledRow sampled{.sequence = 0, .position = 0, .target = -1, .result = &result};
  batch.Assign({&sequence, 1}, {&sampled, 1}, RowOrder::kPositionMajor);
  batch.xsa_cos_sim = &value;
  batch.xsa_proj_frac = &value;
  batch.Assign({}, {}, RowOrder::kPositionMajor);
  EXPECT_EQ(batch.tokens(), 0);
  EXPECT_EQ(batch.max_context(), 0);
  EXPECT_TRUE(batch.groups().empty() && batch.sequences().empty() && batch.sampled().empty());
  EXPECT_TRUE(batch.pages().empty() && batch.sampled_rows().empty());
  EXPECT_EQ(batch.xsa_cos_sim, nullptr);
  EXPECT_EQ(batch.xsa_proj_frac, nullptr);
}

TEST(StepBatchDeathTest, ExceedingACapacityBreaksAnInvariant) {
  const std::vector<int32_t> tokens(9, 0);
  const int32_t pages[4] = {};
  StepBatch batch(8, 2, 16, 4);
  const auto assign = [&](std::vector<StepSequence> sequences, std::vector<SampledRow> sampled) {
    batch.Assign(sequences, sampled, RowOrder::kPositionMajor);
  };
  const StepSequence one{0, 1, tokens.data(), pages};
  EXPECT_DEATH(assign({{0, 9, tokens.data(), pages}}, {}), "broken invariant");
  EXPECT_DEATH(assign({one, one, one}, {}), "broken invariant");
  EXPECT_DEATH(assign({{16, 1, tokens.data(), pages}}, {}), "broken invariant");
  EXPECT_DEATH(assign({{0, 0, tokens.data(), pages}}, {}), "broken invariant");
  EXPECT_DEATH(assign({{-1, 1, tokens.data(), pages}}, {}), "broken invariant");
  EXPECT_DEATH(assign({one}, {{.sequence = 1, .position = 0}}), "broken invariant");
  EXPECT_DEATH(assign({one}, {{.sequence = 0, .position = 1}}), "broken invariant");
}

}  // namespace
}  // namespace sluice
