#include "server/daemon/edge_metrics.h"

#include <grpcpp/test/server_context_test_spouse.h>
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/common/callback_times.h"
#include "tests/server/net/grpc_1_51/pending_call.h"
#include "tests/server/observe/scrape.h"
#include "tests/server/scripted_engine.h"
#include "tests/support/fake_clock.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using Event = CallbackTimes::Event;
using Series = std::map<std::pair<std::string, std::string>, double>;

constexpr int64_t kLimit = 2'000'000'000;
constexpr int64_t kResident = 1'840'000'000;  // 92 %, so requests are refused

class EdgeMetricsTest : public ::testing::Test {
 protected:
  static ServerOptions Options() {
    ServerOptions options = WithMemoryShares(ServerOptions());
    options.memory.limit_bytes = kLimit;
    options.grpc.max_calls = 20;
    options.admin.on_grpc_address = true;  // its calls have the same limit
    return options;
  }

  // Starts waits until `displaced` calls were ended because too many wait, of at most `most`. Then
  // leaves `cancelled` waits, which end when their time has passed.
  void Fill(TransferWatch* watch, int64_t most, int64_t displaced, int64_t cancelled) {
    std::deque<TransferWatch::Wait>& waits = waits_.emplace_back();
    for (int64_t i = 0; i < most + displaced; ++i) {
      watch->BeginIncoming(call_.get(), "nothing came", {.address = "a", .caller = ""},
                           &waits.emplace_back());
    }
    // The oldest waits were ended.
    for (int64_t i = displaced; i < most + displaced - cancelled; ++i) watch->End(&waits[i]);
  }

  // Cuts this many answers.
  void Cut(TransferWatch* watch, int64_t answers) {
    std::deque<TransferWatch::Wait>& waits = waits_.emplace_back();
    for (int64_t i = 0; i < answers; ++i) {
      watch->BeginOutgoing(call_.get(), "not read", /*bytes=*/10, &waits.emplace_back());
    }
    EXPECT_EQ(watch->CutLargest(10 * answers), 10 * answers);
  }

  void Identify(const Callers& callers, const std::string& authorization, int times) {
    for (int i = 0; i < times; ++i) {
      grpc::ServerContext context;
      grpc::testing::ServerContextTestSpouse spouse(&context);
      if (!authorization.empty()) spouse.AddClientMetadata("authorization", authorization);
      caller_ = callers.Identify(context).value_or(nullptr);
    }
  }

  static PortStats Port(int64_t first) {
    return {.connections = {.open = first,
                            .refused = first + 1,
                            .refused_for_memory = first + 2,
                            .failed_accepts = first + 3,
                            .broken_off = first + 4,
                            .failed_handshakes = {first + 5, first + 6, first + 7}},
            .refused_calls = first + 8};
  }
  static void AddPort(const std::string& listener, double first, Series* expected) {
    const std::string label = absl::StrCat("listener=\"", listener, "\"");
    const auto reason = [&](const char* name) { return label + ",reason=\"" + name + "\""; };
    expected->merge(Series{
        {{"sluice_connections_open", label}, first},
        {{"sluice_connections_refused_total", reason("limit")}, first + 1},
        {{"sluice_connections_refused_total", reason("memory")}, first + 2},
        {{"sluice_connections_refused_total", reason("accept_failed")}, first + 3},
        {{"sluice_connections_broken_off_total", label}, first + 4},
        {{"sluice_handshakes_failed_total", reason("refused")}, first + 5},
        {{"sluice_handshakes_failed_total", reason("refused_by_peer")}, first + 6},
        {{"sluice_handshakes_failed_total", reason("incomplete")}, first + 7},
        {{"sluice_calls_refused_total", label}, first + 8},
    });
  }

  testing::PendingCall call_;
  std::deque<std::deque<TransferWatch::Wait>> waits_;
  std::shared_ptr<const Caller> caller_;  // of the last Identify
  FakeClock clock_;
  const TemporaryDirectory directory_;
  testing::ScriptedEngine engine_;
  const std::unique_ptr<Log> log_ = *Log::Create({.level = "off"});
  Metrics metrics_{"cpu", "1.2.3"};
  ServingContext context_{Options(),
                          "1.2.3",
                          {},
                          {.engine = &engine_,
                           .clock = &clock_,
                           .metrics = &metrics_,
                           .log = log_.get(),
                           .resident = [] { return kResident; }}};
};

// Each source has a different number.
TEST_F(EdgeMetricsTest, EachSourceHasItsSeries) {
  Series expected;
  const std::vector<std::pair<const char*, PortStats>> ports = {
      {"grpc", Port(100)}, {"admin", Port(200)}, {"health", Port(300)}};
  for (const auto& [name, stats] : ports) {
    AddPort(name, static_cast<double>(stats.connections.open), &expected);
  }

  constexpr int64_t kProbes = 256;
  Fill(&context_.inference.transfers, 20, 1, 2);
  Fill(&context_.inference.idle_streams, 20, 3, 4);
  Fill(&context_.admin.transfers, 20, 5, 6);
  Fill(&context_.admin.idle_streams, 20, 7, 8);
  Fill(&context_.probes.transfers, kProbes, 9, 10);
  Fill(&context_.probes.idle_streams, kProbes, 11, 0);
  Cut(&context_.inference.transfers, 13);
  Cut(&context_.admin.transfers, 14);
  clock_.Advance(std::chrono::hours(1));
  const std::pair<TransferWatch*, int64_t> ends[] = {{&context_.inference.transfers, 2},
                                                     {&context_.inference.idle_streams, 4},
                                                     {&context_.admin.transfers, 6},
                                                     {&context_.admin.idle_streams, 8},
                                                     {&context_.probes.transfers, 10}};
  for (const auto& [watch, cancelled] : ends) {
    while (watch->cancelled() < cancelled) std::this_thread::yield();
  }
  const auto displaced = [&](const char* listener, const char* wait, double count) {
    expected[{"sluice_calls_displaced_total",
              absl::StrCat("listener=\"", listener, "\",wait=\"", wait, "\"")}] = count;
  };
  displaced("grpc", "message", 1);
  displaced("grpc", "idle_stream", 3);
  displaced("admin", "message", 5);
  displaced("admin", "idle_stream", 7);
  displaced("health", "message", 9);
  displaced("health", "idle_stream", 11);
  expected[{"sluice_transfers_cancelled_total", ""}] = 2 + 6 + 10;
  expected[{"sluice_idle_streams_ended_total", ""}] = 4 + 8;
  expected[{"sluice_answers_cut_total", ""}] = 13 + 14;

  WriteTestFile(directory_.File("callers"), "alice: token:alice-0123456789\n");
  const auto callers = *Callers::Open(
      {.callers_file = directory_.File("callers"), .anonymous = false}, {}, [](const auto&) {});
  Identify(*callers, "Bearer unknown-0123456789", 15);
  Identify(*callers, "", 16);
  Identify(*callers, "Bearer alice-0123456789", 1);
  ASSERT_NE(caller_, nullptr);
  caller_->account()->admitted_requests = 17;
  caller_->account()->admitted_tokens = 18;
  caller_->account()->refused = 19;
  expected.merge(Series{
      {{"sluice_unauthenticated_total", "reason=\"token_unknown\""}, 15},
      {{"sluice_unauthenticated_total", "reason=\"credential_missing\""}, 16},
      {{"sluice_caller_requests_total", "caller=\"alice\""}, 17},
      {{"sluice_caller_tokens_total", "caller=\"alice\""}, 18},
      {{"sluice_caller_refused_total", "caller=\"alice\""}, 19},
  });

  context_.overload.Look();
  const MemoryShare parsed = context_.parsed.Take("alice", 20);
  const MemoryShare unread = context_.unread.Take("alice", 21);
  const MemoryLimits limits = {.limit = 22,
                               .lines = {{"queue", 23, "an.option"}, {"kv", 24, "an.option"}}};
  expected.merge(Series{
      {{"sluice_memory_bytes", "use=\"all\""}, kResident},
      {{"sluice_memory_bytes", "use=\"parsed_requests\""}, 20},
      {{"sluice_memory_bytes", "use=\"unread_answers\""}, 21},
      {{"sluice_memory_limit_bytes", "use=\"all\""}, 22},
      {{"sluice_memory_limit_bytes", "use=\"queue\""}, 23},
      {{"sluice_memory_limit_bytes", "use=\"kv\""}, 24},
      {{"sluice_memory_overload", ""}, 2},
      {{"sluice_models_failed", ""}, 0},
      {{"sluice_instance_info", absl::StrCat("id=\"", context_.instance, "\"")}, 1},
  });

  const auto samples =
      testing::ParseSamples(metrics_.Render(EdgeMetrics(context_, ports, *callers, limits)));
  for (const auto& [series, value] : expected) {
    const auto& [name, label] = series;
    EXPECT_EQ(testing::SumOf(samples, name, label), value) << name << " " << label;
  }
}

// The process has one set of counts, which only grows.
TEST_F(EdgeMetricsTest, CallbacksAreCountedAndTimedByTheirEvent) {
  const CallbackTimes& times = CallbackTimes::OfProcess();
  for (size_t i = 0; i < CallbackTimes::kEvents; ++i) {
    const auto event = static_cast<Event>(i);
    for (size_t calls = 0; calls < 10 + i; ++calls) {
      const CallbackTimes::Scope scope("Method", event);
    }
    for (size_t slow = 0; slow < 1 + i; ++slow) {
      const CallbackTimes::Scope scope("Slow", event);
      const MonoTime end = Clock::Real()->Now() + 2 * CallbackTimes::kBound;
      while (Clock::Real()->Now() < end) {
      }
    }
  }
  const auto callers = *Callers::Open({}, {}, [](const auto&) {});
  const auto samples =
      testing::ParseSamples(metrics_.Render(EdgeMetrics(context_, {}, *callers, {})));
  for (const auto& [event, name] : EnumNamesOf(Event{})) {
    const CallbackTimes::EventCounts counts = times.Of(event);
    const std::string label = "event=\"" + std::string(name) + "\"";
    EXPECT_EQ(testing::SumOf(samples, "sluice_callbacks_total", label), counts.all);
    EXPECT_EQ(testing::SumOf(samples, "sluice_slow_callbacks_total", label), counts.slow);
    EXPECT_NEAR(testing::SumOf(samples, "sluice_callback_seconds_total", label),
                Seconds(counts.total), 1e-9);
    EXPECT_GT(counts.slow, 0u);
    EXPECT_GE(counts.all, counts.slow + 10);
  }
}

}  // namespace
}  // namespace sluice
