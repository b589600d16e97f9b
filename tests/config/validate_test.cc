#include "config/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

namespace sluice {
namespace {

Config Valid() {
  Config config;
  config.models.push_back({"m", "dir", 1});
  return config;
}

TEST(ValidateConfig, AcceptsDefaultsWithAModel) {
  EXPECT_EQ(ValidateConfig(Valid(), {}), absl::OkStatus());
}

TEST(ValidateConfig, ARepositoryMayBeEmpty) {
  Config config;
  config.model_repository = "models";
  EXPECT_EQ(ValidateConfig(config, {}), absl::OkStatus());
}

TEST(ValidateConfig, AcceptsWhatOnlyLooksLikeAClash) {
  Config config = Valid();
  config.models.push_back({"m", "dir", 2});
  config.engine.ladder.fixed_tokens = {5, 3};  // ignored by other strategies
  config.engine.ladder.min_tokens = config.engine.ladder.cap_tokens = 32;
  config.engine.ladder.file = "ladder";
  config.server.grpc.address = config.server.metrics.address = "127.0.0.1:0";
  EXPECT_EQ(ValidateConfig(config, {}), absl::OkStatus());
}

TEST(ValidateConfig, ErrorsNameOriginAndOption) {
  struct Case {
    const char* message;
    std::function<void(Config*)> spoil;
  };
  const Case cases[] = {
      {"default: models: no models to serve; give --model NAME=DIR, --model-repository DIR, or a "
       "--config FILE that lists some",
       [](Config* c) { c->models.clear(); }},
      {"default: models: the model m with version 1 is given twice",
       [](Config* c) {
         c->models.push_back({"m", "other", 1});
       }},
      {"f.yaml:3: engine.ladder.min_tokens: 16 is above engine.batch.max_batch_tokens, 15",
       [](Config* c) { c->engine.batch.max_batch_tokens = 15; }},
      {"default: engine.ladder.fixed_tokens: empty, but engine.ladder.strategy is fixed",
       [](Config* c) { c->engine.ladder.strategy = StrategyKind::kFixed; }},
      {"default: engine.ladder.fixed_tokens: not ascending: 32 before 32",
       [](Config* c) {
         c->engine.ladder.strategy = StrategyKind::kFixed;
         c->engine.ladder.fixed_tokens = {16, 32, 32};
       }},
      {"default: engine.ladder.fixed_tokens: 65 is above engine.batch.max_batch_tokens, 64",
       [](Config* c) {
         c->engine.ladder.strategy = StrategyKind::kFixed;
         c->engine.ladder.fixed_tokens = {16, 65};
         c->engine.batch.max_batch_tokens = 64;
       }},
      {"default: engine.ladder.cap_tokens: 15 is below engine.ladder.min_tokens, 16",
       [](Config* c) { c->engine.ladder.cap_tokens = 15; }},
      {"default: engine.history.journal: x.jsonl is engine.ladder.file too",
       [](Config* c) { c->engine.ladder.file = c->engine.history.journal = "x.jsonl"; }},
      {"default: server.grpc.memory_quota_bytes: 1000 is below server.grpc.max_message_bytes, "
       "67108864, so the largest message could never be received",
       [](Config* c) { c->server.grpc.memory_quota_bytes = 1000; }},
      {"default: server.metrics.address: \"0.0.0.0:8001\" is server.grpc.address too",
       [](Config* c) { c->server.metrics.address = c->server.grpc.address; }},
      {"default: server.grpc.health_address: \"0.0.0.0:8001\" is server.grpc.address too",
       [](Config* c) { c->server.grpc.health_address = c->server.grpc.address; }},
      {"default: server.tls.key_file: empty, but certificate_file is not",
       [](Config* c) { c->server.tls.certificate_file = "c.pem"; }},
      {"default: server.tls.certificate_file: empty, but key_file is not",
       [](Config* c) { c->server.tls.key_file = "k.pem"; }},
      {"default: server.tls.client_ca_file: given, but no certificate_file",
       [](Config* c) { c->server.tls.client_ca_file = "ca.pem"; }},
      {"default: server.auth.anonymous: false, but no callers_file names anybody",
       [](Config* c) { c->server.auth.anonymous = false; }},
      {"default: server.admin.address: \"0.0.0.0:8002\" is server.metrics.address too",
       [](Config* c) { c->server.admin.address = c->server.metrics.address; }},
  };
  const Origins origins = {{"engine.ladder.min_tokens", "f.yaml:3"}};
  for (const Case& c : cases) {
    Config config = Valid();
    c.spoil(&config);
    const absl::Status status = ValidateConfig(config, origins);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), c.message);
  }
}

TEST(CheckModelDirectories, NeedsDirectoryAndConfig) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "validate_test";
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root);
  Config config = Valid();
  config.models[0].path = root / "missing";
  const Origins origins = {{"models", "flag --model"}};
  EXPECT_EQ(CheckModelDirectories(config, origins),
            absl::NotFoundError("flag --model: models: the directory of m does not exist: " +
                                config.models[0].path));
  config.models[0].path = root;
  EXPECT_EQ(CheckModelDirectories(config, origins),
            absl::NotFoundError("flag --model: models: the directory of m has no config.json: " +
                                root.string()));
  std::ofstream(root / "config.json") << "{}";
  EXPECT_EQ(CheckModelDirectories(config, origins), absl::OkStatus());
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace sluice
