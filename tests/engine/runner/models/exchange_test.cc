// Tests models that are replaced and withdrawn while they serve.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/interruption.h"
#include "engine/journal/journal_reader.h"
#include "engine/journal/journal_replay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"
#include "tests/support/gate.h"
#include "tests/support/request_spec.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::shared_ptr<const Model> ModelWithVocabulary(int64_t size, const std::string& name = "fake",
                                                 int64_t version = 1) {
  ModelConfig config = FakeConfig();
  config.vocab_size = size;
  return FakeModel(config, name, version);
}

constexpr int32_t kHeld = 90;  // a token that no warm-up uses

// Makes batches with a sequence that begins with kHeld wait at the gate.
void HoldAt(Gate* gate, Harness* harness) {
  harness->backend.OnReplay([gate](const RecordedBatch& batch) {
    if (Ran({batch}, {kHeld})) gate->Pass();
    return absl::OkStatus();
  });
}

TEST(Exchange, RequestsFinishOnTheModelThatTheyStartedWith) {
  Gate gate;
  Harness harness;
  HoldAt(&gate, &harness);
  const auto before = harness.Submit(harness.MakeRequest({{kHeld, 2}}, /*max_tokens=*/5));
  gate.AwaitArrivals(1);
  const auto successor = ModelWithVocabulary(13);
  ASSERT_TRUE(harness.engine->Serve(successor).ok())
      << "it does not wait for the requests of the other";
  EXPECT_EQ(*harness.engine->Resolve("fake", "1"), successor);
  Request request = harness.MakeRequest({{1, 2}}, /*max_tokens=*/5);
  Mutable(request.spec).model = successor;
  const auto after = harness.Submit(request);
  gate.Open();
  before->AwaitDone();
  after->AwaitDone();
  EXPECT_EQ(before->row_tokens(0), Greedy({kHeld, 2}, 5));
  EXPECT_EQ(after->row_tokens(0), Greedy({1, 2}, 5, 13));
}

TEST(Exchange, AReplacedModelAcceptsARequestResolvedBeforeTheReplacement) {
  Harness harness;
  const auto sink = std::make_shared<RecordingSink>();
  const auto make = [&](const Engine::Named& named) {
    EXPECT_EQ(named.model, harness.model);
    EXPECT_TRUE(harness.engine->Serve(ModelWithVocabulary(13)).ok());
    return Engine::Submission{harness.MakeRequest({{1, 2}}, /*max_tokens=*/5), sink};
  };
  ASSERT_TRUE(harness.engine->ResolveAndSubmit("fake", "", make, harness.clock.Now()).ok());
  sink->AwaitDone();
  EXPECT_EQ(sink->row_tokens(0), Greedy({1, 2}, 5));
}

TEST(Exchange, AnInterruptedLoadChangesNothing) {
  Harness harness;
  int checks = 0;
  {
    const Interruptible loading(
        [&] { return ++checks > 1 ? absl::CancelledError("interrupted") : absl::OkStatus(); });
    const absl::Status status = harness.engine->Serve(ModelWithVocabulary(13));
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  }
  EXPECT_EQ(checks, 2) << "it ended at the first refusal";
  EXPECT_EQ(*harness.engine->Resolve("fake", ""), harness.model);
  EXPECT_TRUE(harness.engine->Serve(ModelWithVocabulary(13)).ok());
}

TEST(Exchange, ARequestOfAnAbsentModelIsNotMade) {
  Harness harness;
  const auto make = [](const Engine::Named&) -> absl::StatusOr<Engine::Submission> {
    ADD_FAILURE() << "there is no model";
    return absl::InternalError("");
  };
  EXPECT_EQ(
      harness.engine->ResolveAndSubmit("absent", "", make, harness.clock.Now()).status().code(),
      absl::StatusCode::kNotFound);
}

TEST(Exchange, AWithdrawnModelRefusesRequestsAndItsRequestsCanBeCancelled) {
  Gate gate;
  Harness harness;
  const int plans = harness.backend.live_plans();
  HoldAt(&gate, &harness);
  RequestId id = 0;
  const auto running = harness.Submit(harness.MakeRequest({{kHeld}}, /*max_tokens=*/9), &id);
  gate.AwaitArrivals(1);
  ASSERT_TRUE(harness.engine->Exchange({.serve = {}, .withdraw = {harness.model}}).ok());
  EXPECT_THAT(harness.engine->Models(), IsEmpty());
  EXPECT_EQ(harness.engine->Resolve("fake", "").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(harness.engine
                ->Submit(harness.MakeRequest({{1}}), std::make_shared<RecordingSink>(),
                         harness.clock.Now())
                .status()
                .code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(harness.backend.live_plans(), plans) << "a request runs on it";
  harness.engine->Cancel(id);
  gate.Open();
  running->AwaitDone();
  EXPECT_EQ(running->status().code(), absl::StatusCode::kCancelled);
  harness.backend.AwaitLivePlans(0);
}

TEST(Exchange, AFailedExchangeChangesNothing) {
  Harness harness;
  const auto second = FakeModel(FakeConfig(), "second");
  const auto broken = FakeModel(FakeConfig(), "broken");
  const int plans = harness.backend.live_plans();
  int prepared = 0;
  harness.backend.OnPrepare([&](const Bucket&) {
    return ++prepared > plans ? absl::DataLossError("broken") : absl::OkStatus();
  });
  const ModelChange change = {.serve = {second, broken}, .withdraw = {harness.model}};
  EXPECT_EQ(harness.engine->Exchange(change).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(harness.engine->Models(), UnorderedElementsAre(harness.model));
  EXPECT_EQ(harness.backend.live_plans(), plans);
  harness.backend.OnPrepare([](const Bucket&) { return absl::OkStatus(); });
  ASSERT_TRUE(harness.engine->Exchange(change).ok());
  EXPECT_THAT(harness.engine->Models(), UnorderedElementsAre(second, broken));
}

// Each model alone would take all of the memory for its steps and pages.
TEST(Exchange, ModelsThatAreServedTogetherFitTheFreeMemory) {
  constexpr int64_t kFree = 15'000;  // five models with weights of 1000 bytes, and 2000 for each
  FakeClock clock;
  RecordingObserver observer;
  FakeBackend backend(FakeBackend::Options{
      .plan_bytes_per_token = 0, .activation_bytes_per_token = 10, .free_memory = kFree});
  EngineOptions options = SmallOptions();
  options.batch.max_batch_tokens = 0;
  const auto engine = Engine::Create(options, &backend, &clock, &observer);
  ModelChange change;
  for (int i = 0; i < 5; ++i) {
    change.serve.push_back(FakeModel(FakeConfig(), absl::StrCat("model", i)));
  }
  const absl::Status status = engine->Exchange(change);
  ASSERT_TRUE(status.ok()) << status;
  int64_t used = 0;
  for (const ModelStats& stats : engine->Stats()) {
    used += stats.weight_bytes + stats.slot_memory.activation_room + stats.slot_memory.kv;
    EXPECT_LE(stats.buckets.back().bucket.tokens, 256) << stats.model->name;
  }
  EXPECT_LE(used, kFree);
}

TEST(Exchange, AModelInPreparationCountsAsServed) {
  Harness harness;
  const auto other = FakeModel(FakeConfig(), "other");
  ASSERT_TRUE(harness.engine->Serve(other).ok());
  std::vector<int64_t> counts;
  const auto count_during = [&](const ModelChange& change) {
    counts.clear();
    EXPECT_TRUE(harness.engine->Exchange(change).ok());
    return counts.empty() ? 0 : counts.front();
  };
  harness.backend.OnPrepare([&](const Bucket&) {
    counts.push_back(harness.engine->MostModels());
    return absl::OkStatus();
  });
  const auto named = [](const char* name) { return FakeModel(FakeConfig(), name); };
  EXPECT_EQ(count_during({.serve = {named("a"), named("b"), named("c")}, .withdraw = {other}}), 4);
  EXPECT_EQ(harness.engine->MostModels(), 4);
  EXPECT_EQ(count_during({.serve = {named("a")}, .withdraw = {}}), 4) << "it replaces a model";
  EXPECT_EQ(count_during({.serve = {named("d")}, .withdraw = {harness.model}}), 4);
  EXPECT_EQ(count_during({.serve = {named("e")}, .withdraw = {}}), 5);
}

TEST(Exchange, AnUnknownSnapshotChangesNothing) {
  Harness harness;
  const auto twin = FakeModel(FakeConfig());  // has the name and version of the served model
  const absl::Status status =
      harness.engine->Exchange({.serve = {FakeModel(FakeConfig(), "new")}, .withdraw = {twin}});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'fake'"));
  EXPECT_THAT(harness.engine->Models(), UnorderedElementsAre(harness.model));
}

TEST(Exchange, AReplacementContinuesTheJournalWhileTheFormerModelStillRuns) {
  const TemporaryDirectory directory;
  EngineOptions options = SmallOptions();
  options.history.journal = directory.File("journal");
  {
    Gate gate;
    Harness harness(options);
    HoldAt(&gate, &harness);
    const auto running = harness.Submit(harness.MakeRequest({{kHeld}}, /*max_tokens=*/3));
    gate.AwaitArrivals(1);
    const auto successor = FakeModel(FakeConfig());
    ASSERT_TRUE(harness.engine->Serve(successor).ok());
    harness.Submit(RequestOf(successor, {{1, 2}}, /*max_tokens=*/3))->AwaitDone();
    gate.Open();
    running->AwaitDone();
  }
  auto reader = JournalReader::Open(options.history.journal);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto replayed = ReplayJournal(&*reader);
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_EQ(replayed->runs, 2);
  EXPECT_EQ(replayed->arrivals, 2);
}

TEST(Exchange, AfterAFailedLoadTheServedModelContinuesItsJournal) {
  const TemporaryDirectory directory;
  EngineOptions options = SmallOptions();
  options.history.journal = directory.File("journal");
  {
    Harness harness(options);
    harness.Submit(harness.MakeRequest({{1}}))->AwaitDone();
    const ModelChange change = {.serve = {FakeModel(FakeConfig())},
                                .withdraw = {FakeModel(FakeConfig())}};  // not served
    EXPECT_EQ(harness.engine->Exchange(change).code(), absl::StatusCode::kNotFound);
    harness.Submit(harness.MakeRequest({{2}}))->AwaitDone();
  }
  auto reader = JournalReader::Open(options.history.journal);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto replayed = ReplayJournal(&*reader);
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_EQ(replayed->runs, 1);
  EXPECT_EQ(replayed->arrivals, 2);
}

// Reads all that is in a pipe now.
std::string ReadPipe(int pipe) {
  std::string text;
  char block[4096];
  for (ssize_t count = 0; (count = read(pipe, block, sizeof block)) > 0;) text.append(block, count);
  return text;
}

TEST(Exchange, DoesNotWaitForAJournalThatStalls) {
  const TemporaryDirectory directory;
  EngineOptions options = SmallOptions();
  options.history.journal = directory.File("journal");
  ASSERT_EQ(mkfifo(options.history.journal.c_str(), 0600), 0);
  const Descriptor pipe(open(options.history.journal.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  const std::string block(4096, '\n');
  while (write(pipe.get(), block.data(), block.size()) > 0) {
  }
  std::string text;
  {
    Harness harness(options);
    harness.Submit(harness.MakeRequest({{1}}))->AwaitDone();
    const auto successor = FakeModel(FakeConfig());
    ASSERT_TRUE(harness.engine->Serve(successor).ok());
    harness.Submit(RequestOf(successor, {{2}}, /*max_tokens=*/1))->AwaitDone();
    text = ReadPipe(pipe.get());
  }
  text += ReadPipe(pipe.get());
  text.erase(0, text.find_first_not_of('\n'));
  WriteTestFile(directory.File("copy"), text);
  auto reader = JournalReader::Open(directory.File("copy"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto replayed = ReplayJournal(&*reader);
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_EQ(replayed->runs, 2);
  EXPECT_EQ(replayed->arrivals, 2);
}

TEST(Exchange, VersionsThatFollowEachOtherUseTwoFilesAtMost) {
  const TemporaryDirectory directory;
  EngineOptions options = SmallOptions();
  options.history.journal = directory.File("journal");
  for (const char* const ladder : {"", "ladder"}) {
    options.ladder.file = *ladder == '\0' ? "" : directory.File(ladder);
    Harness harness(options);
    const int plans = harness.backend.live_plans();
    std::shared_ptr<const Model> served = harness.model;
    for (int64_t version = 2; version <= 5; ++version) {
      const auto next = FakeModel(FakeConfig(), "fake", version);
      ASSERT_TRUE(harness.engine->Exchange({.serve = {next}, .withdraw = {served}}).ok());
      harness.backend.AwaitLivePlans(plans);  // the former version has ended
      served = next;
    }
  }
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory.File("."))) {
    files.push_back(entry.path().filename());
  }
  EXPECT_THAT(files, UnorderedElementsAre("journal", "journal.1", "ladder", "ladder.1"));
}

// Withdrawn models are freed one after another, each after its last request.
TEST(Exchange, TheFailuresOfAModelEndWhenItIsReplaced) {
  Gate gate;
  Harness harness;
  const auto held = FakeModel(FakeConfig(), "held");
  ASSERT_TRUE(harness.engine->Serve(held).ok());
  HoldAt(&gate, &harness);
  const auto running = harness.Submit(RequestOf(held, {{kHeld}}, /*max_tokens=*/1));
  gate.AwaitArrivals(1);
  ASSERT_TRUE(harness.engine->Exchange({.serve = {}, .withdraw = {held}}).ok());
  harness.backend.OnReplay([](const RecordedBatch&) { return absl::InternalError("lost"); });
  harness.Submit(harness.MakeRequest({{1}}))->AwaitDone();
  harness.backend.OnReplay(nullptr);
  ASSERT_FALSE(harness.observer.step_failures().empty());
  const int recoveries = harness.observer.recoveries();
  ASSERT_TRUE(harness.engine->Serve(FakeModel(FakeConfig())).ok());
  EXPECT_EQ(harness.observer.recoveries(), recoveries + 1);
  gate.Open();
  running->AwaitDone();
}

// A caller that resolves and submits again after NotFound is always served, even while models are
// replaced.
TEST(Exchange, CallersThatResolveAgainAreAlwaysServed) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Harness harness;
  std::atomic<bool> stop = false;
  std::vector<std::thread> callers;
  for (uint64_t caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, random = std::mt19937_64(seed + caller)]() mutable {
      while (!stop) {
        const auto first = static_cast<int32_t>(random() % 13);
        absl::StatusOr<RequestId> id = absl::NotFoundError("");
        const auto sink = std::make_shared<RecordingSink>();
        int64_t vocabulary = 0;
        for (int tries = 0; tries < 5 && absl::IsNotFound(id.status()); ++tries) {
          Request request = harness.MakeRequest({{first}}, /*max_tokens=*/2);
          Mutable(request.spec).model = *harness.engine->Resolve("fake", "");
          vocabulary = request.spec->model->config.vocab_size;
          id = harness.engine->Submit(std::move(request), sink, harness.clock.Now());
        }
        ASSERT_TRUE(id.ok()) << id.status();
        sink->AwaitDone();
        ASSERT_TRUE(sink->status().ok()) << sink->status();
        ASSERT_EQ(sink->row_tokens(0), Greedy({first}, 2, vocabulary));
      }
    });
  }
  for (int64_t round = 0; round < 40; ++round) {
    ASSERT_TRUE(harness.engine->Serve(ModelWithVocabulary(13 + round)).ok());
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(harness.observer.admitted(), harness.observer.done());
  EXPECT_EQ(harness.engine->Stats().size(), 1u);
}

}  // namespace
}  // namespace sluice
