// Tests journals of sequences that hold KV pages between steps: one scheduler writes them, another
// replays them.
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "engine/journal/journal.h"
#include "engine/journal/journal_reader.h"
#include "engine/journal/journal_replay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/table.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kPages = 24;

const Ladder& TestLadder() {
  static const Ladder ladder({{.tokens = 32, .sequences = 8}, {.tokens = 128, .sequences = 8}});
  return ladder;
}

// Drives a scheduler with random prompts in chunks, generation, cancellations and too few pages.
class Traffic {
 public:
  Traffic(uint64_t seed, const BatchOptions& options, SchedulerObserver* observer)
      : random_(seed),
        scheduler_(options, std::chrono::minutes(5), std::make_shared<const Ladder>(TestLadder()),
                   CostModel(), observer) {}

  void Run(int rounds) {
    for (int round = 0; round < rounds; ++round) Round();
  }
  int preemptions() const { return preemptions_; }

 private:
  struct Row {
    WaitingSequence sequence;
    int32_t held = 0;
    int32_t steps_left = 0;
  };

  int32_t Below(int32_t most) { return static_cast<int32_t>(random_() % most); }

  void Round() {
    now_ += std::chrono::microseconds(100);
    for (int32_t i = Below(3); i > 0; --i) Arrive();
    while (WaitingSequence* sequence = scheduler_.MustYield(Available())) Preempt(sequence);
    if (Below(10) == 0 && !scheduler_.queue().empty()) Cancel();
    const BatchDecision decision = scheduler_.Decide({.now = now_,
                                                      .draining = Below(20) == 0,
                                                      .ahead = Below(4) == 0,
                                                      .available_pages = Available()},
                                                     &batch_);
    if (!decision.launch) return;
    for (WaitingSequence* sequence : batch_) Hold(sequence);
    scheduler_.Observe(ShapeOf(batch_, decision.bucket), 1e-5 * (1 + Below(9)));
    for (WaitingSequence* sequence : batch_) End(sequence);
  }

  int32_t Available() const { return kPages - held_; }

  void Arrive() {
    Row& row = rows_[++tickets_];
    row.steps_left = 1 + Below(12);
    row.sequence = {.ticket = tickets_,
                    .priority = 1 + Below(kPriorityLevels),
                    .adapter = static_cast<uint64_t>(Below(4)),
                    .tokens = 1 + Below(32),
                    .generates = row.steps_left > 1,
                    .expected_steps = row.steps_left,
                    .queued = now_};
    if (Below(3) == 0) row.sequence.later_tokens = 1 + Below(40);
    row.sequence.pages = (row.sequence.tokens + 15) / 16;
    scheduler_.Arrive(&row.sequence);
  }

  void Preempt(WaitingSequence* sequence) {
    Row& row = rows_[sequence->ticket];
    held_ -= row.held;
    row.held = 0;
    ++preemptions_;
    scheduler_.Revise(sequence, {.tokens = 20, .later_tokens = 5, .pages = 2});
  }

  void Cancel() {
    WaitingSequence* running = scheduler_.queue().LastRunning();
    if (running == nullptr) return;
    held_ -= rows_[running->ticket].held;
    scheduler_.Remove(running);
    rows_.erase(running->ticket);
  }

  void Hold(WaitingSequence* sequence) {
    rows_[sequence->ticket].held += sequence->pages;
    held_ += sequence->pages;
  }

  void End(WaitingSequence* sequence) {
    Row& row = rows_[sequence->ticket];
    if (sequence->later_tokens == 0 && --row.steps_left == 0) {
      held_ -= row.held;
      rows_.erase(sequence->ticket);
      return;
    }
    sequence->first_position += sequence->tokens;
    sequence->tokens = sequence->later_tokens > 0 ? sequence->later_tokens : 1;
    sequence->later_tokens = 0;
    sequence->pages = Below(2);
    sequence->running = true;
    scheduler_.Return(sequence);
  }

  std::mt19937_64 random_;
  std::map<uint64_t, Row> rows_;
  uint64_t tickets_ = 0;
  int32_t held_ = 0;
  int preemptions_ = 0;
  MonoTime now_{std::chrono::seconds(1)};
  Scheduler scheduler_;
  std::vector<WaitingSequence*> batch_;
};

class JournalRunningTest : public ::testing::Test {
 protected:
  // Writes a journal of `rounds` rounds and adds their preemptions to `preemptions_`.
  void Write(uint64_t seed, int rounds, const BatchOptions& options) {
    Model model;
    model.name = "m";
    const BackendInfo backend{};
    const Journal::Start start{.model = &model,
                               .backend = &backend,
                               .half_life = std::chrono::minutes(5),
                               .batch = options,
                               .costs = CostModel().state()};
    int64_t lost = 0;
    auto journal =
        Journal::Open(Path(), start, {.lines_lost = [&lost](int64_t lines) { lost += lines; }});
    ASSERT_TRUE(journal.ok()) << journal.status();
    (*journal)->StartWriting();
    Traffic traffic(seed, options, journal->get());
    traffic.Run(rounds);
    preemptions_ += traffic.preemptions();
    journal->reset();
    EXPECT_EQ(lost, 0);
  }

  std::vector<std::string> Lines() const { return ReadTestLines(Path()); }

  absl::StatusOr<JournalReplay> Replay(const std::vector<std::string>& lines) {
    const std::string path = directory_.File("edited");
    WriteTestLines(path, lines);
    SLUICE_ASSIGN_OR_RETURN(JournalReader reader, JournalReader::Open(path));
    return ReplayJournal(&reader);
  }

  std::string Path() const { return directory_.File("journal"); }

  TemporaryDirectory directory_;
  int preemptions_ = 0;
};

BatchOptions RandomOptions(uint64_t seed) {
  return {.max_batch_sequences = 256,
          .max_overtakes = static_cast<int32_t>(seed % 7),
          .prefill_tokens = seed % 3 == 0 ? 0 : 40,
          .continuous = seed % 4 != 0};
}

TEST_F(JournalRunningTest, AFreshSchedulerMakesTheSameDecisions) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    WriteTestFile(Path(), "");
    Write(seed, 600, RandomOptions(seed));
    const absl::StatusOr<JournalReplay> replayed = Replay(Lines());
    ASSERT_TRUE(replayed.ok()) << replayed.status();
    EXPECT_EQ(replayed->decisions, 600);
  }
  EXPECT_GT(preemptions_, 12);
}

// Each of these fields influences decisions: without it, the replay decides differently or fails.
TEST_F(JournalRunningTest, TheReplayFailsIfAFieldThatInfluencesDecisionsIsMissing) {
  Write(1, 600, RandomOptions(1));
  const std::vector<std::string> good = Lines();
  for (const std::string key : {"\"pages\":", "\"running\":", "\"generates\":", "\"later\":"}) {
    SCOPED_TRACE(key);
    std::vector<std::string> lines = good;
    for (std::string& line : lines) {
      if (line.find("\"op\":\"push\"") == std::string::npos) continue;
      const size_t at = line.find(key) + key.size();
      const bool number = line[at] != 't' && line[at] != 'f';
      line.replace(at, line.find(',', at) - at, number ? "0" : "false");
    }
    EXPECT_FALSE(Replay(lines).ok());
  }
}

// kPush is the beginning of a line, kDecide the end of another.
const std::string kPush =
    R"({"op":"push","ticket":7777,"priority":2,"first":5,"tokens":1,"later":0,"sampled":1,)";
const std::string kDecide =
    R"("draining":false,"launch":false,"size":[0,0,0],"bucket":[0,0,0],"trigger":0,"reason":0})";

struct ImpossibleOperationRow {
  const char* name;
  std::string line;
  const char* error;
};
class ImpossibleOperationTable : public TableTest<ImpossibleOperationRow, JournalRunningTest> {};

TEST_P(ImpossibleOperationTable, TheReplayReturnsAnError) {
  Write(1, 50, RandomOptions(1));
  std::vector<std::string> lines = Lines();
  lines.resize(3);
  lines.push_back(row().line);
  const absl::Status status = Replay(lines).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(row().error));
}

const ImpossibleOperationRow kImpossibleOperationRows[] = {
    {.name = "ARevisionOfASequenceThatIsNotWaitingIsAnError",
     .line =
         R"({"op":"revise","ticket":9999,"first":0,"tokens":1,"later":0,"sampled":1,"pages":0})",
     .error = "is not waiting"},
    {.name = "ARevisionWithoutTokensIsAnError",
     .line = R"({"op":"revise","ticket":9999,"first":0,"later":0,"sampled":1,"pages":0})",
     .error = "tokens"},
    {.name = "APushOfNegativePagesIsAnError",
     .line = kPush + R"("pages":-1,"steps":1,"queued":1,"overtaken":0})",
     .error = "pages"},
    {.name = "APushOfNoStepsIsAnError",
     .line = kPush + R"("pages":0,"steps":0,"queued":1,"overtaken":0})",
     .error = "steps"},
    {.name = "ADecisionWithFewerPagesThanItsSequenceHoldsIsAnError",
     .line = kPush + R"("pages":30,"running":true,"steps":1,"queued":1,"overtaken":0})" +
             "\n{\"op\":\"decide\",\"now\":1,\"pages\":29," + kDecide,
     .error = "fewer pages"},
    {.name = "ADecisionWithoutPagesIsAnError",
     .line = R"({"op":"decide","now":1,)" + kDecide,
     .error = "pages"},
};
SLUICE_TABLE(ImpossibleOperationTable, kImpossibleOperationRows);

TEST_F(JournalRunningTest, RefusesMoreRunningSequencesThanFitInAStep) {
  Write(1, 50, RandomOptions(1));
  std::vector<std::string> lines = Lines();
  lines.resize(2);
  for (int ticket = 1; ticket <= 9; ++ticket) {
    lines.push_back(R"({"op":"push","ticket":)" + std::to_string(ticket) +
                    R"(,"priority":2,"first":5,"tokens":1,"later":0,"sampled":1,"pages":0,)" +
                    R"("running":true,"steps":1,"queued":1,"overtaken":0})");
  }
  lines.push_back(
      R"({"op":"decide","now":1,"pages":9,"size":[0,0,0],"bucket":[0,0,0],"trigger":0,"reason":0})");
  const absl::Status status = Replay(lines).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("more running sequences"));
}

TEST_F(JournalRunningTest, MangledLinesNeverCrashTheReplay) {
  Write(1, 120, RandomOptions(1));
  const std::vector<std::string> good = Lines();
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<std::string> lines = good;
    for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
      std::string& line = lines[2 + random() % (lines.size() - 2)];
      const size_t at = line.find(':', random() % line.size());
      if (at != std::string::npos) line.insert(at + 1, 1, static_cast<char>('0' + random() % 10));
    }
    if (random() % 2 == 0) lines.erase(lines.begin() + 2 + static_cast<int>(random() % 50));
    (void)Replay(lines);
  }
}

}  // namespace
}  // namespace sluice
