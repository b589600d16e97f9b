#include "loadtest/load/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <map>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "loadtest/load/arguments.h"
#include "loadtest/load/test_server.h"

namespace sluice::load {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

std::unique_ptr<TestServer> Serve(const TestServerOptions& options) {
  auto server = TestServer::Start(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

// Options of a short session in which only the tested property can make a phase INVALID.
SessionOptions Short(const TestServer& server) {
  SessionOptions options;
  options.address = server.address();
  options.warm_up = milliseconds(200);
  options.duration = milliseconds(800);
  options.limits.min_duration = nanoseconds{0};
  options.limits.min_calls = 1;
  options.limits.max_lateness_share = 1e6;
  options.limits.max_thread_share = 1e6;
  options.objective = {seconds(100), 50};
  return options;
}

// A server of a metrics page that answers this many requests, and then only with errors.
class MetricsPage {
 public:
  explicit MetricsPage(int answers) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_, any, size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    EXPECT_EQ(getsockname(socket_, any, &size), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this, answers] { Run(answers); });
  }
  ~MetricsPage() {
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }

  const std::string& address() const { return address_; }

 private:
  void Run(int answers) {
    for (int caller = -1; (caller = accept(socket_, nullptr, nullptr)) >= 0; close(caller)) {
      std::string request;
      char byte;
      while (!request.ends_with("\r\n\r\n") && read(caller, &byte, 1) == 1) request += byte;
      const std::string answer = answers-- > 0
                                     ? "HTTP/1.1 200 OK\r\n\r\nsluice_build_info{version=\"1\"} 1\n"
                                     : "HTTP/1.1 503 Gone\r\n\r\n";
      EXPECT_EQ(write(caller, answer.data(), answer.size()), std::ssize(answer));
    }
  }

  const int socket_;
  std::string address_;
  std::thread thread_;
};

json Measure(const SessionOptions& options) {
  std::ostringstream out;
  EndedSession ended = RunSession(options, &out, false);
  EXPECT_TRUE(ended.status.ok()) << ended.status;
  return std::move(ended.report);
}

TEST(RunSession, ReportsEveryLoad) {
  const auto server = Serve({});
  SessionOptions options = Short(*server);
  options.rates = {50, 100};
  options.concurrencies = {2};
  options.label = "test";
  const json report = Measure(options);
  ASSERT_EQ(report["phases"].size(), 3u);
  EXPECT_EQ(report["phases"][0]["loop"], "open");
  EXPECT_EQ(report["phases"][1]["rate_per_s"], 100);
  EXPECT_EQ(report["phases"][2]["loop"], "closed");
  EXPECT_EQ(report["phases"][2]["concurrency"], 2);
  EXPECT_EQ(report["label"], "test");
  EXPECT_EQ(report["seed"], 1);
  EXPECT_EQ(report["server"]["name"], "sluice-load null-server");
  EXPECT_GT(report["host"]["processors"], 0);
  EXPECT_TRUE(AllValid(report)) << report["phases"];
}

TEST(RunSession, TooShortAPhaseIsInvalid) {
  const auto server = Serve({});
  SessionOptions options = Short(*server);
  options.rates = {50};
  options.limits.min_duration = seconds(10);
  const json report = Measure(options);
  EXPECT_FALSE(AllValid(report));
  EXPECT_EQ(report["phases"][0]["verdict"], "INVALID");
  EXPECT_THAT(report["phases"][0]["reasons"][0].get<std::string>(), HasSubstr("measured for"));
}

TEST(RunSession, AClientAtItsLimitMakesThePhaseInvalid) {
  const auto server = Serve({});
  SessionOptions options = Short(*server);
  // No machine can send this many calls from one thread in this time.
  options.rates = {2'000'000};
  options.warm_up = nanoseconds{0};
  options.duration = milliseconds(50);
  options.limits.max_lateness_share = 0.01;
  options.objective.latency = milliseconds(100);
  const json report = Measure(options);
  EXPECT_EQ(report["phases"][0]["verdict"], "INVALID");
  EXPECT_THAT(report["phases"][0]["reasons"].dump(), HasSubstr("the client sent late"));
}

TEST(RunSession, FindsThePeakOfAServerOfKnownCapacity) {
  TestServerOptions slow;
  slow.service_time = milliseconds(5);  // 200 a second at most
  const auto server = Serve(slow);
  SessionOptions options = Short(*server);
  options.workload.arrivals = ArrivalKind::kConstant;
  options.find_peak = true;
  options.rates = {50};
  options.peak_tolerance = 0.5;
  options.warm_up = nanoseconds{0};
  options.duration = seconds(1);
  // At 400/s the last arrival in the second waits for one second; half of the calls are late.
  options.objective = {milliseconds(400), 99};
  const json report = Measure(options);
  EXPECT_GE(report["phases"].size(), 2u);
  EXPECT_LT(report["peak"]["rate_per_s"], 400);
}

TEST(RunSession, AnswersAreComparedWithARecord) {
  const std::string path = testing::TempDir() + "/answers.txt";
  SessionOptions options;
  {
    const auto server = Serve({});
    options = Short(*server);
    options.rates = {100};
    options.record_path = path;
    EXPECT_TRUE(AllValid(Measure(options)));
  }
  options.record_path.clear();
  options.check_path = path;
  {
    const auto same = Serve({});
    options.address = same->address();
    const json report = Measure(options);
    EXPECT_TRUE(AllValid(report));
    EXPECT_GT(report["answers"]["matched"], 0);
  }
  TestServerOptions wrong;
  wrong.wrong_every = 1;
  const auto other = Serve(wrong);
  options.address = other->address();
  const json report = Measure(options);
  EXPECT_THAT(report["phases"][0]["reasons"].dump(), HasSubstr("answers differ"));
}

TEST(RunSession, ReportsWrongOptionsBeforeItSends) {
  const auto server = Serve({});
  SessionOptions options = Short(*server);
  options.rates = {10};
  options.workload.lengths = "nonsense";
  EXPECT_EQ(RunSession(options, nullptr, false).status.code(), absl::StatusCode::kInvalidArgument);
  options = Short(*server);
  options.check_path = "/no/such";
  EXPECT_EQ(RunSession(options, nullptr, false).status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(server->requests(), 0);
}

// The address has no server, so only errors of the options are InvalidArgument or NotFound.
TEST(RunSession, ChecksAllOptionsBeforeItConnects) {
  SessionOptions options;
  options.address = "127.0.0.1:1";
  const auto code_with = [&](auto&& change) {
    SessionOptions changed = options;
    changed.rates = {5};
    change(changed);
    return RunSession(changed, nullptr, false).status.code();
  };
  using absl::StatusCode;
  EXPECT_EQ(code_with([](SessionOptions& each) {
              each.rates = {5, 20'000'000};
            }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code_with([](SessionOptions& each) { each.rates = {std::nan("")}; }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code_with([](SessionOptions& each) { each.rates = {1e-9}; }),
            StatusCode::kInvalidArgument)
      << "no request arrives";
  EXPECT_EQ(code_with([](SessionOptions& each) {
              each.find_peak = true;
              each.rates = {-1};
            }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code_with([](SessionOptions& each) {
              each.rates.clear();
              each.concurrencies = {2};
              each.workload.lengths = "fixed:0";
            }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code_with([](SessionOptions& each) { each.record_path = "/no/such/file"; }),
            StatusCode::kNotFound);
}

// At a low rate, no request arrives in a phase.
TEST(RunSession, ThePeakIsZeroIfNoRateMeetsTheObjective) {
  TestServerOptions slow;
  slow.delay = milliseconds(5);
  const auto server = Serve(slow);
  SessionOptions options = Short(*server);
  options.find_peak = true;
  options.rates = {10};
  options.warm_up = nanoseconds{0};
  options.duration = milliseconds(500);
  options.objective = {nanoseconds{1}, 99};
  const json report = Measure(options);
  EXPECT_EQ(report["peak"]["rate_per_s"], 0);
  EXPECT_LT(report["phases"].size(), 24u) << "the search ends after this many";
}

TEST(RunSession, TheMetricsAreReadBeforeTheFirstPhase) {
  const auto server = Serve({});
  const MetricsPage page(0);
  SessionOptions options = Short(*server);
  options.rates = {50};
  options.metrics_url = page.address();
  EXPECT_THAT(std::string(RunSession(options, nullptr, false).status.message()),
              HasSubstr("metrics: "));
  EXPECT_EQ(server->requests(), 0);
}

TEST(RunSession, APhaseWhoseLastMetricsFailIsKeptAsInvalid) {
  const auto server = Serve({});
  const MetricsPage page(2);  // before the phases, and at the beginning of the first
  SessionOptions options = Short(*server);
  options.rates = {50};
  options.metrics_url = page.address();
  const json report = Measure(options);
  ASSERT_EQ(report["phases"].size(), 1u);
  EXPECT_EQ(report["phases"][0]["verdict"], "INVALID");
  EXPECT_THAT(report["phases"][0]["reasons"].dump(), HasSubstr("metrics: "));
}

// The device can be opened, but not written.
TEST(RunSession, AnErrorAtTheEndKeepsThePhases) {
  const auto server = Serve({});
  SessionOptions options = Short(*server);
  options.rates = {50};
  options.record_path = "/dev/full";
  const EndedSession ended = RunSession(options, nullptr, false);
  EXPECT_FALSE(ended.status.ok());
  ASSERT_EQ(ended.report["phases"].size(), 1u);
  EXPECT_EQ(ended.report["phases"][0]["verdict"], "VALID");
  EXPECT_THAT(ended.report["error"].get<std::string>(), HasSubstr("cannot write /dev/full"));
}

Parsed Parse(const std::vector<const char*>& words) {
  std::vector<const char*> argv = {"sluice-load"};
  argv.insert(argv.end(), words.begin(), words.end());
  return ParseArguments(static_cast<int>(argv.size()), argv.data());
}

TEST(ParseArguments, SetsTheOptions) {
  const Parsed parsed =
      Parse({"run", "--rate", "10,20", "--arrivals", "bursty", "--max-tokens", "16", "--seed", "9",
             "--duration", "1.5", "--objective-ms", "25", "--parameter", "top_k", "5"});
  ASSERT_LT(parsed.exit_code, 0);
  const SessionOptions& options = parsed.arguments.session;
  EXPECT_EQ(options.rates, (std::vector<double>{10, 20}));
  EXPECT_EQ(options.workload.arrivals, ArrivalKind::kBursty);
  EXPECT_EQ(options.workload.max_tokens, 16);
  EXPECT_EQ(options.workload.seed, 9u);
  EXPECT_EQ(options.payload.seed, 9u);
  EXPECT_EQ(options.duration, milliseconds(1500));
  EXPECT_EQ(options.objective.latency, milliseconds(25));
  EXPECT_EQ(options.payload.parameters.at("top_k"), "5");
  const Parsed listed = Parse({"run", "--rate", "1", "--parameter", "stop", "[\"a\", \"b\"]",
                               "--parameter", "spans", "[]"});
  ASSERT_LT(listed.exit_code, 0);
  EXPECT_EQ(listed.arguments.session.payload.parameters,
            (std::map<std::string, std::string>{{"stop", "[\"a\", \"b\"]"}, {"spans", "[]"}}));
  EXPECT_EQ(options.limits.max_lateness_share, 0.01);
  EXPECT_EQ(Parse({"run", "--rate", "1", "--max-lateness", "0.05"})
                .arguments.session.limits.max_lateness_share,
            0.05);
  EXPECT_TRUE(Parse({"run", "--rate", "1", "--max-tokens", "trace"})
                  .arguments.session.workload.max_tokens_from_trace);
}

TEST(ConfigurationJson, NamesFilesWithoutTheirFolders) {
  SessionOptions options;
  options.trace_path = "/tmp/scratch/trace.csv";
  options.workload.lengths = "file:/home/me/lengths.csv";
  const nlohmann::json made = ConfigurationJson(options);
  EXPECT_EQ(made["trace"], "trace.csv");
  EXPECT_EQ(made["lengths"], "file:lengths.csv");
  options.trace_path = "";
  options.workload.lengths = "lognormal:40:1";
  EXPECT_EQ(ConfigurationJson(options)["trace"], "");
  EXPECT_EQ(ConfigurationJson(options)["lengths"], "lognormal:40:1");
}

TEST(ConfigurationJson, IsAClosedLoopOnlyWithoutRates) {
  SessionOptions options;
  options.concurrencies = {1};
  EXPECT_EQ(ConfigurationJson(options)["arrivals"]["kind"], "closed loop");
  options.rates = {5};
  EXPECT_EQ(ConfigurationJson(options)["arrivals"]["kind"], "exponential");
}

TEST(ParseArguments, RefusesWrongArguments) {
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{},
                                             {"run"},
                                             {"run", "--rate", "x"},
                                             {"run", "--rate", "1", "--arrivals", "never"},
                                             {"run", "--rate", "1", "--duration", "-1"},
                                             {"run", "--rate", "1", "--channels", "0"},
                                             {"run", "--rate", "1", "--max-tokens", "many"},
                                             {"run", "--find-peak", "--concurrency", "4"},
                                             {"report", "--out", "x"}}) {
    EXPECT_EQ(Parse(words).exit_code, kExitUsage) << testing::PrintToString(words);
  }
  EXPECT_EQ(Parse({"--help"}).exit_code, kExitValid);
}

}  // namespace
}  // namespace sluice::load
