#include "config/option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "config/load.h"
#include "config/old_options.h"
#include "config/render.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string DefaultFile() {
  std::ifstream file(SLUICE_SOURCE_DIR "/config/sluice.yaml");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Options, NamesAreUniqueInEveryForm) {
  std::set<std::string> paths, flags,
      variables = {"SLUICE_CONFIG", "SLUICE_MODELS", "SLUICE_SERVER", "SLUICE_ADMIN"};
  for (const Option& option : Options()) {
    EXPECT_TRUE(paths.insert(option.path).second) << option.path;
    EXPECT_TRUE(flags.insert(option.Flag()).second) << option.Flag();
    EXPECT_TRUE(variables.insert(option.Environment()).second) << option.Environment();
    EXPECT_FALSE(option.help.empty()) << option.path;
  }
}

TEST(Options, FormsFollowFromThePath) {
  const Option* option = FindOption("engine.batch.max_batch_tokens");
  ASSERT_NE(option, nullptr);
  EXPECT_EQ(option->Flag(), "--engine.batch.max-batch-tokens");
  EXPECT_EQ(option->Environment(), "SLUICE_ENGINE_BATCH_MAX_BATCH_TOKENS");
  EXPECT_EQ(FindOption("engine.batch"), nullptr);
}

TEST(Options, EachReadsBackItsDefault) {
  for (const Option& option : Options()) {
    SCOPED_TRACE(option.path);
    std::string text = option.format(Config());
    if (text.front() == '"') text = text.substr(1, text.size() - 2);
    Config config;
    EXPECT_TRUE(option.parse(text, &config)) << text;
    EXPECT_EQ(option.format(config), option.format(Config()));
  }
}

// Detects two options that set the same member.
TEST(Options, EachChangesOnlyItself) {
  const std::vector<std::string> others = {
      "77",     "17,99", "1.25",     "0.5",         "true",    "fixed",       "debug",  "json",
      "other",  "h:1",   "500ms",    "127.0.0.1:9", "edge",    "fifo_packed", "5s",     "false",
      "cuda:1", "f32",   "cublaslt", "spin",        "split:3", "portable",    "5000000"};
  for (const Option& option : Options()) {
    SCOPED_TRACE(option.path);
    Config config;
    bool changed = false;
    for (const std::string& text : others) {
      changed = option.parse(text, &config) && option.format(config) != option.format(Config());
      if (changed) break;
    }
    ASSERT_TRUE(changed) << "add a value of the option, other than its default, to `others`";
    for (const Option& other : Options()) {
      if (other.path == option.path) continue;
      EXPECT_EQ(other.format(config), other.format(Config())) << other.path;
    }
  }
}

TEST(KeysUnder, ListsSectionsAndOptionsOnce) {
  EXPECT_THAT(KeysUnder(""), ElementsAre("models", "model_repository", "device", "engine", "cpu",
                                         "cuda", "server"));
  EXPECT_THAT(KeysUnder("engine"),
              ElementsAre("ladder", "batch", "kv", "queue", "history", "watchdog", "attention"));
  EXPECT_THAT(KeysUnder("engine.ladder.review"), ElementsAre("interval", "half_life", "min_gain"));
  EXPECT_THAT(KeysUnder("engine.queue"),
              ElementsAre("max_requests", "max_tokens", "max_bytes", "max_wait", "max_caller_share",
                          "priority_share"));
  EXPECT_THAT(KeysUnder("engine.queue.max_tokens"), IsEmpty());
  EXPECT_THAT(KeysUnder("eng"), IsEmpty());
}

TEST(DefaultFile, IsGeneratedFromTheOptions) {
  EXPECT_EQ(DefaultFile(), RenderDefaultConfig())
      << "renew it with: sluiced --print-default-config > config/sluice.yaml";
}

TEST(DefaultFile, LoadsAndSetsTheBasicOptionsToTheirDefaults) {
  Config config;
  Origins origins;
  std::vector<std::string> old;
  ASSERT_EQ(LoadYaml(DefaultFile(), "sluice.yaml", &config, &origins, &old), absl::OkStatus());
  EXPECT_THAT(config.models, IsEmpty());
  EXPECT_THAT(old, IsEmpty());
  for (const Option& option : Options()) {
    EXPECT_EQ(option.format(config), option.format(Config())) << option.path;
    EXPECT_EQ(origins.contains(option.path), option.tier == Tier::kBasic) << option.path;
  }
}

TEST(DefaultFile, IsShort) {
  const std::string text = DefaultFile();
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 150)
      << "config/sluice.yaml is too long: mark an option Advanced if few operators set it, or "
         "raise this limit and state the reason in the commit";
}

TEST(OldOptions, NameExistingReplacementsOrAReason) {
  for (const OldOption& old : OldOptions()) {
    SCOPED_TRACE(old.path);
    EXPECT_NE(old.replacement.empty(), old.reason.empty());
    if (old.value.empty()) {
      EXPECT_TRUE(old.replacement.empty() || FindOption(old.replacement) != nullptr);
      continue;
    }
    const Option* const option = FindOption(old.path);
    ASSERT_NE(option, nullptr);
    Config config;
    EXPECT_TRUE(option->parse(old.replacement, &config));
    EXPECT_FALSE(option->parse(old.value, &config));
  }
}

TEST(RenderEffectiveConfig, ShowsOriginsAndReadsBack) {
  Config config;
  Origins origins;
  config.models.push_back({"m", "a \"quoted\" \\path\xc3\xa9", 3});
  origins["models"] = "flag --model";
  ASSERT_TRUE(
      SetOption(*FindOption("cpu.threads"), "3", "flag --cpu.threads", &config, &origins).ok());
  ASSERT_TRUE(
      SetOption(*FindOption("engine.ladder.fixed_tokens"), "8,9", "f.yaml:7", &config, &origins)
          .ok());
  const std::string text = RenderEffectiveConfig(config, origins);
  EXPECT_THAT(text, testing::HasSubstr("  threads: 3  # flag --cpu.threads\n"));
  EXPECT_THAT(text, testing::HasSubstr("    fixed_tokens: [8, 9]  # f.yaml:7\n"));
  EXPECT_THAT(text, testing::HasSubstr("    ratio: 1.4142135623730951  # default\n"));

  Config read;
  Origins read_origins;
  std::vector<std::string> old;
  ASSERT_EQ(LoadYaml(text, "printed.yaml", &read, &read_origins, &old), absl::OkStatus());
  EXPECT_EQ(read.models[0].path, config.models[0].path);
  EXPECT_EQ(RenderEffectiveConfig(read, origins), text);
}

}  // namespace
}  // namespace sluice
