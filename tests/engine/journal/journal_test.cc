#include "engine/journal/journal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <filesystem>
#include <random>
#include <thread>

#include "base/descriptor.h"
#include "base/status_macros.h"
#include "engine/journal/journal_reader.h"
#include "engine/journal/journal_replay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/request_spec.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using std::chrono::microseconds;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<JournalReplay> Replay(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(JournalReader reader, JournalReader::Open(path));
  return ReplayJournal(&reader);
}

// Serves random requests with a journal and changes of the ladder; some are cancelled or expire.
// Returns the number of admitted sequences, which varies because some deadlines cannot be met.
int ServeWithJournal(uint64_t seed, const EngineOptions& options) {
  Harness harness(options);
  std::mt19937_64 random(seed);
  harness.backend.OnReplay([&](const RecordedBatch& batch) {
    harness.clock.Advance(microseconds(50 + batch.bucket.tokens));
    return absl::OkStatus();
  });
  for (int i = 0; i < 120; ++i) {
    Request request = harness.MakeRequest(
        {std::vector<int32_t>(1 + random() % 20, 3), std::vector<int32_t>(1 + random() % 60, 4)},
        static_cast<int32_t>(random() % 3));
    Mutable(request.spec).priority = 1 + static_cast<int>(random() % kPriorityLevels);
    if (random() % 4 == 0) {
      request.deadline = harness.clock.Now() + microseconds(1 + random() % 2000);
    }
    const auto id =
        harness.engine->Submit(request, std::make_shared<RecordingSink>(), harness.clock.Now());
    if (random() % 6 == 0 && id.ok()) harness.engine->Cancel(*id);
    if (i % 30 == 29) {
      EXPECT_TRUE(harness.engine->Review("fake", "", /*force=*/true).ok());
    }
  }
  harness.engine->Drain(MonoTime::max());
  return 2 * harness.observer.admitted();
}

TEST(Journal, AFreshSchedulerMakesTheSameDecisions) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    TemporaryDirectory directory;
    EngineOptions options = SmallOptions();
    options.ladder.strategy = StrategyKind::kAdaptive;
    options.ladder.review.interval_us = 0;
    options.batch.max_batch_sequences = 1 + static_cast<int32_t>(seed);
    options.batch.max_queue_delay_us = seed % 2 == 0 ? 0 : 300;
    options.batch.policy = seed % 3 == 0 ? PolicyKind::kFifoPacked : PolicyKind::kPacked;
    options.history.journal = directory.File("journal");
    int sequences = ServeWithJournal(seed, options);
    sequences += ServeWithJournal(seed + 100, options);  // appended to the file as another run
    const absl::StatusOr<JournalReplay> replayed = Replay(options.history.journal);
    ASSERT_TRUE(replayed.ok()) << replayed.status();
    EXPECT_EQ(replayed->runs, 2);
    EXPECT_EQ(replayed->arrivals, sequences);
    EXPECT_GT(sequences, 400);
    EXPECT_GT(replayed->batches, 20);
  }
}

// A process that is killed during a write leaves a partial line.
TEST(Journal, CutsOffAPartiallyWrittenLine) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  TemporaryDirectory directory;
  EngineOptions options = SmallOptions();
  options.history.journal = directory.File("journal");
  ServeWithJournal(1, options);
  const std::string whole = ReadTestFile(options.history.journal);
  for (int round = 0; round < 20; ++round) {
    const size_t end = 1 + random() % whole.size();
    WriteTestFile(options.history.journal, whole.substr(0, end));
    ServeWithJournal(2, options);
    const std::string text = ReadTestFile(options.history.journal);
    const size_t kept = whole.rfind('\n', end - 1) + 1;
    ASSERT_EQ(text.substr(0, kept), whole.substr(0, kept));
    const std::string next = text.substr(kept, text.find('\n', kept) - kept);
    ASSERT_THAT(next, HasSubstr("\"op\":\"start\""));
    ASSERT_TRUE(Replay(options.history.journal).ok()) << end;
  }
}

TEST(Journal, AFileThatIsNotAJournalKeepsItsContents) {
  TemporaryDirectory directory;
  EngineOptions options = SmallOptions();
  options.history.journal = directory.File("notes");
  for (const std::string contents : {"notes without a newline", "{\"batch\":1}", "a\nb\n"}) {
    WriteTestFile(options.history.journal, contents);
    const auto journal = Journal::Open(options.history.journal, {}, {});
    EXPECT_THAT(std::string(journal.status().message()), HasSubstr("is not a journal"));
    EXPECT_EQ(ReadTestFile(options.history.journal), contents);
  }
}

TEST(Journal, AFullFileGetsNoMoreLines) {
  TemporaryDirectory directory;
  EngineOptions options = SmallOptions();
  options.history.journal = directory.File("journal");
  ServeWithJournal(1, options);
  options.history.journal_bytes = std::ssize(ReadTestFile(options.history.journal));
  ServeWithJournal(2, options);
  EXPECT_EQ(std::ssize(ReadTestFile(options.history.journal)), options.history.journal_bytes);
  options.history.journal_bytes += 2000;
  ServeWithJournal(3, options);
  EXPECT_LE(std::ssize(ReadTestFile(options.history.journal)), options.history.journal_bytes);
  EXPECT_TRUE(Replay(options.history.journal).ok());
}

TEST(Journal, AJournalOfAPaddedPolicyIsReplayed) {
  TemporaryDirectory directory;
  EngineOptions options = SmallOptions();
  options.batch.policy = PolicyKind::kPaddedBuckets;
  options.history.journal = directory.File("journal");
  {
    Harness harness(options);
    for (int32_t i = 1; i < 40; ++i) {
      harness.Submit(harness.MakeRequest({std::vector<int32_t>(static_cast<size_t>(i), 1)}));
    }
    harness.engine->Drain(MonoTime::max());
  }
  const absl::StatusOr<JournalReplay> replayed = Replay(options.history.journal);
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_EQ(replayed->arrivals, 39);
}

TEST(Journal, ContainsNoTokensOfRequests) {
  TemporaryDirectory directory;
  EngineOptions options = SmallOptions();
  options.history.journal = directory.File("journal");
  {
    Harness harness(options);
    Request request = harness.MakeRequest({{777000777, 777000778}});
    Mutable(request.spec).id = "a secret id";
    harness.Submit(request)->AwaitDone();
  }
  const std::string text = ReadTestFile(options.history.journal);
  EXPECT_THAT(text, HasSubstr("\"op\":\"push\""));
  EXPECT_EQ(text.find("777000777"), std::string::npos);
  EXPECT_EQ(text.find("secret"), std::string::npos);
}

TEST(Journal, EachModelHasItsOwnFile) {
  TemporaryDirectory directory;
  EngineOptions options = SmallOptions();
  options.history.journal = directory.File("journal");
  {
    Harness harness(options);
    ASSERT_TRUE(harness.engine->Serve(FakeModel(FakeConfig(), "other")).ok());
  }
  EXPECT_THAT(ReadTestFile(options.history.journal), HasSubstr("\"model\":\"fake\""));
  EXPECT_THAT(ReadTestFile(options.history.journal + ".1"), HasSubstr("\"model\":\"other\""));
}

TEST(Journal, ServeFailsIfThePathIsUnusable) {
  EngineOptions options = SmallOptions();
  options.history.journal = "/no/such/directory/journal";
  FakeClock clock;
  RecordingObserver observer;
  FakeBackend backend;
  const auto engine = Engine::Create(options, &backend, &clock, &observer);
  const absl::Status status = engine->Serve(FakeModel(FakeConfig()));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/directory/journal"));
}

// /dev/full fails every write.
TEST(Journal, AFullDiskLosesLinesButNoRequestFails) {
  EngineOptions options = SmallOptions();
  options.history.journal = "/dev/full";
  Harness harness(options);
  for (int32_t i = 0; i < 50; ++i) {
    const auto sink = harness.Submit(harness.MakeRequest({{i}}));
    sink->AwaitDone();
    EXPECT_TRUE(sink->status().ok());
  }
  harness.engine.reset();
  ASSERT_EQ(harness.observer.notices().size(), 1u);
  EXPECT_THAT(harness.observer.notices()[0],
              HasSubstr("the journal loses lines: /dev/full: cannot write: No space left"));
  EXPECT_GT(harness.observer.failed_writes(WrittenFile::kJournal), 0);
  EXPECT_EQ(harness.observer.failed_writes(WrittenFile::kLadder), 0);
  EXPECT_GT(harness.observer.lost_lines(), 50);
}

// While the limit on the size of files is the size of the journal, every write to it fails.
TEST(Journal, EachSeriesOfLossesHasANotice) {
  TemporaryDirectory directory;
  EngineOptions options = SmallOptions();
  options.history.journal = directory.File("journal");
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  Harness harness(options);
  const auto size = [&] { return std::filesystem::file_size(options.history.journal); };
  const auto serve = [&] { harness.Submit(harness.MakeRequest({{1}}))->AwaitDone(); };
  const auto write = [&] {
    const auto old_size = size();
    serve();
    while (size() == old_size) std::this_thread::yield();
  };
  const auto lose = [&] {
    rlimit full = before;
    full.rlim_cur = size();
    setrlimit(RLIMIT_FSIZE, &full);
    for (int i = 0; i < 2; ++i) {
      const int64_t lost = harness.observer.lost_lines();
      serve();
      while (harness.observer.lost_lines() == lost) std::this_thread::yield();
    }
    setrlimit(RLIMIT_FSIZE, &before);
  };
  write();
  EXPECT_EQ(harness.observer.lost_lines(), 0);
  lose();
  EXPECT_EQ(harness.observer.notices().size(), 1u);
  write();
  lose();
  EXPECT_EQ(harness.observer.notices().size(), 2u);
}

// A failed exchange stops a journal and starts it again.
TEST(Journal, LinesBetweenStopAndStartAreAGapButNotALoss) {
  const TemporaryDirectory directory;
  const auto model = FakeModel(FakeConfig());
  const BackendInfo backend{};
  std::vector<std::string> notices;
  int64_t lost = 0;
  {
    auto journal = Journal::Open(
        directory.File("journal"),
        {.model = model.get(), .backend = &backend, .half_life = {}, .batch = {}, .costs = {}},
        {.notice = [&](std::string_view notice) { notices.emplace_back(notice); },
         .lines_lost = [&](int64_t lines) { lost += lines; }});
    ASSERT_TRUE(journal.ok()) << journal.status();
    (*journal)->StartWriting();
    (*journal)->OnRemove({.ticket = 1});
    (*journal)->StopWriting();
    (*journal)->OnRemove({.ticket = 2});
    (*journal)->StartWriting();
    (*journal)->OnRemove({.ticket = 3});
  }
  const std::vector<std::string> lines = ReadTestLines(directory.File("journal"));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1], R"({"op":"remove","ticket":1})");
  EXPECT_EQ(lines[2], R"({"op":"dropped","lines":1})");
  EXPECT_EQ(lines[3], R"({"op":"remove","ticket":3})");
  EXPECT_THAT(notices, ::testing::IsEmpty());
  EXPECT_EQ(lost, 0);
}

TEST(Journal, AnotherProcessThatWritesTheFileIsReportedOnce) {
  const TemporaryDirectory directory;
  const std::string path = directory.File("journal");
  const auto model = FakeModel(FakeConfig());
  const BackendInfo backend{};
  std::vector<std::string> notices;
  const auto open = [&] {
    return *Journal::Open(
        path,
        {.model = model.get(), .backend = &backend, .half_life = {}, .batch = {}, .costs = {}},
        {.notice = [&](std::string_view notice) { notices.emplace_back(notice); }});
  };
  {  // A reload: two journals of one process.
    const auto first = open();
    first->StartWriting();
    const auto second = open();
    second->StartWriting();
    first->StopWriting();
  }
  EXPECT_THAT(notices, ::testing::IsEmpty());
  // A second open file has a lock of its own, as one of another process has.
  const Descriptor other(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(flock(other.get(), LOCK_EX | LOCK_NB), 0) << "the journals have given up their lock";
  {
    const auto journal = open();
    journal->StartWriting();
    journal->OnRemove({.ticket = 1});
  }
  EXPECT_THAT(notices, ElementsAre(HasSubstr("another process writes the journal " + path)));
}

class JournalFileTest : public ::testing::Test {
 protected:
  // The lines of a small run.
  std::vector<std::string> Lines() {
    EngineOptions options = SmallOptions();
    options.history.journal = directory_.File("journal");
    {
      Harness harness(options);
      for (int32_t i = 0; i < 4; ++i)
        harness.Submit(harness.MakeRequest({{1, 2}, {3}}))->AwaitDone();
    }
    return ReadTestLines(options.history.journal);
  }

  absl::StatusOr<JournalReplay> ReplayLines(const std::vector<std::string>& lines) {
    WriteTestLines(directory_.File("edited"), lines);
    return Replay(directory_.File("edited"));
  }

  static size_t IndexOf(const std::vector<std::string>& lines, const std::string& op) {
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].find("\"op\":\"" + op + "\"") != std::string::npos) return i;
    }
    ADD_FAILURE() << "no " << op;
    return 0;
  }

  TemporaryDirectory directory_;
};

TEST_F(JournalFileTest, DetectsAChangedDecision) {
  std::vector<std::string> lines = Lines();
  ASSERT_TRUE(ReplayLines(lines).ok());
  std::string& decision = lines[IndexOf(lines, "decide")];
  const size_t at = decision.find("\"trigger\":");
  ASSERT_NE(at, std::string::npos);
  char& trigger = decision[at + 10];
  trigger = trigger == '0' ? '1' : '0';
  const absl::Status status = ReplayLines(lines).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              ContainsRegex("^line [0-9]+: the scheduler decides differently: .+ instead of "));
}

TEST_F(JournalFileTest, ErrorsOfImpossibleOperationsNameTheLine) {
  const std::vector<std::string> good = Lines();
  const size_t push = IndexOf(good, "push");
  const auto with = [&](const std::string& line) {
    std::vector<std::string> lines = good;
    lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(push) + 1, line);
    return ReplayLines(lines).status();
  };
  const std::vector<std::string> bad = {
      good[push],  // the ticket is already in use
      R"({"op":"remove","ticket":999999})",
      R"({"op":"push","ticket":77,"priority":2,"first":0,"tokens":65,"sampled":1,"queued":1,"overtaken":0})",
      R"({"op":"push","ticket":77,"priority":4,"first":0,"tokens":5,"sampled":1,"queued":1,"overtaken":0})",
      R"({"op":"push","ticket":77,"priority":2,"first":0,"tokens":5,"sampled":1,"overtaken":0})",
      R"({"op":"push","ticket":-1,"priority":2,"first":0,"tokens":5,"sampled":1,"queued":1,"overtaken":0})",
      R"({"op":"ladder","tokens":[8,32],"sequences":[4,4],"positions":[0,0]})",
      R"({"op":"ladder","tokens":[32,8],"sequences":[4,4],"positions":[0,0]})",
      R"({"op":"observe","bucket":[8,4],"computed":1,"context":1,"positions":1,"sampled":1,"seconds":1})",
      R"({"op":"observe","bucket":[8,4,0],"computed":1,"context":1,"positions":1,"sampled":1})",
      R"({"op":"decide","draining":false})",
      R"({"op":"fly"})",
      R"({"op":3})",
      R"([1])",
      R"({"op":"remove","ticket":1)",
      "",
      std::string(JournalReader::kMaxLineBytes + 1, ' '),
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    const absl::Status status = with(bad[i]);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << i << " " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("line " + std::to_string(push + 2))) << i;
  }
  EXPECT_EQ(with(R"({"op":"dropped","lines":3})").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReplayLines({good[push]}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Replay(directory_.File("absent")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JournalFileTest, RefusesALimitOfZeroSequences) {
  std::vector<std::string> lines = Lines();
  std::string& start = lines[IndexOf(lines, "start")];
  const std::string key = "\"max_batch_sequences\":";
  const size_t value = start.find(key) + key.size();
  start.replace(value, start.find_first_of(",}", value) - value, "0");
  EXPECT_THAT(std::string(ReplayLines(lines).status().message()),
              HasSubstr("max_batch_sequences must be at least 1"));
}

TEST_F(JournalFileTest, AnIncompleteLastLineIsIgnored) {
  std::vector<std::string> lines = Lines();
  const int64_t decisions = ReplayLines(lines)->decisions;
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  WriteTestFile(directory_.File("edited"), text + R"({"op":"rem)");
  EXPECT_EQ(Replay(directory_.File("edited"))->decisions, decisions);
}

// For any bytes in a line, reading it returns an error or an entry and never crashes.
TEST_F(JournalFileTest, MangledLinesNeverCrashTheReader) {
  const std::vector<std::string> good = Lines();
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<std::string> lines = good;
    for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
      std::string& line = lines[random() % lines.size()];
      if (line.empty()) continue;
      const size_t at = random() % line.size();
      switch (random() % 3) {
        case 0:
          line[at] = static_cast<char>('0' + random() % 10);
          break;
        case 1:
          line.erase(at, 1 + random() % 8);
          break;
        default:
          line.insert(at, line.substr(random() % line.size(), 6));
      }
    }
    (void)ReplayLines(lines);
  }
}

}  // namespace
}  // namespace sluice
