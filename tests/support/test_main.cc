// Runs the tests of a program, and records in its report the processor time of each test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>

namespace {

// Records the property cpu_s of each test: the processor seconds of all threads.
class ProcessorTimes : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { began_ = std::clock(); }

  void OnTestEnd(const testing::TestInfo&) override {
    const double seconds = static_cast<double>(std::clock() - began_) / CLOCKS_PER_SEC;
    testing::Test::RecordProperty("cpu_s", std::to_string(seconds));
  }

  std::clock_t began_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new ProcessorTimes);
  return RUN_ALL_TESTS();
}
