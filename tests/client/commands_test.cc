#include "client/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "base/reason.h"
#include "client/connection.h"
#include "client/exit_code.h"
#include "client/stats.h"
#include "tests/client/command_fixture.h"

namespace sluice::client {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A service that answers with the reversed input; the text "fail" gives an error.
class FakeService : public inference::GRPCInferenceService::Service {
 public:
  std::vector<std::string> models = {"demo"};
  std::string state = "READY", reason;
  std::map<std::string, std::string> properties;

  grpc::Status RepositoryIndex(grpc::ServerContext*, const inference::RepositoryIndexRequest*,
                               inference::RepositoryIndexResponse* response) override {
    for (const std::string& name : models) {
      auto* model = response->add_models();
      model->set_name(name);
      model->set_version("1");
      model->set_state(state);
      model->set_reason(reason);
    }
    return grpc::Status::OK;
  }

  grpc::Status ModelMetadata(grpc::ServerContext*, const inference::ModelMetadataRequest* request,
                             inference::ModelMetadataResponse* response) override {
    if (request->name() == "loading") return {grpc::StatusCode::NOT_FOUND, "not loaded"};
    response->set_platform("sluice");
    response->mutable_properties()->insert(properties.begin(), properties.end());
    auto* input = response->add_inputs();
    input->set_name("input_ids");
    input->set_datatype("INT32");
    input->add_shape(-1);
    input->add_shape(-1);
    return grpc::Status::OK;
  }

  grpc::Status ModelInfer(grpc::ServerContext* context, const inference::ModelInferRequest* request,
                          inference::ModelInferResponse* response) override {
    {
      absl::MutexLock lock(&mu_);
      last_request_ = *request;
    }
    const std::string text = request->raw_input_contents(0).substr(4);
    if (text.starts_with("reason ")) {
      context->AddTrailingMetadata("sluice-reason", text.substr(7));
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "m"};
    }
    if (text == "fail") return {grpc::StatusCode::INVALID_ARGUMENT, "max_tokens: out of range"};
    response->set_model_name(request->model_name());
    response->set_id(request->id());
    const std::string reversed(text.rbegin(), text.rend());
    auto* output = response->add_outputs();
    output->set_name("text_output");
    output->set_datatype("BYTES");
    output->add_shape(1);
    output->add_shape(1);
    response->add_raw_output_contents(request->raw_input_contents(0).substr(0, 4) + reversed);
    return grpc::Status::OK;
  }

  grpc::Status ModelStatistics(grpc::ServerContext*, const inference::ModelStatisticsRequest*,
                               inference::ModelStatisticsResponse* response) override {
    auto* model = response->add_model_stats();
    model->set_name("demo");
    model->set_version("1");
    model->set_inference_count(12);
    model->set_execution_count(5);
    model->mutable_inference_stats()->mutable_success()->set_count(4);
    model->mutable_inference_stats()->mutable_success()->set_ns(10'000'000);
    return grpc::Status::OK;
  }

  inference::ModelInferRequest last_request() {
    absl::MutexLock lock(&mu_);
    return last_request_;
  }

 private:
  absl::Mutex mu_;
  inference::ModelInferRequest last_request_;
};

class FakeHealth : public grpc::health::v1::Health::Service {
 public:
  grpc::Status Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest* request,
                     grpc::health::v1::HealthCheckResponse* response) override {
    if (request->service() == "unknown") return {grpc::StatusCode::NOT_FOUND, "no such service"};
    response->set_status(request->service() == "sluice.liveness"
                             ? grpc::health::v1::HealthCheckResponse::SERVING
                             : grpc::health::v1::HealthCheckResponse::NOT_SERVING);
    return grpc::Status::OK;
  }
};

class CommandsTest : public CommandFixture {
 protected:
  void SetUp() override { Serve({&service_, &health_}); }

  std::vector<json> OutLines() const {
    std::vector<json> lines;
    for (absl::string_view line : absl::StrSplit(out_, '\n', absl::SkipEmpty())) {
      lines.push_back(json::parse(line.begin(), line.end()));
    }
    return lines;
  }

  FakeService service_;
  FakeHealth health_;
};

TEST_F(CommandsTest, InferPrintsTheText) {
  EXPECT_EQ(RunWith({"infer", "--text", "abc", "--max-tokens", "5"}), kExitOk);
  EXPECT_EQ(out_, "cba\n");
  EXPECT_THAT(error_, testing::MatchesRegex("[0-9.]+ s\n"));
  EXPECT_EQ(service_.last_request().model_name(), "demo");
  EXPECT_EQ(service_.last_request().parameters().at("max_tokens").int64_param(), 5);
}

TEST_F(CommandsTest, InferPrintsJson) {
  EXPECT_EQ(RunWith({"infer", "--text", "abc", "--json", "--id", "r"}), kExitOk);
  EXPECT_EQ(error_, "");
  ASSERT_EQ(OutLines().size(), 1);
  EXPECT_EQ(OutLines()[0]["outputs"]["text_output"], "cba");
  EXPECT_EQ(OutLines()[0]["id"], "r");
}

TEST_F(CommandsTest, AnErrorHasItsCodeAndMessage) {
  EXPECT_EQ(RunWith({"infer", "--text", "fail"}), kExitFailed);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(error_, "sluice: INVALID_ARGUMENT: max_tokens: out of range\n");
}

TEST_F(CommandsTest, SeveralModelsNeedAName) {
  service_.models = {"a", "b"};
  EXPECT_EQ(RunWith({"infer", "--text", "x"}), kExitFailed);
  EXPECT_THAT(error_, HasSubstr("choose one with --model: a, b"));
  EXPECT_EQ(RunWith({"infer", "--text", "x", "--model", "b"}), kExitOk);
  service_.models = {};
  EXPECT_EQ(RunWith({"infer", "--text", "x"}), kExitFailed);
  EXPECT_THAT(error_, HasSubstr("serves no model"));
}

TEST_F(CommandsTest, FileResultsComeInOrderWithASummary) {
  std::string input;
  for (int i = 0; i < 50; ++i) absl::StrAppend(&input, "{\"text\": \"line ", i, "\"}\n");
  EXPECT_EQ(RunWith({"infer", "--file", "-", "--concurrency", "7"}, input), kExitOk);
  const std::vector<json> lines = OutLines();
  ASSERT_EQ(lines.size(), 50);
  for (int i = 0; i < 50; ++i) {
    std::string text = absl::StrCat("line ", i);
    std::reverse(text.begin(), text.end());
    EXPECT_EQ(lines[i]["line"], i + 1);
    EXPECT_EQ(lines[i]["outputs"]["text_output"], text);
  }
  EXPECT_THAT(error_, StartsWith("requests  50 in "));
  EXPECT_THAT(error_, HasSubstr("p99"));
}

TEST_F(CommandsTest, BadLinesAreReportedAndTheOthersRun) {
  EXPECT_EQ(RunWith({"infer", "--file", "-"},
                    "{\"text\": \"ab\"}\n\n{\"txt\": 1}\n{\"text\": \"fail\"}\n{\"text\": \"cd\"}"),
            kExitFailed);
  const std::vector<json> lines = OutLines();
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(lines[0]["outputs"]["text_output"], "ba");
  EXPECT_EQ(lines[1]["line"], 3);
  EXPECT_EQ(lines[1]["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(lines[1]["error"]["message"], "-:3: unknown key \"txt\"; did you mean text?");
  EXPECT_EQ(lines[2]["error"]["message"], "max_tokens: out of range");
  EXPECT_EQ(lines[3]["outputs"]["text_output"], "dc");
  EXPECT_THAT(error_, StartsWith("requests  4 in "));
  EXPECT_THAT(error_, HasSubstr("2 failed"));
}

TEST_F(CommandsTest, ReadsAFileAndShowsProgressOnATerminal) {
  const std::string path = absl::StrCat(testing::TempDir(), "/commands_test.jsonl");
  std::ofstream(path) << "{\"text\": \"ab\"}\n";
  console_.progress = true;
  EXPECT_EQ(RunWith({"infer", "--file", path}), kExitOk);
  EXPECT_THAT(error_, HasSubstr("100%  1 requests"));
  std::filesystem::remove(path);
  EXPECT_EQ(RunWith({"infer", "--file", path}), kExitUsage);
  EXPECT_THAT(error_, HasSubstr(path));
}

TEST_F(CommandsTest, AFileThatCannotBeReadIsAUsageErrorAndNotAFailedRequest) {
  EXPECT_EQ(RunWith({"infer", "--file", testing::TempDir()}), kExitUsage);
  EXPECT_EQ(out_, "");
  EXPECT_THAT(error_, HasSubstr(absl::StrCat(testing::TempDir(), ":1: cannot be read\n")));
  EXPECT_THAT(error_, HasSubstr("requests  0 in "));
  EXPECT_THAT(error_, HasSubstr(" 0 failed\n"));
}

TEST_F(CommandsTest, ModelsListsModelsWithAndWithoutMetadata) {
  service_.models = {"demo", "loading"};
  EXPECT_EQ(RunWith({"models"}), kExitOk);
  EXPECT_EQ(out_,
            "NAME     VERSION  STATE  PROFILE  ATTENTION  READY AFTER\n"
            "demo           1  READY  -        -          -\n"
            "loading        1  READY  -        -          -\n"
            "\n"
            "demo 1\n"
            "  takes      input_ids\n");
}

// The server's texts have no bound.
TEST_F(CommandsTest, ModelsPrintsATableOfAtMost100ColumnsAndLongTextsBelowIt) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 50; ++i) {
    SCOPED_TRACE(absl::StrCat("seed 1, turn ", i));
    const auto words = [&random](int most) {
      std::string text;
      for (int left = std::uniform_int_distribution<int>(0, most)(random); left > 0; --left) {
        text += left % 8 == 0 ? " " : left % 5 == 0 ? "\u00e4" : "w";
      }
      return text;
    };
    service_.models = {words(60), "demo"};
    service_.state = words(40);
    service_.reason = "the last load failed: " + words(400);
    service_.properties = {{"profile", words(100)},
                           {"attention", words(40)},
                           {"kernels", words(300)},
                           {"ready_after", words(40)}};
    EXPECT_EQ(RunWith({"models"}), kExitOk);
    for (const absl::string_view line : absl::StrSplit(out_, '\n')) EXPECT_LE(line.size(), 100u);
    std::string flat(absl::StrReplaceAll(out_, {{" ", ""}, {"\n", ""}}));
    for (const std::string& text :
         {service_.reason, service_.properties["profile"], service_.properties["kernels"]}) {
      EXPECT_THAT(flat, HasSubstr(absl::StrReplaceAll(text, {{" ", ""}})));
    }
    EXPECT_EQ(RunWith({"models", "--json"}), kExitOk);
    EXPECT_EQ(json::parse(out_)["models"][0]["reason"], service_.reason);
  }
}

TEST_F(CommandsTest, ModelsPrintsJsonAndCanShowOneModel) {
  service_.models = {"demo", "loading"};
  EXPECT_EQ(RunWith({"models", "--json", "--model", "demo"}), kExitOk);
  const json listed = json::parse(out_);
  ASSERT_EQ(listed["models"].size(), 1u);
  EXPECT_EQ(listed["models"][0]["name"], "demo");
  EXPECT_EQ(listed["models"][0]["metadata"]["inputs"][0]["datatype"], "INT32");
  EXPECT_EQ(RunWith({"models", "--model", "dem"}), kExitFailed);
  EXPECT_THAT(error_, HasSubstr("no model dem; there are: demo, loading"));
}

TEST_F(CommandsTest, StatsShowsCountsEvenWithoutMetrics) {
  EXPECT_EQ(RunWith({"stats", "--metrics-address", "none"}), kExitOk);
  const std::vector<std::string> lines = absl::StrSplit(out_, '\n');
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(lines[1], ' ', absl::SkipEmpty())),
            (std::vector<std::string>{"demo", "1", "4", "0", "12", "5", "-", "-", "2.50", "0.0"}));
  EXPECT_EQ(error_, "");
  EXPECT_EQ(RunWith({"stats", "--json", "--metrics-address", "none"}), kExitOk);
  const json counts = json::parse(out_)["model_stats"][0]["inference_stats"];
  EXPECT_EQ(counts["success"]["count"], "4");
  EXPECT_EQ(RunWith({"stats", "--metrics-address", "127.0.0.1:1"}), kExitOk);
  EXPECT_THAT(error_, HasSubstr("127.0.0.1:1"));
}

TEST_F(CommandsTest, HealthReportsByItsExitCode) {
  EXPECT_EQ(RunWith({"health"}), kExitFailed);
  EXPECT_EQ(out_, "NOT_SERVING\n");
  EXPECT_EQ(RunWith({"health", "--service", "sluice.liveness"}), kExitOk);
  EXPECT_EQ(out_, "SERVING\n");
  EXPECT_EQ(RunWith({"health", "--service", "unknown"}), kExitFailed);
  EXPECT_THAT(error_, HasSubstr("NOT_FOUND"));
}

TEST_F(CommandsTest, AMissingServerIsReported) {
  server_->Shutdown();
  for (const char* command : {"models", "stats", "health"}) {
    EXPECT_EQ(RunWith({command}), kExitUnavailable);
    EXPECT_THAT(error_, HasSubstr("sluice: UNAVAILABLE: "));
    EXPECT_THAT(error_, HasSubstr(absl::StrCat("hint: no server answers at ", address_)));
  }
}

TEST_F(CommandsTest, TheHintFollowsTheReasonOfTheServer) {
  EXPECT_EQ(RunWith({"infer", "--text", "reason rate_limited"}), kExitFailed);
  EXPECT_THAT(error_, StartsWith("sluice: RESOURCE_EXHAUSTED: m\nhint: rate_limited: The caller "));
  EXPECT_THAT(error_, Not(HasSubstr("overloaded")));
  EXPECT_EQ(RunWith({"infer", "--text", "reason memory"}), kExitFailed);
  EXPECT_THAT(error_, HasSubstr("hint: memory: "));
  EXPECT_EQ(RunWith({"infer", "--text", "reason resource_exhausted"}), kExitFailed);
  EXPECT_THAT(error_, HasSubstr("hint: resource_exhausted: There are too few descriptors or too "
                                "little memory to load a model."));
  // A reason of another code, and one of a later server, are ignored.
  for (const char* other : {"draining", "no_such_reason"}) {
    EXPECT_EQ(RunWith({"infer", "--text", absl::StrCat("reason ", other)}), kExitFailed);
    EXPECT_THAT(error_, HasSubstr("hint: the message is too large"));
  }
}

TEST(FailureText, AnUnavailableServerThatGivesItsReasonDoesAnswer) {
  const std::string text = FailureText(ReasonError(Reason::kDraining, "m"), Arguments());
  EXPECT_THAT(text, StartsWith("sluice: UNAVAILABLE: m\nhint: draining: "));
  EXPECT_THAT(text, HasSubstr(std::string(InfoOf(Reason::kDraining).remedy)));
  EXPECT_THAT(text, Not(HasSubstr("no server answers")));
}

TEST(FailureText, AnUnknownTokenIsNotAMissingCredential) {
  EXPECT_THAT(FailureText(ReasonError(Reason::kTokenUnknown, "m"), Arguments()),
              HasSubstr("hint: the daemon does not know this token: "));
  for (const absl::Status& error :
       {ReasonError(Reason::kCredentialMissing, "m"), absl::UnauthenticatedError("m")}) {
    EXPECT_THAT(FailureText(error, Arguments()),
                HasSubstr("hint: the server requires a credential"));
  }
}

TEST(FailureText, AFailedCertificateCheckNamesTheFlagOfTheAuthority) {
  Arguments arguments;
  arguments.server = "host:1";
  const std::string text = FailureText(
      absl::UnavailableError("failed to connect to all addresses; last error: UNKNOWN: Ssl "
                             "handshake failed: SSL_ERROR_SSL: certificate verify failed"),
      arguments);
  EXPECT_THAT(text, HasSubstr("hint: the certificate of host:1 "));
  EXPECT_THAT(text, HasSubstr("--ca FILE"));
  EXPECT_THAT(FailureText(absl::UnavailableError("Hostname Verification Check failed."), arguments),
              HasSubstr("--server-name"));
}

TEST(FailureText, AnAdminCommandNamesTheAdminAddress) {
  Arguments arguments;
  arguments.calls_admin = true;
  const std::string text = FailureText(absl::UnavailableError("m"), arguments);
  EXPECT_THAT(text, HasSubstr("give the daemon's server.admin.address with --admin or "
                              "SLUICE_ADMIN"));
  EXPECT_THAT(text, Not(HasSubstr("SLUICE_SERVER")));
  EXPECT_THAT(FailureText(absl::UnavailableError("m"), Arguments()), HasSubstr("SLUICE_SERVER"));
}

TEST(EfficiencyTable, ComputesFromTheCounters) {
  inference::ModelStatisticsResponse statistics;
  auto* model = statistics.add_model_stats();
  model->set_name("demo");
  model->set_version("2");
  const auto samples = ParseMetrics(
      "sluice_tokens_total{model=\"demo\",version=\"2\",device=\"cpu\",kind=\"useful\"} 75\n"
      "sluice_tokens_total{model=\"demo\",version=\"2\",device=\"cpu\",kind=\"bucket\"} 100\n"
      "sluice_tokens_total{model=\"demo\",version=\"2\",device=\"cpu\",kind=\"computed\"} 80\n"
      "sluice_tokens_total{model=\"demo\",version=\"1\",device=\"cpu\",kind=\"useful\"} 1000\n"
      "sluice_plan_lookups_total{model=\"demo\",version=\"2\",result=\"hit\",reason=\"\"} 9\n"
      "sluice_plan_lookups_total{model=\"demo\",version=\"2\",result=\"miss\",reason=\"evicted\"} "
      "1\n"
      "sluice_requests_waiting{model=\"demo\",version=\"2\"} 3\n"
      "sluice_rejected_total{model=\"demo\",reason=\"queue_full\"} 6\n");
  ASSERT_TRUE(samples.ok());
  const std::vector<std::string> lines =
      absl::StrSplit(EfficiencyTable(statistics, *samples), '\n');
  EXPECT_EQ(
      std::vector<std::string>(absl::StrSplit(lines[1], ' ', absl::SkipEmpty())),
      (std::vector<std::string>{"demo", "2", "75", "75.0%", "93.8%", "90.0%", "3", "0", "6"}));
  const json shown = StatisticsJson(statistics, &*samples)["model_stats"][0];
  EXPECT_EQ(shown["name"], "demo");
  EXPECT_EQ(shown["metrics"],
            json::parse(R"({"useful_tokens": 75, "bucket_tokens": 100, "rejected": 6,
                                      "computed_tokens": 80, "plan_hits": 9, "plan_lookups": 10,
                                      "waiting": 3, "running": 0})"));
  EXPECT_FALSE(StatisticsJson(statistics, nullptr)["model_stats"][0].contains("metrics"));
}

}  // namespace
}  // namespace sluice::client
