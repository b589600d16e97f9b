// Runs the tests of a program in a temporary folder of their own, and records in its report the
// processor time of each test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
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
  // testing::TempDir() is a folder of this process, so that two runs of a program do not disturb
  // each other.
  std::string folder = std::filesystem::temp_directory_path() / "sluice-tests-XXXXXX";
  if (std::getenv("TEST_TMPDIR") != nullptr || mkdtemp(folder.data()) == nullptr) {
    return RUN_ALL_TESTS();
  }
  setenv("TEST_TMPDIR", folder.c_str(), 0);
  const int status = RUN_ALL_TESTS();
  std::filesystem::remove_all(folder);
  return status;
}
