#include "engine/runner/steps/execution_slot.h"

#include <random>

#include "engine/rows/padding.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

constexpr Bucket kLargest{.tokens = 64, .sequences = 5};
constexpr uint32_t kEverything = kOutputTokens | kOutputTopCandidates | kOutputLogits |
                                 kOutputPromptLogprobs | kOutputDiagnostics;

class ExecutionSlotTest : public ::testing::TestWithParam<RowOrder> {
 protected:
  ExecutionSlotTest()
      : backend_(FakeBackend::Options{.order = GetParam()}),
        executable_(*backend_.Load(model_)),
        plan_(*executable_->Prepare(kLargest)),
        slot_(MakeSlot(Ladder({kLargest}), PaddingKind::kZeros)) {}

  std::unique_ptr<ExecutionSlot> MakeSlot(const Ladder& ladder, PaddingKind padding) {
    const int32_t page_tokens = backend_.info().page_tokens;
    return *ExecutionSlot::Create(
        executable_.get(), model_.get(), ladder,
        {.padding = padding,
         .page_tokens = page_tokens,
         .pages = 2 * MaxPages(ExecutionSlot::CapacityOf(ladder), page_tokens)});
  }

  std::unique_ptr<ActiveRequest> Make(const std::vector<std::vector<int32_t>>& rows,
                                      int32_t max_tokens, uint32_t outputs) {
    Request request;
    Mutable(request.spec).model = model_;
    for (const auto& row : rows) {
      Mutable(request.spec).lengths.push_back(static_cast<int32_t>(row.size()));
      request.tokens.insert(request.tokens.end(), row.begin(), row.end());
    }
    Mutable(request.spec).max_tokens = max_tokens;
    request.outputs = outputs;
    Mutable(request.spec).num_top = 3;
    auto active =
        std::make_unique<ActiveRequest>(std::move(request), nullptr, MonoTime(), MonoTime());
    active->AllocateReply();
    for (RequestRow& row : active->rows) row.tokens = row.length();
    return active;
  }

  std::vector<int32_t> RandomRow(std::mt19937_64& random, int32_t most) {
    std::vector<int32_t> row(1 + random() % static_cast<uint64_t>(most));
    for (int32_t& token : row) token = static_cast<int32_t>(random() % 97);
    return row;
  }

  // Expects all outputs of the prompt to equal the outputs of the row by itself.
  void ExpectPrompt(const ActiveRequest& active, size_t index) {
    const RequestRow& row = active.rows[index];
    const std::span<const int32_t> tokens(active.request.tokens.data() + row.prompt.offset,
                                          static_cast<size_t>(row.prompt.length));
    const float* logprobs = active.reply.prompt_logprobs.data() + row.prompt.offset;
    EXPECT_EQ(logprobs[0], 0.0f);
    for (size_t p = 1; p < tokens.size(); ++p) {
      ASSERT_EQ(logprobs[p], fake::Logprob(tokens.first(p), tokens[p])) << p;
    }
    for (int64_t id = 0; id < 97; ++id) {
      ASSERT_EQ(active.reply.logits[index * 97 + static_cast<size_t>(id)], fake::Logit(tokens, id));
    }
    const int64_t room = row.MaxPositions();
    for (int64_t layer = 0; layer < 2; ++layer) {
      const int64_t begin = 3 * (2 * row.outputs.diagnostics_begin + layer * room);
      const float* cos_sim = active.reply.xsa_cos_sim.data() + begin;
      const float* proj_frac = active.reply.xsa_proj_frac.data() + begin;
      for (size_t p = 0; p < tokens.size(); ++p) {
        for (int64_t head = 0; head < 3; ++head) {
          ASSERT_EQ(*cos_sim++, fake::CosSim(layer, tokens[p], static_cast<int32_t>(p), head));
          ASSERT_EQ(*proj_frac++, fake::ProjFrac(layer, tokens[p], static_cast<int32_t>(p), head));
        }
      }
    }
  }

  const std::shared_ptr<const Model> model_ = FakeModel(FakeConfig());
  FakeBackend backend_;
  const std::unique_ptr<ExecutableModel> executable_;
  const std::unique_ptr<Plan> plan_;
  const std::unique_ptr<ExecutionSlot> slot_;
};

TEST_P(ExecutionSlotTest, EveryOutputReachesItsRow) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto full = Make({RandomRow(random, 12), RandomRow(random, 12)}, 2, kEverything);
    const auto plain = Make({RandomRow(random, 12)}, 1, kOutputTokens);
    const auto scored = Make({RandomRow(random, 12)}, 0, kEverything);
    std::vector<RequestRow*> rows = {&full->rows[0], &full->rows[1], &plain->rows[0],
                                     &scored->rows[0]};
    slot_->Assign(rows, kLargest);
    ASSERT_TRUE(slot_->Replay(*plan_).ok());
    for (size_t i = 0; i < rows.size(); ++i) {
      const ExecutionSlot::Result result = slot_->Collect(i);
      ASSERT_TRUE(result.finite);
      ASSERT_EQ(result.drawn.empty(), rows[i]->generation.limit == 0);
      if (result.drawn.empty()) continue;
      const std::span<const int32_t> sequence = rows[i]->history;
      EXPECT_EQ(result.drawn.front().token, fake::Draw(sequence, {}, 97).token);
      if (rows[i]->owner == plain.get()) {
        EXPECT_TRUE(rows[i]->outputs.candidates.ids.empty());
        continue;
      }
      ASSERT_EQ(rows[i]->outputs.candidates.ids.size(), 3u);
      EXPECT_EQ(rows[i]->outputs.candidates.ids[2], fake::TopId(sequence, 2, 97));
    }
    ExpectPrompt(*full, 0);
    ExpectPrompt(*full, 1);
    ExpectPrompt(*scored, 0);
    EXPECT_TRUE(plain->reply.prompt_logprobs.empty());
    EXPECT_TRUE(plain->reply.logits.empty());
    EXPECT_TRUE(plain->reply.xsa_cos_sim.empty());
  }
}

// Later steps do not repeat or change the prompt outputs of the first step.
TEST_P(ExecutionSlotTest, LaterStepsOnlyAddTokens) {
  const auto active = Make({{5, 6, 7}, {8, 9}}, 4, kEverything);
  std::vector<RequestRow*> rows = {&active->rows[0], &active->rows[1]};
  for (int step = 0; step < 4; ++step) {
    slot_->Assign(rows, kLargest);
    ASSERT_TRUE(slot_->Replay(*plan_).ok());
    EXPECT_EQ(slot_->useful_tokens(), 5 + 2 * step);
    for (size_t i = 0; i < 2; ++i) {
      const int32_t token = slot_->Collect(i).drawn.front().token;
      EXPECT_EQ(rows[i]->outputs.candidates.ids[1], fake::TopId(rows[i]->history, 1, 97));
      EXPECT_EQ(rows[i]->outputs.candidates.logprobs[1], -1.0f);
      EXPECT_EQ(rows[i]->Keep(token), step < 3);
      rows[i]->tokens = rows[i]->length();
    }
  }
  ExpectPrompt(*active, 0);
  ExpectPrompt(*active, 1);
}

// Rows keep their pages from step to step. Prompts that are cut anywhere and then computed one
// token at a time give the outputs of whole sequences.
TEST_P(ExecutionSlotTest, ContinuesInThePagesOfTheRow) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    KvCache kv(2 * MaxPages(kLargest, 4), 4, /*reuse=*/false);
    const auto active = Make({RandomRow(random, 25), RandomRow(random, 25)}, 5, kEverything);
    std::vector<RequestRow*> rows = {&active->rows[0], &active->rows[1]};
    for (RequestRow* row : rows) {
      row->kv.ids.reserve(8);
      row->tokens = 0;
    }
    while (!rows.empty()) {
      for (RequestRow* row : rows) {
        const int32_t left = row->length() - row->first_position;
        row->tokens = 1 + static_cast<int32_t>(random() % static_cast<uint64_t>(left));
        ASSERT_TRUE(kv.Extend(row->step_end(), &row->kv));
      }
      slot_->Assign(rows, kLargest);
      ASSERT_TRUE(slot_->Replay(*plan_).ok());
      for (size_t i = rows.size(); i-- > 0;) {
        RequestRow* const row = rows[i];
        const ExecutionSlot::Result result = slot_->Collect(i);
        ASSERT_EQ(result.at_end, row->step_end() == row->length());
        ASSERT_EQ(!result.drawn.empty(), result.at_end);
        row->first_position = row->step_end();
        if (!result.at_end) continue;
        ASSERT_EQ(result.drawn.front().token, fake::Draw(row->history, {}, 97).token);
        if (!row->Keep(result.drawn.front().token))
          rows.erase(rows.begin() + static_cast<int64_t>(i));
      }
    }
    ExpectPrompt(*active, 0);
    ExpectPrompt(*active, 1);
  }
}

TEST_P(ExecutionSlotTest, TrimFreesBuffersThatNoRecentStepUsed) {
  const auto run = [&](const std::vector<int32_t>& tokens) {
    const auto active = Make({tokens}, 1, kEverything);
    std::vector<RequestRow*> rows = {&active->rows[0]};
    slot_->Assign(rows, kLargest);
    ASSERT_TRUE(slot_->Replay(*plan_).ok());
    ASSERT_TRUE(slot_->Collect(0).finite);
    ExpectPrompt(*active, 0);
  };
  EXPECT_FALSE(slot_->TrimBuffers());
  run(std::vector<int32_t>(20, 3));
  const int64_t most = slot_->buffer_bytes();
  EXPECT_GT(most, 0);
  run({4, 5});
  EXPECT_TRUE(slot_->TrimBuffers());
  EXPECT_EQ(slot_->buffer_bytes(), most) << "the largest step was since the start";
  run({4, 5});
  const int64_t allocations = Allocations();
  EXPECT_TRUE(slot_->TrimBuffers());
  EXPECT_EQ(Allocations(), allocations);
  EXPECT_EQ(slot_->buffer_bytes(), 0);
  EXPECT_FALSE(slot_->TrimBuffers()) << "nothing ran since";
  run(std::vector<int32_t>(20, 3));
}

TEST_P(ExecutionSlotTest, HoldsTheMaximumOfPagesAndSampledRows) {
  // Each of these rows leaves three of the four tokens of its last page unused.
  const auto active = Make(
      {std::vector<int32_t>(48, 1), std::vector<int32_t>(13, 2), {3}, {4}, {5}}, 1, kEverything);
  std::vector<RequestRow*> rows;
  for (RequestRow& row : active->rows) rows.push_back(&row);
  for (int repeat = 0; repeat < 3; ++repeat) {
    slot_->Assign(rows, kLargest);
    EXPECT_EQ(slot_->useful_tokens(), 64);
    EXPECT_EQ(slot_->computed_tokens(), 64);
    ASSERT_TRUE(slot_->Replay(*plan_).ok());
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(slot_->Collect(i).finite);
  }
}

// The backend computes the whole rectangle. Every output equals the output of the row by itself.
TEST_P(ExecutionSlotTest, APaddedBucketIsComputedCompletelyWithTheSameOutputs) {
  const Bucket small = Bucket::Padded(4, 16), large = Bucket::Padded(2, 64);
  const Ladder ladder({small, large});
  for (const PaddingKind kind :
       {PaddingKind::kZeros, PaddingKind::kEdge, PaddingKind::kReflect, PaddingKind::kAdaptive}) {
    const auto slot = MakeSlot(ladder, kind);
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937_64 random(seed);
      const Bucket& bucket = seed % 2 == 0 ? small : large;
      const auto plan = *executable_->Prepare(bucket);
      const auto full = Make({RandomRow(random, bucket.positions)}, 2, kEverything);
      const auto plain = Make({RandomRow(random, bucket.positions)}, 1, kOutputTokens);
      std::vector<RequestRow*> rows = {&full->rows[0], &plain->rows[0]};
      backend_.ForgetBatches();
      slot->Assign(rows, bucket);
      EXPECT_EQ(slot->useful_tokens(), rows[0]->length() + rows[1]->length());
      EXPECT_EQ(slot->computed_tokens(), bucket.tokens);
      ASSERT_TRUE(slot->Replay(*plan).ok());
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_EQ(slot->Collect(i).drawn.front().token, fake::Draw(rows[i]->history, {}, 97).token);
      }
      ExpectPrompt(*full, 0);
      const RecordedBatch batch = backend_.batches().at(0);
      ASSERT_EQ(batch.sequences.size(), static_cast<size_t>(bucket.sequences));
      for (const auto& sequence : batch.sequences) {
        ASSERT_EQ(sequence.size(), static_cast<size_t>(bucket.positions));
      }
      std::vector<int32_t> padded(rows[0]->history.begin(), rows[0]->history.end());
      padded.resize(static_cast<size_t>(bucket.positions));
      Pad(kind, rows[0]->length(), padded);
      EXPECT_EQ(batch.sequences[0], padded);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RowOrders, ExecutionSlotTest,
                         ::testing::Values(RowOrder::kPositionMajor, RowOrder::kSequenceMajor),
                         [](const auto& param) {
                           return param.param == RowOrder::kPositionMajor ? "PositionMajor"
                                                                          : "SequenceMajor";
                         });

}  // namespace
}  // namespace sluice
