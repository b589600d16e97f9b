// Tests buckets, review, explain, reload and fit against a server that has only an admin service.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/exit_code.h"
#include "tests/client/command_fixture.h"

namespace sluice::client {
namespace {

namespace v1 = admin::v1;
using nlohmann::json;
using testing::HasSubstr;

// Answers ServerMetadata, and counts the calls that unload a model.
class FakeDaemon : public inference::GRPCInferenceService::Service {
 public:
  explicit FakeDaemon(std::string extension) : extension_(std::move(extension)) {}

  grpc::Status ServerMetadata(grpc::ServerContext*, const inference::ServerMetadataRequest*,
                              inference::ServerMetadataResponse* response) override {
    response->add_extensions("statistics");
    response->add_extensions(extension_);
    return grpc::Status::OK;
  }
  grpc::Status RepositoryModelUnload(grpc::ServerContext*,
                                     const inference::RepositoryModelUnloadRequest*,
                                     inference::RepositoryModelUnloadResponse*) override {
    ++unloads;
    return grpc::Status::OK;
  }

  int unloads = 0;

 private:
  const std::string extension_;
};

class FakeAdmin : public v1::Admin::Service {
 public:
  grpc::Status GetBuckets(grpc::ServerContext*, const v1::GetBucketsRequest* request,
                          v1::GetBucketsResponse* response) override {
    if (request->model_name() == "absent") return {grpc::StatusCode::NOT_FOUND, "no model"};
    auto* model = response->add_models();
    model->set_model_name("demo");
    model->mutable_last_hour()->set_batches(++calls + (wasteful ? 1000 : 0));
    model->mutable_last_hour()->set_useful_tokens(60);
    model->mutable_last_hour()->set_computed_tokens(wasteful ? 80 : 60);
    model->set_wasted_share(0.25);
    (*model->mutable_ladder_options())["ratio"] = "1.5";
    (*model->mutable_ladder_kept())["strategy"] = "geometric";
    return grpc::Status::OK;
  }
  grpc::Status RunReview(grpc::ServerContext*, const v1::RunReviewRequest* request,
                         v1::RunReviewResponse* response) override {
    response->set_reason(absl::StrCat(request->model_name(), request->force() ? " forced" : ""));
    return grpc::Status::OK;
  }
  grpc::Status SetLadder(grpc::ServerContext*, const v1::SetLadderRequest* request,
                         v1::RunReviewResponse* response) override {
    std::map<std::string, std::string> options(request->options().begin(),
                                               request->options().end());
    response->set_reason(absl::StrCat(request->model_name(), request->keep() ? " kept" : "", ":"));
    for (const auto& [option, value] : options) {
      absl::StrAppend(response->mutable_reason(), " ", option, "=", value);
    }
    return grpc::Status::OK;
  }
  grpc::Status TryStrategies(grpc::ServerContext*, const v1::TryStrategiesRequest* request,
                             v1::TryStrategiesResponse* response) override {
    if (request->model_name() == "new") {
      return {grpc::StatusCode::FAILED_PRECONDITION, "only 3 sequences arrived"};
    }
    ++simulations;
    response->set_arrivals(500);
    response->set_margin(0.02);
    response->set_best("geometric 2");
    response->add_trials()->set_name("present");
    v1::StrategyTrial* const trial = response->add_trials();
    trial->set_name("geometric 2");
    trial->set_gain(0.25);
    trial->set_wasted_share(0.125);
    (*trial->mutable_options())["strategy"] = "geometric";
    (*trial->mutable_options())["ratio"] = "2";
    return grpc::Status::OK;
  }
  grpc::Status Explain(grpc::ServerContext*, const v1::ExplainRequest* request,
                       v1::ExplainResponse* response) override {
    if (request->request_id() == "absent") return {grpc::StatusCode::NOT_FOUND, "no request"};
    response->set_status("OK");
    return grpc::Status::OK;
  }

  grpc::Status Reload(grpc::ServerContext*, const v1::ReloadRequest*,
                      v1::ReloadResponse* response) override {
    if (++calls > 2) return {grpc::StatusCode::INVALID_ARGUMENT, "f.yaml:3: nonsense"};
    if (calls == 2) response->add_failed_models("other version 1: no weights");
    response->add_applied("models");
    response->add_applied("server.log.level");
    response->add_loaded_models("demo version 2");
    response->add_withdrawn_models("demo version 1");
    response->add_needs_restart("cpu.threads");
    return grpc::Status::OK;
  }

  int calls = 0;
  int simulations = 0;
  bool wasteful = false;  // the device computed rows without useful tokens
};

class BucketCommandsTest : public CommandFixture {
 protected:
  void SetUp() override {
    Serve({&admin_});
    console_.pause = [this](absl::Duration duration) {
      paused_ = duration;
      return --redraws_ > 0;
    };
  }

  FakeAdmin admin_;
  int redraws_ = 1;
  absl::Duration paused_;
};

TEST_F(BucketCommandsTest, BucketsPrintsATableAndAdvice) {
  EXPECT_EQ(RunWith({"buckets"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("FILL"));
  EXPECT_THAT(out_, testing::Not(HasSubstr("too few")));
  EXPECT_EQ(RunWith({"buckets", "--advise"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("too few"));
  EXPECT_EQ(RunWith({"buckets", "--model", "absent"}), kExitFailed);
  EXPECT_THAT(error_, HasSubstr("NOT_FOUND"));
}

TEST_F(BucketCommandsTest, BucketsPrintsTheWastedTimeAndTheBestLaddersIfTimeWasWasted) {
  EXPECT_EQ(RunWith({"buckets"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("wasted      0.0% of the device's time"));
  EXPECT_EQ(admin_.simulations, 0) << "no ladder could waste less";
  admin_.wasteful = true;
  EXPECT_EQ(RunWith({"buckets"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("wasted      25.0% of the device's time"));
  EXPECT_THAT(out_, HasSubstr("(\"geometric 2\")"));
  EXPECT_THAT(out_, HasSubstr("waste 12.5%"));
  EXPECT_EQ(admin_.simulations, 1);
  EXPECT_EQ(RunWith({"buckets", "--advise"}), kExitOk);
  EXPECT_EQ(admin_.simulations, 2) << "the advice uses the same simulation";
  EXPECT_EQ(RunWith({"buckets", "--json"}), kExitOk);
  EXPECT_EQ(json::parse(out_)["models"][0]["best_ladder"],
            json({{"name", "geometric 2"}, {"wasted_share", 0.125}, {"arrivals", 500}}));
  EXPECT_EQ(RunWith({"buckets", "--watch"}), kExitOk);
  EXPECT_EQ(admin_.simulations, 3) << "--watch does not simulate";
}

TEST_F(BucketCommandsTest, BucketsPrintsJson) {
  EXPECT_EQ(RunWith({"buckets", "--json", "--advise"}), kExitOk);
  const json answer = json::parse(out_);
  EXPECT_EQ(answer["models"][0]["model_name"], "demo");
  EXPECT_EQ(answer["models"][0]["hit_rate"], 0.0) << "zeros are included";
  EXPECT_EQ(answer["models"][0]["advice"].size(), 1u);
}

TEST_F(BucketCommandsTest, WatchRedrawsUntilItIsEnded) {
  console_.terminal = true;
  redraws_ = 3;
  EXPECT_EQ(RunWith({"buckets", "--watch", "0.5"}), kExitOk);
  EXPECT_EQ(admin_.calls, 3);
  EXPECT_EQ(paused_, absl::Milliseconds(500));
  EXPECT_THAT(out_, testing::StartsWith("\x1b[H\x1b[2J"));
  redraws_ = 1;
  EXPECT_EQ(RunWith({"buckets", "--watch"}), kExitOk);
  EXPECT_EQ(paused_, absl::Seconds(2));
  EXPECT_EQ(RunWith({"buckets", "--watch", "--advise"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("too few"));
}

TEST_F(BucketCommandsTest, ReviewPrintsItsResult) {
  EXPECT_EQ(RunWith({"review", "--model", "m"}), kExitOk);
  EXPECT_EQ(out_, "Unchanged: m\n");
  EXPECT_EQ(RunWith({"review", "--model", "m", "--force", "--json"}), kExitOk);
  EXPECT_EQ(json::parse(out_)["reason"], "m forced");
}

TEST_F(BucketCommandsTest, LadderSetSendsTheGivenOptions) {
  EXPECT_EQ(RunWith({"ladder", "set", "m", "--strategy", "geometric", "--ratio", "2", "--keep"}),
            kExitOk);
  EXPECT_EQ(out_, "Unchanged: m kept: ratio=2 strategy=geometric\n");
  EXPECT_EQ(RunWith({"ladder", "set", "m", "--fixed-tokens", "16,64", "--strategy", "fixed"}),
            kExitOk);
  EXPECT_EQ(out_, "Unchanged: m: fixed_tokens=16,64 strategy=fixed\n");
  EXPECT_EQ(RunWith({"ladder", "reset", "m"}), kExitOk);
  EXPECT_EQ(out_, "Unchanged: m:\n");
}

TEST_F(BucketCommandsTest, LadderTryPrintsTheBestLadderAndTheCommandToSetIt) {
  EXPECT_EQ(RunWith({"ladder", "try", "m"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("Take \"geometric 2\": it gains 25.0% over \"present\""));
  EXPECT_THAT(out_, HasSubstr("To do: sluice ladder set m --ratio 2 --strategy geometric\n"));
  EXPECT_EQ(RunWith({"ladder", "try", "m", "--json"}), kExitOk);
  EXPECT_EQ(json::parse(out_)["best"], "geometric 2");
  EXPECT_EQ(RunWith({"ladder", "try", "new"}), kExitFailed);
  EXPECT_THAT(error_, HasSubstr("only 3 sequences arrived"));
}

TEST_F(BucketCommandsTest, LadderShowPrintsOptionsBucketsAndKeptOptions) {
  EXPECT_EQ(RunWith({"ladder", "show"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("model       demo"));
  EXPECT_THAT(out_, HasSubstr("ratio               1.5\n"));
  EXPECT_THAT(out_, HasSubstr("restart     keeps --strategy geometric\n"));
}

TEST_F(BucketCommandsTest, ReloadListsTheChangedOptions) {
  EXPECT_EQ(RunWith({"reload"}), kExitOk);
  EXPECT_EQ(out_,
            "reloaded; applied: models, server.log.level; loaded: demo version 2; unloaded: demo "
            "version 1\n"
            "changed, but needs a restart: cpu.threads\n");
  EXPECT_EQ(RunWith({"reload"}), kExitFailed);
  EXPECT_THAT(out_, HasSubstr("loaded: demo version 2"));
  EXPECT_EQ(error_, "sluice: not loaded: other version 1: no weights\n");
  EXPECT_EQ(RunWith({"reload"}), kExitFailed);
  EXPECT_THAT(error_, HasSubstr("f.yaml:3: nonsense"));
}

TEST_F(BucketCommandsTest, MissingTlsFilesAreNamed) {
  EXPECT_EQ(RunWith({"--ca", "/nonexistent.pem", "buckets"}), kExitUsage);
  EXPECT_EQ(error_, "sluice: cannot read /nonexistent.pem: No such file or directory\n");
}

TEST_F(BucketCommandsTest, ExplainPrintsTheHistoryOfARequest) {
  EXPECT_EQ(RunWith({"explain", "r"}), kExitOk);
  EXPECT_THAT(out_, HasSubstr("Request r"));
  EXPECT_EQ(RunWith({"explain", "absent"}), kExitFailed);
}

TEST_F(BucketCommandsTest, FitNeedsNoServer) {
  server_->Shutdown();
  const std::string out = testing::TempDir() + "/bucket_commands_test.yaml";
  std::filesystem::remove(out);
  EXPECT_EQ(RunWith({"fit", "--lengths", "-", "--max-batch-tokens", "256", "--out", out},
                    "10\n20\n200\n"),
            kExitOk)
      << error_;
  EXPECT_THAT(out_, HasSubstr("fixed_tokens: ["));
  std::stringstream written;
  written << std::ifstream(out).rdbuf();
  EXPECT_EQ(written.str(), out_);
  EXPECT_EQ(RunWith({"fit", "--lengths", "-"}, "5000\n"), kExitUsage);
  EXPECT_EQ(error_,
            "sluice: -:1: expected a length in [1, 4096], got \"5000\"; raise --max-batch-tokens, "
            "or reduce longer sequences with --clip\n");
  EXPECT_EQ(RunWith({"fit", "--lengths", "/nonexistent"}), kExitUsage);
  EXPECT_EQ(RunWith({"fit", "--lengths", "-", "--out", "/nonexistent/x"}, "5\n"), kExitFailed);
}

// Calls the admin API by addresses of the environment: SLUICE_SERVER and SLUICE_ADMIN.
struct Environment {
  std::string server, admin;

  int Run(std::vector<const char*> words, std::string* error) const {
    words.insert(words.begin(), "sluice");
    const auto arguments =
        ParseArguments(static_cast<int>(words.size()), words.data(),
                       [this](const std::string& name) -> const char* {
                         if (name == "SLUICE_ADMIN") return admin.c_str();
                         return name == "SLUICE_SERVER" ? server.c_str() : nullptr;
                       });
    EXPECT_TRUE(arguments.ok()) << arguments.status();
    std::istringstream in;
    std::ostringstream out, errors;
    Console console{};
    console.in = &in;
    console.out = &out;
    console.error = &errors;
    const int code = client::Run(*arguments, console, nullptr);
    *error = errors.str();
    return code;
  }
};

TEST_F(BucketCommandsTest, RefusesTheAdminAddressOfAnotherDaemon) {
  FakeDaemon own("instance:1"), other("instance:2"), old("parameters");
  for (FakeDaemon* const daemon : {&own, &other, &old}) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(daemon);
    const auto server = builder.BuildAndStart();
    FakeDaemon same("instance:1");
    FakeAdmin admin;
    Serve({&admin, &same});
    const Environment environment{absl::StrCat("127.0.0.1:", port), address_};
    std::string error;
    const int code = environment.Run({"reload"}, &error);
    EXPECT_THAT(error, HasSubstr("admin address: " + address_ + "\n"));
    if (daemon == &other) {
      EXPECT_EQ(code, kExitUsage);
      EXPECT_THAT(error,
                  HasSubstr("the admin address " + address_ +
                            " belongs to another daemon than the server " + environment.server));
    } else {
      EXPECT_EQ(code, kExitOk) << error;
    }
    server_.reset();
  }
}

TEST_F(BucketCommandsTest, AnAdminAddressIsNotChosenForAServerThatDoesNotAnswer) {
  FakeDaemon other("instance:2");
  Serve({&other});
  const std::string nowhere = "127.0.0.1:1";
  const Environment environment{nowhere, address_};
  const std::vector<const char*> by_environment = {"unload", "m"};
  const std::vector<const char*> by_flag = {"unload", "m", "--server", nowhere.c_str()};
  std::string error;
  for (const auto& words : {by_environment, by_flag}) {
    EXPECT_EQ(environment.Run(words, &error), kExitUnavailable);
    EXPECT_THAT(error, HasSubstr(absl::StrCat("cannot check that ", address_,
                                              " is the admin address of the server ", nowhere)));
    EXPECT_THAT(error, HasSubstr("hint: give the admin address with --admin\n"));
    EXPECT_EQ(other.unloads, 0);
  }
  EXPECT_EQ(environment.Run({"unload", "m", "--admin", address_.c_str()}, &error), kExitOk)
      << error;
  EXPECT_EQ(other.unloads, 1);
  server_.reset();
}

}  // namespace
}  // namespace sluice::client
