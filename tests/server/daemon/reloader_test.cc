#include "server/daemon/reloader.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>

#include "config/option.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A daemon with one model on disk. A reload reads `on_disk_`.
class ReloaderTest : public ::testing::Test {
 protected:
  ReloaderTest() {
    testing::WriteModel(testing::TinyConfig(), 1, kernels::DType::kF32, directory_.path());
    running_.server = TestOptions();
    running_.models = {{"m", directory_.path(), 1}};
    on_disk_ = running_;
    reloader_.emplace(
        running_, [this] { return on_disk_; }, &daemon_.server(), &metrics_, log_.get());
    EXPECT_EQ(reloader_->LoadModels(), absl::OkStatus());
  }

  static ServerOptions TestOptions() { return testing::TestDaemon::Options().server; }
  bool Success() {
    return metrics_.Render({}).find("\nsluice_config_reload_success 1") != std::string::npos;
  }

  // Returns the options that the metrics name.
  std::vector<std::string> NeedsRestart() {
    const std::string name = "\nsluice_config_needs_restart{option=\"", text = metrics_.Render({});
    std::vector<std::string> options;
    for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
      const size_t begin = at + name.size();
      options.push_back(text.substr(begin, text.find('"', begin) - begin));
    }
    std::ranges::sort(options);
    return options;
  }

  const TemporaryDirectory directory_;
  testing::TestDaemon daemon_;
  Metrics metrics_{"fake", "1.2.3"};
  const std::unique_ptr<Log> log_ = *Log::Create({.level = "error"});
  Config running_;
  absl::StatusOr<Config> on_disk_;
  std::optional<Reloader> reloader_;
};

TEST_F(ReloaderTest, AppliesChangesAndNamesOptionsThatNeedARestart) {
  EXPECT_THAT(reloader_->Reload()->applied, IsEmpty());
  on_disk_->server.lifecycle.drain_delay_us = 5;
  on_disk_->server.log.level = "warn";
  on_disk_->engine.queue.max_requests = 5;
  on_disk_->server.grpc.address = "127.0.0.1:1";
  for (int i = 0; i < 2; ++i) {
    const auto report = reloader_->Reload();
    ASSERT_TRUE(report.ok()) << report.status();
    if (i == 0) {
      EXPECT_THAT(report->applied, ElementsAre("server.log.level", "server.lifecycle.drain_delay"));
    } else {
      EXPECT_THAT(report->applied, IsEmpty()) << "already applied by the previous reload";
    }
    EXPECT_THAT(report->needs_restart,
                ElementsAre("engine.queue.max_requests", "server.grpc.address"));
    EXPECT_EQ(daemon_.server().lifecycle().drain_delay_us, 5);
    EXPECT_THAT(NeedsRestart(), ElementsAre("engine.queue.max_requests", "server.grpc.address"));
  }
  EXPECT_TRUE(Success());
  on_disk_->server.grpc.address = running_.server.grpc.address;
  EXPECT_TRUE(reloader_->Reload().ok());
  EXPECT_THAT(NeedsRestart(), ElementsAre("engine.queue.max_requests"));
  const Config on_disk = *on_disk_;
  on_disk_ = absl::InvalidArgumentError("f.yaml:3: nonsense");
  EXPECT_FALSE(reloader_->Reload().ok());
  EXPECT_THAT(NeedsRestart(), ElementsAre("engine.queue.max_requests")) << "it is still needed";
  on_disk_ = on_disk;
  on_disk_->engine.queue.max_requests = running_.engine.queue.max_requests;
  EXPECT_TRUE(reloader_->Reload().ok());
  EXPECT_THAT(NeedsRestart(), IsEmpty());
}

TEST_F(ReloaderTest, EachLiveOptionIsAppliedWhereTheDaemonUsesIt) {
  for (const Option& option : Options()) {
    if (!option.live || option.path == "model_repository") continue;  // has a test of its own
    SCOPED_TRACE(option.path);
    on_disk_ = running_;
    const auto changes = [&](const char* text) {
      return option.parse(text, &*on_disk_) && option.format(*on_disk_) != option.format(running_);
    };
    ASSERT_TRUE(std::ranges::any_of(
        std::initializer_list<const char*>{"7", "0.5", "500ms", "warn", "true"}, changes))
        << "add a value of the option to this list";
    const auto report = reloader_->Reload();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->applied, Contains(option.path));
    Config in_use;
    in_use.server = daemon_.server().options();
    EXPECT_EQ(option.format(in_use), option.format(*on_disk_))
        << "the option is marked Live, but a reload does not apply it: apply it in Server::Prepare "
           "and read it in Server::options (server/daemon/server.cc)";
  }
}

TEST_F(ReloaderTest, AReloadServesTheModelsOfAnotherRepository) {
  const TemporaryDirectory repository;
  std::filesystem::create_directory(repository.File("n"));
  testing::WriteModel(testing::TinyConfig(), 2, kernels::DType::kF32, repository.File("n"));
  on_disk_->model_repository = repository.path();
  EXPECT_THAT(reloader_->Reload()->applied, ElementsAre("model_repository"));
  EXPECT_EQ(daemon_.engine().Models().size(), 2u);
}

TEST_F(ReloaderTest, AnErrorChangesNothing) {
  on_disk_->server.lifecycle.drain_delay_us = 5;
  on_disk_->models.push_back({"absent", directory_.File("nowhere"), 1});
  const auto report = reloader_->Reload();
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("nowhere"));
  EXPECT_EQ(daemon_.server().lifecycle().drain_delay_us, 0);
  EXPECT_EQ(daemon_.engine().Models().size(), 1u);
  EXPECT_FALSE(Success());
  on_disk_ = absl::InvalidArgumentError("f.yaml:3: nonsense");
  EXPECT_THAT(std::string(reloader_->Reload().status().message()), HasSubstr("f.yaml:3"));
  on_disk_ = running_;
  EXPECT_TRUE(reloader_->Reload().ok());
  EXPECT_TRUE(Success());
}

// A daemon whose callers are in a file.
class ReloadedCallersTest : public ::testing::Test {
 protected:
  static constexpr char kAlice[] = "alice-0123456789";
  static constexpr char kMallory[] = "mallory-0123456789";

  ReloadedCallersTest() {
    running_.server = Options().server;
    reloader_.emplace(
        running_, [this] { return on_disk_; }, &daemon_.server(), &metrics_, log_.get());
  }
  testing::TestDaemon::Options Options() {
    Let(kAlice);
    testing::TestDaemon::Options options;
    options.server.auth = {.callers_file = file_, .anonymous = false};
    options.server.secrets.poll_interval_us = 3'600'000'000;
    return options;
  }
  void Let(const std::string& token) { WriteTestFile(file_, "caller: token:" + token); }
  // Returns whether the caller is known; its model may be unloaded.
  bool IsServed(const std::string& token) const {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + token);
    context.set_wait_for_ready(true);
    inference::ModelInferResponse response;
    const grpc::Status status = daemon_.Infer(testing::IdsRequest({1}), &response, &context);
    return status.error_code() != grpc::StatusCode::UNAUTHENTICATED;
  }

  const TemporaryDirectory directory_;
  const std::string file_ = directory_.File("callers");
  testing::TestDaemon daemon_{Options()};
  Metrics metrics_{"fake", "1.2.3"};
  const std::unique_ptr<Log> log_ = *Log::Create({.level = "error"});
  Config running_;
  absl::StatusOr<Config> on_disk_;
  std::optional<Reloader> reloader_;
};

TEST_F(ReloadedCallersTest, CallersChangeOnlyIfTheWholeReloadSucceeds) {
  on_disk_ = running_;
  on_disk_->models.push_back({"absent", directory_.File("nowhere"), 1});
  Let(kMallory);
  EXPECT_FALSE(reloader_->Reload().ok());
  EXPECT_TRUE(IsServed(kAlice)) << "the reload failed";
  EXPECT_FALSE(IsServed(kMallory));
  on_disk_ = running_;
  EXPECT_TRUE(reloader_->Reload().ok());
  EXPECT_FALSE(IsServed(kAlice));
  EXPECT_TRUE(IsServed(kMallory));
  WriteTestFile(file_, "nonsense");
  EXPECT_THAT(std::string(reloader_->Reload().status().message()), HasSubstr("callers:1"));
  EXPECT_TRUE(IsServed(kMallory));
}

TEST_F(ReloaderTest, LoadsAndUnloadsModelsAsConfigured) {
  on_disk_->models.push_back({"n", directory_.path(), 2});
  EXPECT_THAT(reloader_->Reload()->applied, ElementsAre("models"));
  EXPECT_TRUE(daemon_.engine().Resolve("n", "2").ok());
  on_disk_ = running_;
  EXPECT_THAT(reloader_->Reload()->applied, ElementsAre("models"));
  EXPECT_FALSE(daemon_.engine().Resolve("n", "2").ok());
  EXPECT_TRUE(daemon_.engine().Resolve("m", "1").ok());
}

TEST_F(ReloaderTest, NamesTheModelsThatItLoadedAndWithdrew) {
  const TemporaryDirectory other;
  testing::WriteModel(testing::TinyConfig(), 2, kernels::DType::kF32, other.path());
  std::filesystem::rename(other.File("model.safetensors"), directory_.File("model.safetensors"));
  const auto changed = reloader_->Reload();
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_THAT(changed->applied, IsEmpty());
  EXPECT_THAT(changed->models.loaded, ElementsAre("m version 1"));
  EXPECT_THAT(changed->models.withdrawn, IsEmpty());
  EXPECT_THAT(reloader_->Reload()->models.loaded, IsEmpty());
  on_disk_->models = {{"n", directory_.path(), 2}};
  const auto renamed = reloader_->Reload();
  EXPECT_THAT(renamed->models.loaded, ElementsAre("n version 2"));
  EXPECT_THAT(renamed->models.withdrawn, ElementsAre("m version 1"));
}

TEST_F(ReloaderTest, ADaemonWithoutModelsIsNotReadyUnlessAnOptionAllowsIt) {
  Server& server = daemon_.server();
  const auto reload = [&] {
    EXPECT_TRUE(server.health().running()) << "it still manages models";
    EXPECT_EQ(reloader_->Reload().status(), absl::OkStatus());
    return server.health().ready();
  };
  EXPECT_TRUE(reload());
  on_disk_->models.clear();
  EXPECT_FALSE(reload());
  on_disk_->server.lifecycle.ready_without_models = true;
  EXPECT_TRUE(reload());
  on_disk_->server.lifecycle.ready_without_models = false;
  EXPECT_FALSE(reload());
  on_disk_->models = running_.models;
  EXPECT_TRUE(reload());
  EXPECT_EQ(server.models().Unload("m", std::nullopt), absl::OkStatus());
  EXPECT_FALSE(server.health().ready());
  EXPECT_EQ(server.models().Load("m", std::nullopt), absl::OkStatus());
  EXPECT_TRUE(server.health().ready());
}

}  // namespace
}  // namespace sluice
