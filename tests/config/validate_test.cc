#include "config/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "tests/support/table.h"

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

TEST(ValidateConfig, AcceptsValuesThatOnlyLookLikeAClash) {
  Config config = Valid();
  config.models.push_back({"m", "dir", 2});
  config.models[1].quantization = Quantization::kInt4;
  config.models[1].quantization_group = 32;
  config.engine.ladder.fixed_tokens = {5, 3};  // ignored by other strategies
  config.engine.ladder.min_tokens = config.engine.ladder.cap_tokens = 32;
  config.engine.ladder.file = "ladder";
  config.server.grpc.address = config.server.metrics.address = "127.0.0.1:0";
  EXPECT_EQ(ValidateConfig(config, {}), absl::OkStatus());
}

struct ConfigClashRow {
  const char* name;
  const char* message;
  std::function<void(Config*)> spoil;
};

class ConfigClashTable : public TableTest<ConfigClashRow> {};

TEST_P(ConfigClashTable, IsAnErrorThatNamesOriginAndOption) {
  const Origins origins = {{"engine.ladder.min_tokens", "f.yaml:3"}};
  Config config = Valid();
  row().spoil(&config);
  const absl::Status status = ValidateConfig(config, origins);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), row().message);
}

const ConfigClashRow kConfigClashRows[] = {
    {.name = "NoModels",
     .message =
         "default: models: no models to serve; give --model NAME=DIR, --model-repository DIR, or a "
         "--config FILE that lists some",
     .spoil = [](Config* c) { c->models.clear(); }},
    {.name = "OneModelTwice",
     .message = "default: models: the model m with version 1 is listed twice",
     .spoil =
         [](Config* c) {
           c->models.push_back({"m", "other", 1});
         }},
    {.name = "AGroupOfAModelThatIsNotInt4",
     .message = "default: models: quantization_group of the model m needs quantization: int4",
     .spoil = [](Config* c) { c->models[0].quantization_group = 32; }},
    {.name = "MinTokensAboveTheMaximum",
     .message =
         "f.yaml:3: engine.ladder.min_tokens: 16 is above engine.batch.max_batch_tokens, 15; "
         "lower it to that number",
     .spoil = [](Config* c) { c->engine.batch.max_batch_tokens = 15; }},
    {.name = "AnEmptyFixedLadder",
     .message = "default: engine.ladder.fixed_tokens: empty; engine.ladder.strategy: fixed needs "
                "at least one bucket",
     .spoil = [](Config* c) { c->engine.ladder.strategy = StrategyKind::kFixed; }},
    {.name = "AnUnorderedFixedLadder",
     .message = "default: engine.ladder.fixed_tokens: not ascending: 64 before 32",
     .spoil =
         [](Config* c) {
           c->engine.ladder.strategy = StrategyKind::kFixed;
           c->engine.ladder.fixed_tokens = {16, 64, 32};
         }},
    {.name = "AFixedLadderAboveTheMaximum",
     .message =
         "default: engine.ladder.fixed_tokens: 65 is above engine.batch.max_batch_tokens, 64",
     .spoil =
         [](Config* c) {
           c->engine.ladder.strategy = StrategyKind::kFixed;
           c->engine.ladder.fixed_tokens = {16, 65};
           c->engine.batch.max_batch_tokens = 64;
         }},
    {.name = "ACapBelowTheSmallestBucket",
     .message = "default: engine.ladder.cap_tokens: 15 is below engine.ladder.min_tokens, 16",
     .spoil = [](Config* c) { c->engine.ladder.cap_tokens = 15; }},
    {.name = "OneFileForJournalAndLadder",
     .message = "default: engine.history.journal: x.jsonl is also the engine.ladder.file; use "
                "another file",
     .spoil = [](Config* c) { c->engine.ladder.file = c->engine.history.journal = "x.jsonl"; }},
    {.name = "MetricsAtTheGrpcAddress",
     .message = "default: server.metrics.address: \"0.0.0.0:8001\" is also server.grpc.address; "
                "use another port",
     .spoil = [](Config* c) { c->server.metrics.address = c->server.grpc.address; }},
    {.name = "HealthAtTheGrpcAddress",
     .message = "default: server.grpc.health_address: \"0.0.0.0:8001\" is also "
                "server.grpc.address; use another port",
     .spoil = [](Config* c) { c->server.grpc.health_address = c->server.grpc.address; }},
    {.name = "ACertificateWithoutKey",
     .message =
         "default: server.tls.key_file: empty, but certificate_file is set; set both or neither",
     .spoil = [](Config* c) { c->server.tls.certificate_file = "c.pem"; }},
    {.name = "AKeyWithoutCertificate",
     .message =
         "default: server.tls.certificate_file: empty, but key_file is set; set both or neither",
     .spoil = [](Config* c) { c->server.tls.key_file = "k.pem"; }},
    {.name = "AnAuthorityWithoutCertificate",
     .message = "default: server.tls.client_ca_file: set, but certificate_file is empty; client "
                "certificates need TLS",
     .spoil = [](Config* c) { c->server.tls.client_ca_file = "ca.pem"; }},
    {.name = "CredentialsWithoutCallers",
     .message = "default: server.auth.anonymous: false, but server.auth.callers_file is empty, so "
                "no caller could connect",
     .spoil = [](Config* c) { c->server.auth.anonymous = false; }},
    {.name = "AdminAtTheMetricsAddress",
     .message = "default: server.admin.address: \"0.0.0.0:8002\" is also server.metrics.address; "
                "use another port",
     .spoil = [](Config* c) { c->server.admin.address = c->server.metrics.address; }},
};

SLUICE_TABLE(ConfigClashTable, kConfigClashRows);

struct AdminAddressRow {
  const char* name;
  const char* address;
  std::function<void(ServerOptions*)> change = [](ServerOptions*) {};
  bool valid = false;
  const char* option = "server.admin.address";  // that is wrong
};
class AdminAddressTable : public TableTest<AdminAddressRow> {};

TEST_P(AdminAddressTable, ANonLoopbackAddressMustBeSecuredOrOpened) {
  Config config = Valid();
  config.server.admin.address = row().address;
  row().change(&config.server);
  const absl::Status status = ValidateConfig(config, {});
  EXPECT_EQ(status.ok(), row().valid) << status;
  if (!row().valid) {
    EXPECT_THAT(
        std::string(status.message()),
        ::testing::AllOf(::testing::StartsWith(absl::StrCat("default: ", row().option, ": ")),
                         ::testing::HasSubstr("server.admin.open_to_network")));
  }
}

void RequireCallers(ServerOptions* server) {
  server->admin.secured = true;
  server->auth = {.callers_file = "callers", .anonymous = false};
}

// Offers the admin API at the address for inference.
std::function<void(ServerOptions*)> AtGrpc(const char* address) {
  return [address](ServerOptions* server) {
    server->admin.on_grpc_address = true;
    server->grpc.address = address;
  };
}

const AdminAddressRow kAdminAddressRows[] = {
    {.name = "TheLoopbackIsServed", .address = "127.0.0.1:8003", .valid = true},
    {.name = "TheIpv6LoopbackIsServed", .address = "[::1]:8003", .valid = true},
    {.name = "TheIpv4WildcardIsRefused", .address = "0.0.0.0:8003"},
    {.name = "TheIpv6WildcardIsRefused", .address = "[::]:8003"},
    {.name = "OpenToNetworkIsServed",
     .address = "0.0.0.0:8003",
     .change = [](ServerOptions* s) { s->admin.open_to_network = true; },
     .valid = true},
    {.name = "SecuredWithCallersIsServed",
     .address = "0.0.0.0:8003",
     .change = RequireCallers,
     .valid = true},
    {.name = "SecuredWithAnonymousCallersIsRefused",
     .address = "0.0.0.0:8003",
     .change = [](ServerOptions* s) { s->admin.secured = true; }},
    {.name = "OptionalCredentialsDoNotHelp",
     .address = "0.0.0.0:8003",
     .change =
         [](ServerOptions* s) {
           RequireCallers(s);
           s->admin.secured = false;
         }},
    {.name = "TheLoopbackForInferenceIsServed",
     .address = "",
     .change = AtGrpc("127.0.0.1:8001"),
     .valid = true},
    {.name = "InferenceOfAnonymousCallersIsRefused",
     .address = "",
     .change = AtGrpc("0.0.0.0:8001"),
     .option = "server.admin.on_grpc_address"},
    {.name = "InferenceOfIdentifiedCallersIsServed",
     .address = "",
     .change =
         [](ServerOptions* s) {
           AtGrpc("0.0.0.0:8001")(s);
           RequireCallers(s);
         },
     .valid = true},
    {.name = "InferenceOpenToNetworkIsServed",
     .address = "",
     .change =
         [](ServerOptions* s) {
           AtGrpc("0.0.0.0:8001")(s);
           s->admin.open_to_network = true;
         },
     .valid = true},
};
SLUICE_TABLE(AdminAddressTable, kAdminAddressRows);

}  // namespace
}  // namespace sluice
