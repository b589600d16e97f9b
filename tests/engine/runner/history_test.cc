// Plays histories of an engine on virtual time and checks each (history.h).
//
// SLUICE_HISTORIES=100000 runs more histories; SLUICE_FIRST_SEED repeats one.
#include "tests/engine/runner/history.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

enum class Disturbance {
  kNone,
  kCancel,
  kDeadlines,
  kOverload,
  kLadder,
  kExchange,
  kFaults,
  kDrain,
  kKill
};
constexpr int kDisturbances = 9;

uint64_t Number(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  uint64_t number = otherwise;
  EXPECT_TRUE(text == nullptr || absl::SimpleAtoi(text, &number)) << variable;
  return number;
}

// The time that a step takes. Only full buckets, of 64 tokens, take the longest.
nanoseconds CostOf(const Bucket& bucket) { return microseconds(200 + 20 * bucket.tokens); }
constexpr nanoseconds kLongestStep = microseconds(200 + 20 * 64);

// One history: calls of random sizes, and disturbances.
class History {
 public:
  explicit History(uint64_t seed)
      : random_(seed),
        disturbance_(static_cast<Disturbance>(random_() % kDisturbances)),
        harness_(std::make_unique<Harness>(OptionsOf(disturbance_, random_()), FakeConfig(),
                                           BackendOf(random_()))) {
    happened_.overload = disturbance_ == Disturbance::kOverload;
    happened_.faults = disturbance_ == Disturbance::kFaults;
    happened_.exchange = disturbance_ == Disturbance::kExchange;
    harness_->backend.OnReplay([this, replays = 0](const RecordedBatch& batch) mutable {
      harness_->clock.Advance(CostOf(batch.bucket));
      return happened_.faults && ++replays % 3 == 0 ? absl::InternalError("planted")
                                                    : absl::OkStatus();
    });
  }

  // Plays the history and returns its violations.
  std::vector<std::string> Play() {
    const auto calls = static_cast<int>(2 + random_() % 8);
    const auto disturbed = static_cast<int>(random_() % static_cast<uint64_t>(calls));
    for (int i = 0; i < calls; ++i) {
      SubmitOne();
      if (i == disturbed) Disturb();
    }
    for (const auto& sink : sinks_) sink->AwaitDone();
    harness_.reset();
    for (const auto& sink : sinks_) calls_.push_back(sink->call());
    // Steps that failed are run again, and new plans are timed.
    const bool more_steps =
        happened_.faults || happened_.exchange || disturbance_ == Disturbance::kLadder;
    if (!more_steps) happened_.most_wait = MostWait(calls_, kLongestStep);
    return Violations(calls_, happened_);
  }

  Disturbance disturbance() const { return disturbance_; }
  const std::vector<RecordedCall>& calls() const { return calls_; }

 private:
  static EngineOptions OptionsOf(Disturbance disturbance, uint64_t draw) {
    EngineOptions options = SmallOptions();
    options.batch.max_batch_sequences = 1 + static_cast<int32_t>(draw % 5);
    if (draw % 3 == 0) options.batch.policy = PolicyKind::kFifoPacked;
    if (disturbance == Disturbance::kOverload) options.queue.max_requests = 2;
    if (disturbance == Disturbance::kLadder) options.ladder.strategy = StrategyKind::kAdaptive;
    return options;
  }
  static FakeBackend::Options BackendOf(uint64_t draw) {
    return {.steps_ahead = static_cast<int32_t>(draw % 2)};
  }

  int32_t Draw(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  void SubmitOne() {
    const auto model = harness_->engine->Resolve("fake", "").value_or(harness_->model);
    RecordedCall call;
    for (int32_t rows = Draw(1, 3); rows > 0; --rows) {
      auto& row = call.rows.emplace_back();
      for (int32_t tokens = Draw(1, 20); tokens > 0; --tokens) row.push_back(Draw(0, 12));
    }
    call.max_tokens = Draw(0, 5);
    call.vocab = model->config.vocab_size;
    call.submitted = harness_->clock.Now();
    if (disturbance_ == Disturbance::kDeadlines) {
      call.deadline = call.submitted + microseconds(Draw(1, 10000));
    }
    Request request = RequestOf(model, call.rows, call.max_tokens);
    request.deadline = call.deadline;
    Mutable(request.spec).priority = Draw(1, kPriorityLevels);
    sinks_.push_back(std::make_shared<HistorySink>(std::move(call), &harness_->clock));
    const auto id =
        harness_->engine->Submit(std::move(request), sinks_.back(), harness_->clock.Now());
    if (!id.ok()) sinks_.back()->Refuse(id.status());
    ids_.push_back(id.value_or(0));
  }

  void Disturb() {
    switch (disturbance_) {
      case Disturbance::kCancel: {
        const size_t victim = random_() % ids_.size();
        sinks_[victim]->NoteCancel();
        return harness_->engine->Cancel(ids_[victim]);
      }
      case Disturbance::kLadder:
        return harness_->engine->Review("fake", "", /*force=*/true).status().IgnoreError();
      case Disturbance::kExchange: {
        ModelConfig config = FakeConfig();
        config.vocab_size = 13 + Draw(0, 50);
        EXPECT_TRUE(harness_->engine->Serve(FakeModel(config)).ok());
        return;
      }
      case Disturbance::kDrain:
        happened_.drain = true;
        return harness_->engine->Drain(MonoTime::max());
      case Disturbance::kKill:
        happened_.kill = true;
        return harness_->engine->Drain(harness_->clock.Now());
      default:
        return;
    }
  }

  std::mt19937_64 random_;
  const Disturbance disturbance_;
  Circumstances happened_;
  std::vector<std::shared_ptr<HistorySink>> sinks_;
  std::vector<RequestId> ids_;
  std::vector<RecordedCall> calls_;
  std::unique_ptr<Harness> harness_;  // last: it uses the members above
};

TEST(HistoryTest, EveryHistoryKeepsTheGuarantees) {
  const uint64_t first = Number("SLUICE_FIRST_SEED", std::random_device()());
  const uint64_t count = Number("SLUICE_HISTORIES", 1500);
  int64_t ok = 0;
  int64_t otherwise = 0;
  int64_t refused = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    History history(seed);
    const std::vector<std::string> found = history.Play();
    ASSERT_THAT(found, IsEmpty()) << "SLUICE_FIRST_SEED=" << seed << ", disturbance "
                                  << static_cast<int>(history.disturbance());
    for (const RecordedCall& call : history.calls()) {
      ++(!call.refused.ok() ? refused : call.ends[0].status.ok() ? ok : otherwise);
    }
  }
  RecordProperty("ok", static_cast<int>(ok));
  RecordProperty("otherwise", static_cast<int>(otherwise));
  RecordProperty("refused", static_cast<int>(refused));
  std::printf("%llu histories from %llu: %lld calls ended OK, %lld otherwise, %lld refused\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(first),
              static_cast<long long>(ok), static_cast<long long>(otherwise),
              static_cast<long long>(refused));
  EXPECT_GT(ok, 0);
  EXPECT_GT(otherwise, 0);
  EXPECT_GT(refused, 0);
}

// A correct call. The tests below add faults to it.
RecordedCall Good() {
  RecordedCall call;
  call.rows = {{1, 2}, {3}};
  call.max_tokens = 3;
  call.vocab = FakeConfig().vocab_size;
  call.submitted = MonoTime(microseconds(10));
  call.ends = {{absl::OkStatus(), MonoTime(microseconds(20))}};
  for (const auto& row : call.rows) call.tokens.push_back(Greedy(row, call.max_tokens));
  return call;
}

struct PlantedRow {
  const char* name;
  void (*plant)(RecordedCall* call);
  const char* found;
};
class PlantedTable : public TableTest<PlantedRow> {};

TEST_P(PlantedTable, IsFound) {
  std::vector<RecordedCall> calls(3, Good());
  const Circumstances quiet{.most_wait = microseconds(15)};
  ASSERT_THAT(Violations(calls, quiet), IsEmpty());
  row().plant(&calls[1]);
  EXPECT_THAT(Violations(calls, quiet), ElementsAre(std::string("call 1 ") + row().found));
}

void EndAs(RecordedCall* call, const absl::Status& status) { call->ends[0].status = status; }

const PlantedRow kPlantedRows[] = {
    {"ASecondEnd", [](RecordedCall* call) { call->ends.push_back(call->ends[0]); },
     "ended 2 times"},
    {"NoEnd", [](RecordedCall* call) { call->ends.clear(); }, "ended 0 times"},
    {"AnotherToken", [](RecordedCall* call) { call->tokens[1][2] ^= 1; },
     "has different tokens than by itself"},
    {"ATokenOfAnotherModel", [](RecordedCall* call) { call->vocab = 13; },
     "has different tokens than by itself"},
    {"ALostToken", [](RecordedCall* call) { call->tokens[1].pop_back(); }, "lost tokens"},
    {"ATokenTooMany", [](RecordedCall* call) { call->tokens[0].push_back(1); },
     "has too many tokens"},
    {"AWrongFirstToken",
     [](RecordedCall* call) {
       call->cancelled = true;
       EndAs(call, absl::CancelledError(""));
       call->tokens[0] = {call->tokens[0][0] ^ 1};
     },
     "has different tokens than by itself"},
    {"TokensOutOfOrder", [](RecordedCall* call) { call->out_of_order = true; },
     "has tokens out of order"},
    {"TokensAfterTheEnd", [](RecordedCall* call) { call->after_end = 1; },
     "had tokens after its end"},
    {"ACancellationWithoutACall", [](RecordedCall* call) { EndAs(call, absl::CancelledError("")); },
     "was cancelled without a call of Cancel"},
    {"AnEarlyExpiry",
     [](RecordedCall* call) {
       call->deadline = call->ends[0].at + microseconds(1);
       EndAs(call, absl::DeadlineExceededError(""));
     },
     "expired before its deadline"},
    {"ALostCall", [](RecordedCall* call) { EndAs(call, absl::UnavailableError("")); }, "was lost"},
    {"AFailure", [](RecordedCall* call) { EndAs(call, absl::InternalError("")); },
     "failed without a fault"},
    {"ALongWait", [](RecordedCall* call) { call->ends[0].at += microseconds(6); },
     "waited 16000 ns"},
    {"ARefusalWithRoom",
     [](RecordedCall* call) {
       *call = {};
       call->refused = absl::ResourceExhaustedError("");
     },
     "was refused with room"},
    {"AnAnswerToARefusedCall",
     [](RecordedCall* call) { call->refused = absl::ResourceExhaustedError(""); },
     "was answered though it was refused"},
    {"ARefusalWithoutADrain",
     [](RecordedCall* call) {
       *call = {};
       call->refused = absl::UnavailableError("");
     },
     "was refused without a drain"},
    {"AModelThatIsNotFound",
     [](RecordedCall* call) {
       *call = {};
       call->refused = absl::NotFoundError("");
     },
     "did not find its model"},
};
SLUICE_TABLE(PlantedTable, kPlantedRows);

}  // namespace
}  // namespace sluice
