#include "base/atomic_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "base/read_file.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class AtomicFileTest : public ::testing::Test {
 protected:
  size_t Files() const {
    return std::distance(std::filesystem::directory_iterator(directory_.path()), {});
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_.File("file");
};

TEST_F(AtomicFileTest, ReplacesTheWholeFileAndLeavesNothingElse) {
  ASSERT_TRUE(ReplaceFile(path_, "a longer text").ok());
  ASSERT_TRUE(ReplaceFile(path_, "short").ok());
  EXPECT_EQ(Contents(path_), "short");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(AtomicFileTest, AFailureKeepsTheOldContents) {
  ASSERT_TRUE(ReplaceFile(path_, "old").ok());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit few{.rlim_cur = 10, .rlim_max = before.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &few);
  const absl::Status status = ReplaceFile(path_, std::string(100, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Contents(path_), "old");
  EXPECT_EQ(Files(), 1u);
  EXPECT_FALSE(ReplaceFile(directory_.File("no/such/folder"), "x").ok());
}

// A pipe stands for every file that is not regular, such as /dev/null.
TEST_F(AtomicFileTest, OnlyRegularFilesAreReplaced) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(CheckReplaceable(path_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReplaceFile(path_, "x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  EXPECT_EQ(Files(), 1u);
  EXPECT_EQ(ReplaceFile(directory_.path(), "x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(CheckReplaceable(directory_.File("missing")).ok());
}

TEST_F(AtomicFileTest, ReadingAPipeIsAnErrorAndDoesNotWait) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const absl::Status status = ReadFile(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("is not a regular file"), absl::string_view::npos) << status;
}

// A reader sees only whole contents, and the next writer removes the file of a killed one.
TEST_F(AtomicFileTest, AWriterThatIsKilledLeavesTheOldOrTheNewContents) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr size_t kBytes = 1 << 20;
  ASSERT_TRUE(ReplaceFile(path_, std::string(kBytes, 'a')).ok());
  for (int round = 0; round < 30; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (char c = 'b';; c = c == 'z' ? 'b' : static_cast<char>(c + 1)) {
        ReplaceFile(path_, std::string(kBytes, c)).IgnoreError();
      }
    }
    for (unsigned turns = random() % 2000; turns > 0; --turns) std::this_thread::yield();
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const std::string contents = Contents(path_);
    ASSERT_EQ(contents.size(), kBytes);
    ASSERT_EQ(contents.find_first_not_of(contents[0]), std::string::npos);
  }
  ASSERT_TRUE(ReplaceFile(path_, "last").ok());
  EXPECT_EQ(Files(), 1u);
}

}  // namespace
}  // namespace sluice
