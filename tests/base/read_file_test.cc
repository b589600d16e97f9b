#include "base/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class ReadFileTest : public ::testing::Test {
 protected:
  std::string Written(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_.File("file");
};

TEST_F(ReadFileTest, ReturnsAllBytesOfFilesOfEveryLength) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const size_t length : {0, 1, 16383, 16384, 16385, 32768, 100000}) {
    std::string text(length, '\0');
    for (char& byte : text) byte = static_cast<char>(random());
    const absl::StatusOr<std::string> read = ReadFile(Written(text));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, text) << length;
  }
}

TEST_F(ReadFileTest, ReadsAFileOfExactlyTheMaximumSize) {
  for (const size_t most : {0, 10, 16384, 20000}) {
    EXPECT_EQ(ReadFile(Written(std::string(most, 'x')), most)->size(), most);
    const absl::Status status = ReadFile(Written(std::string(most + 1, 'x')), most).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_ + " has more than "));
  }
  EXPECT_FALSE(ReadFile("/dev/zero", 1000).ok());
}

TEST_F(ReadFileTest, ErrorsNameThePathAndTheReason) {
  const absl::Status missing = ReadFile(path_).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "cannot read " + path_ + ": No such file or directory");
  const absl::Status folder = ReadFile(directory_.path()).status();
  EXPECT_THAT(std::string(folder.message()), HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace sluice
