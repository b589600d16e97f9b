#include "config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "config/render.h"
#include "server/common/option_specs.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using testing::HasSubstr;

absl::Status Load(const std::string& text, Config* config, const std::string& file = "f.yaml") {
  Origins origins;
  std::vector<std::string> old;
  const absl::Status status = LoadYaml(text, file, config, &origins, &old);
  EXPECT_THAT(old, testing::IsEmpty());
  return status;
}

TEST(LoadYaml, SetsNamedOptionsAndKeepsTheRest) {
  Config config;
  config.engine.queue.max_requests = 5;
  ASSERT_EQ(Load("engine:\n"
                 "  ladder: {strategy: fixed, fixed_tokens: [16, 64], ratio: 1.5}\n"
                 "  batch:\n"
                 "    max_queue_delay: 5ms\n"
                 "cpu:\n"
                 "server:\n"
                 "  grpc: {max_message_bytes: 1MiB}\n"
                 "  log:\n"
                 "    format: 'json'\n"
                 "  metrics: {address: \"\"}\n",
                 &config),
            absl::OkStatus());
  EXPECT_EQ(config.engine.ladder.strategy, StrategyKind::kFixed);
  EXPECT_EQ(config.engine.ladder.fixed_tokens, (std::vector<int32_t>{16, 64}));
  EXPECT_EQ(config.engine.ladder.ratio, 1.5);
  EXPECT_EQ(config.engine.batch.max_queue_delay_us, 5000);
  EXPECT_EQ(config.engine.queue.max_requests, 5);
  EXPECT_EQ(config.server.grpc.max_message_bytes, 1 << 20);
  EXPECT_EQ(config.server.log.format, LogOptions::Format::kJson);
  EXPECT_EQ(config.server.metrics.address, "");
  EXPECT_EQ(config.server.grpc.address, ServerOptions().grpc.address);
}

TEST(LoadYaml, ReadsModelsRelativeToTheFile) {
  Config config;
  config.models.push_back({"gone", "x", 1});
  ASSERT_EQ(Load("models:\n"
                 "  - {name: a, path: ../m/./a}\n"
                 "  - name: b\n"
                 "    path: /abs/b\n"
                 "    version: 7\n",
                 &config, "etc/sluice/f.yaml"),
            absl::OkStatus());
  ASSERT_EQ(config.models.size(), 2);
  EXPECT_EQ(config.models[0].name, "a");
  EXPECT_EQ(config.models[0].path, "etc/m/a");
  EXPECT_EQ(config.models[0].version, 1);
  EXPECT_EQ(config.models[1].path, "/abs/b");
  EXPECT_EQ(config.models[1].version, 7);
}

TEST(LoadYaml, ReadsTheDraftsOfAModel) {
  Config config;
  ASSERT_EQ(Load("models:\n"
                 "  - {name: a, path: a, speculation: {draft: small, tokens: 4}}\n"
                 "  - {name: b, path: b, speculation: none}\n"
                 "  - {name: c, path: c, speculation: draft=small sequences=2}\n"
                 "  - {name: d, path: d, speculation: {tokens: 3}}\n",
                 &config, "f.yaml"),
            absl::OkStatus());
  EXPECT_EQ(config.models[0].speculation,
            (SpeculationOptions{.kind = Speculation::kModel, .draft = "small", .tokens = 4}));
  EXPECT_EQ(config.models[1].speculation, SpeculationOptions{.kind = Speculation::kNone});
  EXPECT_EQ(config.models[2].speculation,
            (SpeculationOptions{.kind = Speculation::kModel, .draft = "small", .sequences = 2}));
  EXPECT_EQ(config.models[3].speculation,
            (SpeculationOptions{.kind = Speculation::kNgram, .tokens = 3}));
  for (const ModelSpec& model : config.models) {
    SpeculationOptions read;
    ASSERT_TRUE(SpeculationValue().Parse(SpeculationValue().Format(model.speculation), &read));
    EXPECT_EQ(read, model.speculation);
  }
}

struct BadConfigFileRow {
  const char* name;
  const char* text;
  const char* message;
};

constexpr BadConfigFileRow kBadConfigFileRows[] = {
    {.name = "AMisspeltSection",
     .text = "engin: {}\n",
     .message = "f.yaml:1: engin: unknown key; did you mean engine?"},
    {.name = "AKeyOfOtherSections",
     .text = "server:\n  http:\n    address: x\n",
     .message = "f.yaml:3: server.http.address: unknown key; did you mean server.grpc.address, or "
                "server.admin.address, or server.metrics.address?"},
    {.name = "AKeyOfOneOtherSection",
     .text = "engine:\n  max_batch_tokens: 8\n",
     .message = "f.yaml:2: engine.max_batch_tokens: unknown key; did you mean "
                "engine.batch.max_batch_tokens?"},
    {.name = "AnUnknownKey", .text = "zzz: 1\n", .message = "f.yaml:1: zzz: unknown key"},
    {.name = "AMisspeltKey",
     .text = "engine:\n  batch:\n    max_batch_token: 5\n",
     .message =
         "f.yaml:3: engine.batch.max_batch_token: unknown key; did you mean max_batch_tokens?"},
    {.name = "AMergeKey", .text = "<<: {}\n", .message = "f.yaml:1: <<: unknown key"},
    {.name = "AnUnknownKeyWithALineBreak",
     .text = "\"a\\nb\": 1\n",
     .message = "f.yaml:1: a\\nb: unknown key"},
    {.name = "ADuplicateKey",
     .text = "cpu:\n  threads: 1\n  threads: 2\n",
     .message = "f.yaml:3: the key \"threads\" is given twice; the first is in line 2"},
    {.name = "AListAsDocument",
     .text = "- a\n",
     .message = "f.yaml:1: the document: expected a map of keys, got a list"},
    {.name = "ATextAsDocument",
     .text = "text\n",
     .message = "f.yaml:1: the document: expected a map of keys, got \"text\""},
    {.name = "ATextAsSection",
     .text = "engine: 5\n",
     .message = "f.yaml:1: engine: expected a map of keys, got \"5\""},
    {.name = "AnIntegerAboveItsRange",
     .text = "cpu:\n  threads: 1025\n",
     .message = "f.yaml:2: cpu.threads: expected an integer in [0, 1024], got \"1025\""},
    {.name = "AFractionAsInteger",
     .text = "cpu:\n  threads: 1.5\n",
     .message = "f.yaml:2: cpu.threads: expected an integer in [0, 1024], got \"1.5\""},
    {.name = "AnOptionWithoutValue",
     .text = "cpu:\n  threads:\n",
     .message = "f.yaml:2: cpu.threads: expected an integer in [0, 1024], got nothing"},
    {.name = "AListAsInteger",
     .text = "cpu:\n  threads: [1]\n",
     .message = "f.yaml:2: cpu.threads: expected an integer in [0, 1024], got a list"},
    {.name = "AMapAsInteger",
     .text = "cpu:\n  threads: {a: 1}\n",
     .message = "f.yaml:2: cpu.threads: expected an integer in [0, 1024], got a map"},
    {.name = "AYesAsBoolean",
     .text = "cpu: {poison: yes}\n",
     .message = "f.yaml:1: cpu.poison: expected true or false, got \"yes\""},
    {.name = "AnUnknownWord",
     .text = "server: {log: {level: loud}}\n",
     .message = "f.yaml:1: server.log.level: expected one of trace, debug, info, warn, error, got "
                "\"loud\""},
    {.name = "ARatioAtItsOpenEnd",
     .text = "engine: {ladder: {ratio: 1}}\n",
     .message = "f.yaml:1: engine.ladder.ratio: expected a number in (1, 16], got \"1\""},
    {.name = "ARatioThatIsNotANumber",
     .text = "engine: {ladder: {ratio: .nan}}\n",
     .message = "f.yaml:1: engine.ladder.ratio: expected a number in (1, 16], got \".nan\""},
    {.name = "ADurationAboveItsRange",
     .text = "engine: {batch: {max_queue_delay: 11s}}\n",
     .message =
         "f.yaml:1: engine.batch.max_queue_delay: expected a duration in [0, 10s] with its unit: "
         "us, ms, s, min or h, got \"11s\""},
    {.name = "ADurationWithoutAUnit",
     .text = "engine: {batch: {max_queue_delay: 500}}\n",
     .message =
         "f.yaml:1: engine.batch.max_queue_delay: expected a duration in [0, 10s] with its unit: "
         "us, ms, s, min or h, got \"500\"; add a unit, for example 1s"},
    {.name = "ASizeAboveItsRange",
     .text = "server: {grpc: {max_message_bytes: 2GiB}}\n",
     .message =
         "f.yaml:1: server.grpc.max_message_bytes: expected a size in [0, 2147483647B] (B, KiB, "
         "MiB, GiB, TiB; plain numbers are bytes), got \"2GiB\""},
    {.name = "AnAddressWithoutPort",
     .text = "server: {grpc: {address: nowhere}}\n",
     .message = "f.yaml:1: server.grpc.address: expected HOST:PORT, got \"nowhere\""},
    {.name = "AnItemThatIsNotAnInteger",
     .text = "engine:\n  ladder:\n    fixed_tokens:\n      - 16\n      - x\n",
     .message = "f.yaml:5: engine.ladder.fixed_tokens: expected a list of integers in [1, "
                "1048576], at most "
                "1024 of them, got \"x\""},
    {.name = "AListAsItem",
     .text = "engine:\n  ladder:\n    fixed_tokens: [[1]]\n",
     .message = "f.yaml:3: engine.ladder.fixed_tokens: expected a list of integers in [1, "
                "1048576], at most "
                "1024 of them, got a list"},
    {.name = "AMapAsModels",
     .text = "models: {}\n",
     .message = "f.yaml:1: models: expected a list of models, got a map"},
    {.name = "ATextAsModel",
     .text = "models: [a]\n",
     .message = "f.yaml:1: models[0]: expected a map with name and path, got \"a\""},
    {.name = "AModelWithoutName",
     .text = "models:\n  - {name: a, path: b}\n  - {path: b}\n",
     .message = "f.yaml:3: models[1]: has no name"},
    {.name = "AModelWithoutPath",
     .text = "models:\n  - name: a\n",
     .message = "f.yaml:2: models[0]: has no path"},
    {.name = "AMisspeltKeyOfAModel",
     .text = "models:\n  - name: a\n    pth: b\n",
     .message = "f.yaml:3: models[0].pth: unknown key; did you mean path?"},
    {.name = "ANameWithASlash",
     .text = "models:\n  - name: ../a\n    path: b\n",
     .message = "f.yaml:2: models[0].name: expected a name of 1 to 128 of the characters A-Z a-z "
                "0-9 _ . -, "
                "got \"../a\""},
    {.name = "AnEmptyPath",
     .text = "models:\n  - {name: a, path: ''}\n",
     .message = "f.yaml:2: models[0].path: expected a path of 1 to 4096 bytes of UTF-8 without "
                "control characters, got \"\""},
    {.name = "AListAsPath",
     .text = "models:\n  - {name: a, path: [b]}\n",
     .message = "f.yaml:2: models[0].path: expected a path of 1 to 4096 bytes of UTF-8 without "
                "control characters, got a list"},
    {.name = "APathWithAControlCharacter",
     .text = "models:\n  - name: a\n    path: \"x\\0y\"\n",
     .message = "f.yaml:3: models[0].path: expected a path of 1 to 4096 bytes of UTF-8 without "
                "control characters, got \"x\\x00y\""},
    {.name = "AnUnknownTypeOfPages",
     .text = "models:\n  - name: a\n    path: b\n    kv_dtype: fp8\n",
     .message = "f.yaml:4: models[0].kv_dtype: expected one of f32, bf16, int8, got \"fp8\""},
    {.name = "TooManyDrafts",
     .text = "models:\n  - name: a\n    path: b\n    speculation: {draft: c, tokens: 17}\n",
     .message = "f.yaml:4: models[0].speculation: tokens: expected an integer in [1, 16], got "
                "\"17\""},
    {.name = "AnUnknownKeyOfDrafts",
     .text = "models:\n  - name: a\n    path: b\n    speculation: {model: c}\n",
     .message = "f.yaml:4: models[0].speculation: unknown key \"model\"; expected draft, tokens or "
                "sequences"},
    {.name = "AnOptionThatCannotBeSetPerModel",
     .text = "models:\n  - name: a\n    path: b\n    ladder: {file: x}\n",
     .message =
         "f.yaml:4: models[0].ladder: \"file\" cannot be chosen for a model; expected one of "
         "strategy, fixed_tokens, ratio, min_tokens, cap_tokens, max_buckets, min_bucket_usage, "
         "memory_limit_bytes"},
    {.name = "AnOptionOfAModelsLadderBeyondItsRange",
     .text = "models:\n  - name: a\n    path: b\n    ladder:\n      ratio: 1\n",
     .message = "f.yaml:5: models[0].ladder: ratio: expected a number in (1, 16], got \"1\""},
    {.name = "AVersionBelowItsRange",
     .text = "models:\n  - name: a\n    path: b\n    version: 0\n",
     .message = "f.yaml:4: models[0].version: expected an integer in [1, 2147483647], got \"0\""},
};

class BadConfigFileTable : public TableTest<BadConfigFileRow> {};

TEST_P(BadConfigFileTable, NamesFileLineKeyAndLimit) {
  Config config;
  const absl::Status status = Load(row().text, &config);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), row().message);
}

SLUICE_TABLE(BadConfigFileTable, kBadConfigFileRows);

TEST(LoadYamlFile, ErrorsNameTheFile) {
  Config config;
  Origins origins;
  std::vector<std::string> old;
  const absl::Status missing = LoadYamlFile("/no/such/file.yaml", &config, &origins, &old);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/no/such/file.yaml"));
  const absl::Status directory = LoadYamlFile(testing::TempDir(), &config, &origins, &old);
  EXPECT_THAT(std::string(directory.message()), HasSubstr("Is a directory"));
}

TEST(LoadYamlFile, ReadsAFileAndBoundsItsSize) {
  const std::string path = absl::StrCat(testing::TempDir(), "/load_test.yaml");
  Config config;
  Origins origins;
  std::vector<std::string> old;
  std::ofstream(path) << "cpu: {threads: 3}\n";
  ASSERT_EQ(LoadYamlFile(path, &config, &origins, &old), absl::OkStatus());
  EXPECT_EQ(config.cpu.threads, 3);
  EXPECT_EQ(OriginOf(origins, "cpu.threads"), absl::StrCat(path, ":1"));
  std::ofstream(path) << std::string(300'000, '#');
  EXPECT_THAT(std::string(LoadYamlFile(path, &config, &origins, &old).message()),
              HasSubstr("more than 262144 bytes"));
  // Endless input does not block.
  EXPECT_FALSE(LoadYamlFile("/dev/zero", &config, &origins, &old).ok());
  std::filesystem::remove(path);
}

TEST(LoadYaml, ReadsTheLadderOfAModel) {
  Config config;
  const absl::Status status = Load(
      "models:\n"
      "  - name: a\n    path: b\n    ladder: {strategy: fixed, fixed_tokens: [16, 64]}\n"
      "  - name: c\n    path: d\n    ladder: strategy=geometric ratio=2\n",
      &config);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(config.models.size(), 2u);
  EXPECT_EQ(config.models[0].ladder,
            (LadderChoice{{"strategy", "fixed"}, {"fixed_tokens", "16,64"}}));
  EXPECT_EQ(config.models[1].ladder, (LadderChoice{{"strategy", "geometric"}, {"ratio", "2"}}));
  // The printed effective configuration can be loaded again.
  Config again;
  ASSERT_TRUE(Load(RenderEffectiveConfig(config, {}), &again).ok());
  EXPECT_EQ(again.models, config.models);
}

struct OldKeyRow {
  const char* name;
  const char* text;
  std::vector<std::string> old;
};

class OldKeyTable : public TableTest<OldKeyRow> {};

TEST_P(OldKeyTable, ListsEachOldKeyWithItsLineAndSetsNothing) {
  Config config;
  Origins origins;
  std::vector<std::string> old;
  ASSERT_EQ(LoadYaml(row().text, "f.yaml", &config, &origins, &old), absl::OkStatus());
  EXPECT_EQ(old, row().old);
  EXPECT_THAT(origins, testing::IsEmpty());
}

const OldKeyRow kOldKeyRows[] = {
    {.name = "RenamedRemovedAndUnknownKeysInOneFile",
     .text = "engine:\n"
             "  queue:\n"
             "    max_wait_us: 1s\n"
             "    unknown: 1\n"
             "  ladder: {whole_tiles: true}\n"
             "server:\n"
             "  admin:\n"
             "    reflection: false\n"
             "  lifecycle: {drain_delay_us: 10s, drain_timeout_us: 5}\n",
     .old = {"f.yaml:3: engine.queue.max_wait_us: renamed to engine.queue.max_wait, which needs a "
             "unit, for example 1s",
             "f.yaml:5: engine.ladder.whole_tiles: removed: engine.ladder.strategy: hardware_aware "
             "uses capacities of whole tiles",
             "f.yaml:8: server.admin.reflection: removed: the admin address always has reflection",
             "f.yaml:9: server.lifecycle.drain_delay_us: renamed to server.lifecycle.drain_delay, "
             "which needs a unit, for example 1s",
             "f.yaml:9: server.lifecycle.drain_timeout_us: renamed to "
             "server.lifecycle.drain_timeout, which needs a unit, for example 1s"}},
    {.name = "AnOldValue",
     .text = "engine:\n  batch:\n    policy: cut_and_fill\n",
     .old = {"f.yaml:3: engine.batch.policy: the value cut_and_fill is now packed"}},
    {.name = "AnOldKeyOfAModelsLadder",
     .text = "models:\n  - name: a\n    path: b\n    ladder: {whole_tiles: true}\n",
     .old = {"f.yaml:4: engine.ladder.whole_tiles: removed: engine.ladder.strategy: hardware_aware "
             "uses capacities of whole tiles"}},
};

SLUICE_TABLE(OldKeyTable, kOldKeyRows);

TEST(ParseModelSpec, ReadsNameVersionAndPath) {
  auto model = ParseModelSpec("demo=models/demo=1", "flag --model");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "demo");
  EXPECT_EQ(model->path, "models/demo=1");
  EXPECT_EQ(model->version, 1);
  model = ParseModelSpec("demo:12=d:x", "flag --model");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "demo");
  EXPECT_EQ(model->path, "d:x");
  EXPECT_EQ(model->version, 12);
  // Without a name, the folder's name counts.
  for (const char* folder : {"models/mini-lm", "/a/models/mini-lm//", "mini-lm", "./mini-lm/"}) {
    model = ParseModelSpec(folder, "flag --model");
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->name, "mini-lm");
    EXPECT_EQ(model->path, folder);
    EXPECT_EQ(model->version, 1);
  }
  for (const char* nameless : {"", "/", ".", "a/..", "models/my model", "a:b"}) {
    model = ParseModelSpec(nameless, "flag --model");
    ASSERT_FALSE(model.ok()) << nameless;
    EXPECT_THAT(std::string(model.status().message()),
                testing::EndsWith("has no name for the model: put NAME= before it"));
  }
  for (const char* bad : {"=dir", "demo=", "a/b=dir", "demo:=dir", "demo:0=dir", "demo:x=dir",
                          "demo:3000000000=dir"}) {
    model = ParseModelSpec(bad, "flag --model");
    ASSERT_FALSE(model.ok()) << bad;
    EXPECT_THAT(std::string(model.status().message()),
                testing::StartsWith("flag --model: models: expected NAME=DIR"));
  }
}

}  // namespace
}  // namespace sluice
