#include "config/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/version.h"
#include "config/option.h"
#include "config/render.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Variables = Environment;
using Action = CommandLine::Action;

class CommandLineTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    file_ = absl::StrCat(testing::TempDir(), "/command_line_", info->name(), ".yaml");
  }
  void TearDown() override { std::filesystem::remove(file_); }

  void WriteFile(const std::string& text) { std::ofstream(file_) << text; }

  static absl::StatusOr<CommandLine> Parse(std::vector<std::string> arguments,
                                           const Variables& variables = {}) {
    std::vector<const char*> argv = {"sluiced"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    return ParseCommandLine(static_cast<int>(argv.size()), argv.data(), variables);
  }

  static std::string Error(const std::vector<std::string>& arguments,
                           const Variables& variables = {}) {
    return std::string(Parse(arguments, variables).status().message());
  }

  std::string file_;
};

TEST_F(CommandLineTest, OneModelFlagIsEnough) {
  const auto line = Parse({"--model", "demo=models/demo"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->action, Action::kRun);
  ASSERT_EQ(line->config.models.size(), 1);
  EXPECT_EQ(line->config.models[0].name, "demo");
  EXPECT_EQ(line->config.models[0].path, "models/demo");
}

TEST_F(CommandLineTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  WriteFile(
      "models: [{name: m, path: d}]\n"
      "cpu: {threads: 2}\n"
      "engine: {queue: {max_requests: 20}, ladder: {min_tokens: 20}}\n");
  const Variables variables = {{"SLUICE_ENGINE_QUEUE_MAX_REQUESTS", "30"},
                               {"SLUICE_ENGINE_LADDER_MIN_TOKENS", "30"}};
  const auto line = Parse({"--config", file_, "--engine.ladder.min-tokens", "40"}, variables);
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->config.engine.ladder.max_buckets, LadderOptions().max_buckets);
  EXPECT_EQ(line->config.cpu.threads, 2);
  EXPECT_EQ(line->config.engine.queue.max_requests, 30);
  EXPECT_EQ(line->config.engine.ladder.min_tokens, 40);
}

TEST_F(CommandLineTest, ModelsOfFlagsReplaceModelsOfEnvironmentAndFile) {
  WriteFile("models: [{name: file, path: d}]\n");
  const Variables variables = {{"SLUICE_CONFIG", file_}};
  Variables more = variables;
  more["SLUICE_MODELS"] = "one=a,two:3=b";
  EXPECT_EQ(Parse({}, variables)->config.models[0].name, "file");
  const auto from_environment = Parse({}, more);
  ASSERT_EQ(from_environment->config.models.size(), 2);
  EXPECT_EQ(from_environment->config.models[1].version, 3);
  const auto from_flags = Parse({"--model", "x=a", "--model=y=b"}, more);
  ASSERT_EQ(from_flags->config.models.size(), 2);
  EXPECT_EQ(from_flags->config.models[1].name, "y");
}

TEST_F(CommandLineTest, TheConfigFlagBeatsItsVariable) {
  WriteFile("models: [{name: file, path: d}]\n");
  EXPECT_TRUE(Parse({"--config", file_}, {{"SLUICE_CONFIG", "/no/such/file"}}).ok());
  EXPECT_THAT(Error({}, {{"SLUICE_CONFIG", "/no/such/file"}}), HasSubstr("/no/such/file"));
}

TEST_F(CommandLineTest, EveryOptionHasAFlagAndAVariable) {
  for (const Option& option : Options()) {
    SCOPED_TRACE(option.path);
    const std::string bad = "\x01not a value";
    EXPECT_THAT(Error({"--model=m=d", absl::StrCat(option.Flag(), "=", bad)}),
                StartsWith(absl::StrCat("flag ", option.Flag(), ": ", option.path, ": expected ")));
    EXPECT_THAT(Error({"--model=m=d"}, {{option.Environment(), bad}}),
                StartsWith(absl::StrCat("environment ", option.Environment(), ": ", option.path,
                                        ": expected ")));
  }
}

TEST_F(CommandLineTest, SwitchesAndEmptyValues) {
  EXPECT_TRUE(Parse({"--cpu.poison", "--model=m=d"})->config.cpu.poison);
  EXPECT_FALSE(Parse({"--cpu.poison=false", "--model=m=d"}, {{"SLUICE_CPU_POISON", "true"}})
                   ->config.cpu.poison);
  EXPECT_EQ(Parse({"--server.metrics.address=", "--model=m=d"})->config.server.metrics.address, "");
  EXPECT_EQ(Parse({"--server.metrics.address", "", "--model=m=d"})->config.server.metrics.address,
            "");
  EXPECT_EQ(Parse({"--model=m=d"}, {{"SLUICE_SERVER_METRICS_ADDRESS", ""}})
                ->config.server.metrics.address,
            "");
}

TEST_F(CommandLineTest, MisspeltVariablesAreNamed) {
  EXPECT_EQ(Error({"--model=m=d"}, {{"SLUICE_ENGINE_BATCH_MAX_BATCH_TOKEN", "1"}}),
            "environment SLUICE_ENGINE_BATCH_MAX_BATCH_TOKEN: unknown option; did you mean "
            "SLUICE_ENGINE_BATCH_MAX_BATCH_TOKENS?");
  EXPECT_THAT(Error({"--model=m=d"}, {{"SLUICE_CPU_", ""}}), StartsWith("environment SLUICE_CPU_"));
  // These belong to the client, to tests, and to a service in the pod's namespace.
  EXPECT_TRUE(Parse({"--model=m=d"}, {{"SLUICE_SERVER", "host:8001"},
                                      {"SLUICE_TOKEN", "x"},
                                      {"SLUICE_TEST_FAULTS", ""},
                                      {"SLUICE_SERVER_SERVICE_HOST", "10.0.0.1"},
                                      {"SLUICE_SERVER_PORT", "tcp://10.0.0.1:8001"},
                                      {"SLUICE_SERVER_PORT_8001_TCP_PROTO", "tcp"}})
                  .ok());
}

TEST(EnvironmentOfTest, TakesTheVariablesOfSluice) {
  const char* const variables[] = {"PATH=/bin", "SLUICE_A=b=c", "SLUICE_B=", "SLUICE_C", nullptr};
  EXPECT_EQ(EnvironmentOf(variables), (Environment{{"SLUICE_A", "b=c"}, {"SLUICE_B", ""}}));
}

TEST_F(CommandLineTest, WrongArgumentsAreNamed) {
  EXPECT_EQ(Error({"--cpu.thread", "1"}),
            "unknown argument \"--cpu.thread\"; did you mean --cpu.threads?");
  EXPECT_EQ(Error({"--engine.batch.max_batch_tokens=1"}),
            "unknown argument \"--engine.batch.max_batch_tokens\"; did you mean "
            "--engine.batch.max-batch-tokens?");
  EXPECT_EQ(Error({"file.yaml"}),
            "unknown argument \"file.yaml\"; name a model by --model NAME=DIR, or a configuration "
            "by --config FILE");
  EXPECT_THAT(Error({"--cpu.threads"}), HasSubstr("--cpu.threads"));
  EXPECT_THAT(Error({"--cpu.threads=1", "--cpu.threads=2"}), HasSubstr("--cpu.threads"));
  EXPECT_EQ(Error({"--model=m=d", "--cpu.threads=-1"}),
            "flag --cpu.threads: cpu.threads: expected an integer in [0, 1024], got \"-1\"");
  EXPECT_THAT(Error({}), HasSubstr("no models to serve"));
  EXPECT_EQ(Error({"--model=m=a", "--model=m=b"}),
            "flag --model: models: the model m with version 1 is listed twice");
}

TEST_F(CommandLineTest, CheckIsAnActionOfAValidConfiguration) {
  EXPECT_THAT(Error({"--check"}), HasSubstr("no models"));
  const auto line = Parse({"--check", "--model=m=d"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->action, Action::kCheck);
  EXPECT_EQ(line->config.models.at(0).path, "d");
}

TEST_F(CommandLineTest, PrintsTheEffectiveConfiguration) {
  WriteFile("cpu:\n  threads: 2\n");
  const auto line = Parse({"--print-config", "--config", file_, "--cpu.poison"},
                          {{"SLUICE_SERVER_LOG_LEVEL", "warn"}});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->action, Action::kPrint);
  EXPECT_THAT(line->text, HasSubstr("models: []  # default\n"));
  EXPECT_THAT(line->text, HasSubstr(absl::StrCat("threads: 2  # ", file_, ":2\n")));
  EXPECT_THAT(line->text, HasSubstr("poison: true  # flag --cpu.poison\n"));
  EXPECT_THAT(line->text, HasSubstr("level: warn  # environment SLUICE_SERVER_LOG_LEVEL\n"));
  EXPECT_THAT(line->text, HasSubstr("format: text  # default\n"));
  EXPECT_THAT(Parse({"--print-config"})->text, testing::Not(HasSubstr("poison")));
}

TEST_F(CommandLineTest, HelpListsBasicOptionsAndHelpAllAlsoAdvancedOnes) {
  for (const auto& [flag, shown] :
       {std::pair("--help", std::set{Tier::kBasic}),
        std::pair("--help-all", std::set{Tier::kBasic, Tier::kAdvanced})}) {
    const auto line = Parse({flag});
    ASSERT_TRUE(line.ok()) << line.status();
    EXPECT_EQ(line->action, Action::kPrint);
    for (const Option& option : Options()) {
      EXPECT_EQ(absl::StrContains(line->text, absl::StrCat("  ", option.Flag(), " ")),
                shown.contains(option.tier))
          << flag << " " << option.path;
    }
  }
}

// The lines of the help are joined, because each text is wrapped.
TEST_F(CommandLineTest, HelpStatesWhetherAReloadOrARestartAppliesEachOption) {
  std::string help = Parse({"--help-all"})->text;
  help = absl::StrJoin(absl::StrSplit(help, absl::ByAnyChar(" \n"), absl::SkipEmpty()), " ");
  for (const Option& option : Options()) {
    if (option.tier == Tier::kTest) continue;
    const size_t begin = help.find(absl::StrCat(" ", option.Flag(), " "));
    ASSERT_NE(begin, help.npos) << option.path;
    const std::string text = help.substr(begin, help.find("; default ", begin) - begin);
    EXPECT_THAT(text, HasSubstr(option.live ? ". A reload applies it. Expects "
                                            : ". A restart applies it. Expects "));
  }
}

TEST_F(CommandLineTest, OneErrorListsTheOldNamesOfFileEnvironmentAndFlags) {
  WriteFile("engine:\n  queue: {max_wait_us: 1s}\n  batch: {policy: cut_and_fill}\n");
  const std::string message =
      Error({"--config", file_, "--server.lifecycle.drain-delay-us", "5s",
             "--engine.watchdog.hang-us=1", "--engine.batch.policy=cut_and_fill", "--check"},
            {{"SLUICE_SERVER_LOG_QUEUE_RECORDS", "64"}, {"SLUICE_ENGINE_LADDER_WARM_UP_US", "1s"}});
  const std::string unit = ", which needs a unit, for example 1s";
  EXPECT_THAT(
      std::vector<std::string>(absl::StrSplit(message, "\n  ")),
      testing::UnorderedElementsAre(
          "these options are from an earlier release:",
          file_ + ":2: engine.queue.max_wait_us: renamed to engine.queue.max_wait" + unit,
          file_ + ":3: engine.batch.policy: the value cut_and_fill is now packed",
          "environment SLUICE_SERVER_LOG_QUEUE_RECORDS: server.log.queue_records: removed: 8192 "
          "records may wait for the writer",
          "environment SLUICE_ENGINE_LADDER_WARM_UP_US: engine.ladder.warm_up_us: renamed to "
          "engine.ladder.warm_up" +
              unit,
          "flag --engine.batch.policy: engine.batch.policy: the value cut_and_fill is now packed",
          "flag --server.lifecycle.drain-delay-us: server.lifecycle.drain_delay_us: renamed to "
          "server.lifecycle.drain_delay" +
              unit,
          "flag --engine.watchdog.hang-us: engine.watchdog.hang_us: renamed to "
          "engine.watchdog.hang" +
              unit));
}

TEST_F(CommandLineTest, PrintsVersionAndDefaults) {
  EXPECT_EQ(Parse({"--version"})->text, absl::StrCat("sluiced ", Version(), "\n"));
  EXPECT_EQ(Parse({"--print-default-config"})->text, RenderDefaultConfig());
}

}  // namespace
}  // namespace sluice
