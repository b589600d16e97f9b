// Makes allocations of reloads, loads and requests fail, one at a time, and the start of threads.
// The operation must fail with an error, change and lose nothing, and the daemon must continue to
// serve.
//
// Allocations are left out if libraries crash or leak memory when they fail: growing hash tables
// and trees of Debian's Abseil, and the destructor of JSON values. Allocations of other threads,
// for example of gRPC, are also left out.
#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <functional>
#include <random>
#include <set>
#include <string_view>

#include "base/out_of_memory.h"
#include "base/status_macros.h"
#include "config/load.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/calls/wire.h"
#include "server/common/memory_limits.h"
#include "server/daemon/reloader.h"
#include "server/inference/frontend.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/recording_observer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/thread_limit.h"

// Called by LeakSanitizer. If a repeated field cannot grow, Protobuf leaks the new element.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:google::protobuf::RepeatedPtrField\n"
         "leak:google::protobuf::Arena::CreateMaybeMessage\n";
}

namespace sluice {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;

// Returns whether the allocation belongs to a growing hash table or tree or to the destruction of a
// JSON value. The binary exports its symbols for this.
bool NotSurvived() {
  std::array<void*, 48> frames;
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  for (int i = 0; i < count; ++i) {
    Dl_info info;
    if (dladdr(frames[static_cast<size_t>(i)], &info) == 0 || info.dli_sname == nullptr) continue;
    const std::string_view name = info.dli_sname;
    if (name.find("raw_hash_set") != name.npos || name.find("btree") != name.npos) return true;
    if (name.find("nlohmann") != name.npos && name.find("7destroyE") != name.npos) return true;
  }
  return false;
}

// Runs `attempt` with one failing allocation. Of `count` allocations, the first `all`, the last
// `all` and `drawn` random ones fail in turn.
void ForFailures(int64_t count, int64_t all, int64_t drawn,
                 const std::function<void(int64_t nth)>& attempt) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::set<int64_t> failures;
  for (int64_t nth = 1; nth <= std::min(count, all); ++nth) {
    failures.insert(nth);
    failures.insert(count + 1 - nth);
  }
  while (std::ssize(failures) < std::min(count, 2 * all + drawn)) {
    failures.insert(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(count)));
  }
  for (const int64_t nth : failures) {
    SCOPED_TRACE(nth);
    attempt(nth);
    if (::testing::Test::HasFailure()) return;
  }
}

// Returns the number of allocations of this thread during `run`.
int64_t AllocationsOf(const std::function<void()>& run) {
  const int64_t before = Allocations();
  run();
  return Allocations() - before;
}

class OutOfMemoryTest : public ::testing::Test {
 protected:
  OutOfMemoryTest() {
    testing::WriteModel(testing::TinyConfig(), 1, kernels::DType::kF32, directory_.path());
    running_.server = testing::TestDaemon::Options().server;
    running_.models = {{"m", directory_.path(), 1}};
    on_disk_ = running_;
    reloader_.emplace(
        running_, [this] { return on_disk_; }, &daemon_.server(), &metrics_, log_.get());
    EXPECT_EQ(reloader_->LoadModels(), absl::OkStatus());
  }

  const TemporaryDirectory directory_;
  testing::TestDaemon daemon_;
  Metrics metrics_{"fake", "1.2.3"};
  const std::unique_ptr<Log> log_ = *Log::Create({.level = "off"});
  Config running_;
  Config on_disk_;
  std::optional<Reloader> reloader_;
};

TEST_F(OutOfMemoryTest, AReloadThatFailsChangesNothing) {
  Config changed = running_;
  changed.server.lifecycle.drain_delay_us = 5;
  changed.models = {{"first", directory_.path(), 1}, {"second", directory_.path(), 1}};
  const auto reload = [this](const Config& to, int64_t failing_allocation = 0) {
    on_disk_ = to;
    const FailingAllocation failing(failing_allocation, NotSurvived);
    return reloader_->Reload();
  };
  // The first reload allocates more than later ones.
  ASSERT_TRUE(reload(changed).ok());
  ASSERT_TRUE(reload(running_).ok());
  const int64_t count = AllocationsOf([&] { ASSERT_TRUE(reload(changed).ok()); });
  ASSERT_TRUE(reload(running_).ok());
  int64_t failed = 0;
  ForFailures(count, /*all=*/200, /*drawn=*/300, [&](int64_t nth) {
    const absl::Status status = reload(changed, nth).status();
    const std::vector<std::shared_ptr<const Model>> models = daemon_.engine().Models();
    if (status.ok()) {  // the reload did not need the allocation
      ASSERT_EQ(models.size(), 2u);
      ASSERT_TRUE(reload(running_).ok());
      return;
    }
    ++failed;
    ASSERT_EQ(models.size(), 1u) << status;
    EXPECT_EQ(models[0]->name, "m") << status;
    EXPECT_EQ(daemon_.server().lifecycle().drain_delay_us, 0) << status;
    EXPECT_FALSE(status.message().empty());
  });
  EXPECT_GT(failed, 100);
  EXPECT_TRUE(reload(changed).ok());
  EXPECT_EQ(daemon_.engine().Models().size(), 2u);
}

TEST_F(OutOfMemoryTest, AReloadThatCannotStartAThreadChangesNothing) {
  constexpr int kMostThreads = 20;
  on_disk_.models = {{"first", directory_.path(), 1}, {"second", directory_.path(), 1}};
  absl::Status status = absl::UnknownError("");
  int threads = 0;
  for (; threads < kMostThreads; ++threads) {
    SCOPED_TRACE(threads);
    {
      const ThreadLimit limit(threads);
      status = reloader_->Reload().status();
    }
    if (status.ok()) break;
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(status.message(), HasSubstr("no more threads can be started"));
    const std::vector<std::shared_ptr<const Model>> models = daemon_.engine().Models();
    ASSERT_EQ(models.size(), 1u);
    EXPECT_EQ(models[0]->name, "m");
  }
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_GT(threads, 0);
}

TEST_F(OutOfMemoryTest, AConfigurationThatCannotBeReadIsAnError) {
  constexpr char kText[] =
      "models:\n  - {name: m, path: /m, ladder: {strategy: geometric}}\n"
      "server:\n  grpc: {max_rows: 7}\n  log: {level: warn}\n";
  const auto load = [&] {
    return OrOutOfMemory([&] {
      Config config;
      Origins origins;
      std::vector<std::string> old;
      return LoadYaml(kText, "f.yaml", &config, &origins, &old);
    });
  };
  const int64_t count = AllocationsOf([&] { ASSERT_EQ(load(), absl::OkStatus()); });
  ForFailures(count, /*all=*/2000, /*drawn=*/0, [&](int64_t nth) {
    absl::Status status;
    {
      const FailingAllocation failing(nth, NotSurvived);
      status = load();
    }
    EXPECT_FALSE(status.message().empty() && !status.ok());
  });
}

// Requests that are parsed, validated and submitted on the test's thread. Only allocations before
// the engine's admission are counted, because the indices of its queue require memory.
class RequestsOutOfMemoryTest : public ::testing::Test {
 protected:
  RequestsOutOfMemoryTest() { context_.health.SetReady(true); }

  absl::StatusOr<RequestId> Submit(const grpc::ByteBuffer& bytes,
                                   const std::shared_ptr<RecordingSink>& sink,
                                   int64_t failing_allocation = 0) {
    CallContext call;
    call.received = Clock::Real()->Now();
    call.peer = "ipv4:127.0.0.1:1";
    call.owner = "127.0.0.1";
    inference::ModelInferRequest message;
    MemoryShare parsed;
    const FailingAllocation failing(failing_allocation, NotSurvived);
    began_ = Allocations();
    SLUICE_RETURN_IF_ERROR(frontend_.Read(bytes, call, &message, &parsed));
    return frontend_.Submit(message, std::move(call), [&](ReplySpec, MemoryShare unread) {
      submitting_ = Allocations();
      return sink;
    });
  }

  testing::TestDaemon daemon_;
  const std::unique_ptr<Log> log_ = *Log::Create({.level = "off"});
  Metrics metrics_{"cpu", "1.2.3"};
  RecentActivity activity_{Clock::Real()};
  const ServerOptions options_ = WithMemoryShares(ServerOptions());
  ServingContext context_{options_,
                          "1.2.3",
                          {},
                          {.engine = &daemon_.engine(),
                           .clock = Clock::Real(),
                           .metrics = &metrics_,
                           .activity = &activity_,
                           .log = log_.get()}};
  InferenceFrontend frontend_{context_, options_.grpc};
  // The allocations when the last call began and when it made its sink.
  int64_t began_ = 0;
  int64_t submitting_ = 0;
};

TEST_F(RequestsOutOfMemoryTest, AFailedRequestReleasesEverything) {
  const inference::ModelInferRequest messages[] = {testing::IdsRequest({1, 2, 3, 4}),
                                                   testing::TextRequest(std::string(30, 'x'))};
  for (const inference::ModelInferRequest& message : messages) {
    grpc::ByteBuffer bytes;
    ASSERT_EQ(Serialize(message, &bytes), absl::OkStatus());
    const auto whole = std::make_shared<RecordingSink>();
    const absl::StatusOr<RequestId> first = Submit(bytes, whole);
    ASSERT_TRUE(first.ok()) << first.status();
    // The request itself is allocated after the sink and before admission.
    const int64_t count = submitting_ - began_ + 1;
    whole->AwaitDone();
    ForFailures(count, /*all=*/1000, /*drawn=*/0, [&](int64_t nth) {
      const auto sink = std::make_shared<RecordingSink>();
      const absl::StatusOr<RequestId> id = Submit(bytes, sink, nth);
      if (id.ok()) return sink->AwaitDone();
      EXPECT_EQ(sink->done_calls(), 0);
      EXPECT_THAT(id.status().code(), AnyOf(Eq(absl::StatusCode::kResourceExhausted),
                                            Eq(absl::StatusCode::kInvalidArgument)))
          << id.status();
      EXPECT_EQ(context_.parsed.used(), 0);
      EXPECT_EQ(context_.unread.used(), 0);
      const ModelStats stats = daemon_.engine().Stats()[0];
      EXPECT_EQ(stats.queued_bytes, 0);
      EXPECT_EQ(stats.waiting_requests + stats.running_requests, 0);
    });
    const auto after = std::make_shared<RecordingSink>();
    ASSERT_TRUE(Submit(bytes, after).ok());
    after->AwaitDone();
    EXPECT_EQ(after->tokens().size(), whole->tokens().size());
  }
}

}  // namespace
}  // namespace sluice
