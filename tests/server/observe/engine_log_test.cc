#include "server/observe/engine_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/server/protocol/messages.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class EngineLogTest : public ::testing::Test {
 protected:
  // Returns the log text at `level`.
  std::string Logged(const std::string& level, const std::function<void(EngineLog*)>& events) {
    const std::string path =
        absl::StrCat(::testing::TempDir(), "/engine_log_test_", getpid(), ".log");
    std::filesystem::remove(path);
    {
      LogOptions options;
      options.level = level;
      const std::unique_ptr<Log> log = *Log::Create(options, path);
      EngineLog engine_log(log.get());
      events(&engine_log);
    }
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  const std::shared_ptr<const Model> model_ = testing::TextModel();
};

TEST_F(EngineLogTest, AChangedLadderIsOneLineWithTheChangesAndTheReason) {
  ReviewReport report;
  report.changed = true;
  report.reason = "saves 10%";
  report.gain = 0.1;
  report.after = {{.tokens = 24, .sequences = 24}, {.tokens = 64, .sequences = 64}};
  report.diff.added = {{.tokens = 24, .sequences = 24}};
  report.diff.merged = {{.tokens = 8, .sequences = 8}, {.tokens = 16, .sequences = 16}};
  const std::string text = Logged("info", [&](EngineLog* log) { log->OnReview(*model_, report); });
  EXPECT_THAT(text, HasSubstr("ladder changed model=text version=1 reason=\"saves 10%\""));
  EXPECT_THAT(text, HasSubstr("added=24x24"));
  EXPECT_THAT(text, HasSubstr("8x8,16x16"));
  EXPECT_THAT(text, Not(HasSubstr("removed")));
  EXPECT_THAT(text, HasSubstr("gain=0.1"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(EngineLogTest, AnUnchangedLadderIsLoggedOnlyAtDebug) {
  ReviewReport report;
  report.reason = "no gain";
  const auto events = [&](EngineLog* log) { log->OnReview(*model_, report); };
  EXPECT_EQ(Logged("info", events), "");
  EXPECT_THAT(Logged("debug", events), HasSubstr("ladder kept model=text version=1"));
}

TEST_F(EngineLogTest, LogsTheKernelsOfAModel) {
  EXPECT_THAT(Logged("info",
                     [&](EngineLog* log) {
                       log->OnKernels(*model_, "attention portable; products portable");
                     }),
              HasSubstr("kernels chosen model=text version=1 kernels=\"attention portable; "
                        "products portable\""));
}

TEST_F(EngineLogTest, NoticesAndFailedPlansAreWarnings) {
  const std::string text = Logged("info", [&](EngineLog* log) {
    log->OnNotice(*model_, "the ladder file is of another model");
    PlanTrace plan{};
    plan.model = model_.get();
    plan.bucket = Bucket::Padded(2, 8);
    log->OnPlan(plan);
    plan.bucket = Bucket::Padded(4, 8);
    plan.ok = true;
    log->OnPlan(plan);
  });
  EXPECT_THAT(text, HasSubstr("the ladder file is of another model model=text"));
  EXPECT_THAT(text, HasSubstr("plan not prepared model=text version=1 bucket=2x8p"));
  EXPECT_THAT(text, Not(HasSubstr("4x8p")));
}

}  // namespace
}  // namespace sluice
