#include "loadtest/simulate/option_flags.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::loadtest {
namespace {

using ::testing::HasSubstr;

class OptionFlag : public testing::Test {
 protected:
  OptionFlag() {
    batch_.max_batch_tokens = 512;
    AddOptionFlag(&app_, "max_queue_delay", &batch_);
    AddOptionFlag(&app_, "max_batch_tokens", &batch_, /*least=*/1);
  }

  // Returns the error, or an empty string.
  std::string Parse(std::vector<std::string> arguments) {
    try {
      app_.parse(std::move(arguments));
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }

  CLI::App app_;
  BatchOptions batch_;
};

TEST_F(OptionFlag, ReadsAValueAsTheDaemonDoes) {
  EXPECT_EQ(Parse({"--max-queue-delay=2ms"}), "");
  EXPECT_EQ(batch_.max_queue_delay_us, 2000);
  EXPECT_EQ(batch_.max_batch_tokens, 512);
}

TEST_F(OptionFlag, HasTheRangeOfTheOption) {
  EXPECT_THAT(Parse({"--max-queue-delay=11s"}), HasSubstr("expected a duration in [0, 10s]"));
  EXPECT_EQ(batch_.max_queue_delay_us, 0);
}

TEST_F(OptionFlag, MayHaveAHigherMinimum) {
  EXPECT_THAT(Parse({"--max-batch-tokens=0"}), HasSubstr("expected an integer in [1, 1048576]"));
  EXPECT_EQ(batch_.max_batch_tokens, 512);
  EXPECT_EQ(Parse({"--max-batch-tokens=1"}), "");
  EXPECT_EQ(batch_.max_batch_tokens, 1);
}

TEST_F(OptionFlag, ShowsItsHelpAndDefault) {
  const std::string help = app_.help();
  EXPECT_THAT(help, HasSubstr("--max-batch-tokens TEXT=512"));
  EXPECT_THAT(help, HasSubstr("0: no delay."));
  EXPECT_THAT(help, testing::Not(HasSubstr("0: 4096")));
}

}  // namespace
}  // namespace sluice::loadtest
