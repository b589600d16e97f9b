#include "base/write_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/read_file.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(WriteFileTest, ReplacesTheContentsWithTextsOfEveryLength) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const TemporaryDirectory directory;
  const std::string path = directory.File("file");
  for (const size_t length : {100000, 4097, 4096, 4095, 1, 0}) {
    std::string text(length, '\0');
    for (char& byte : text) byte = static_cast<char>(random());
    const absl::Status written = WriteFile(path, text);
    ASSERT_TRUE(written.ok()) << written;
    EXPECT_EQ(*ReadFile(path), text) << length;
  }
}

TEST(WriteFileTest, AFullDiskIsAnErrorForTextsOfEveryLength) {
  // A short text is still in the buffer when the file is closed.
  for (const size_t length : {1, 4096, 100000}) {
    const absl::Status written = WriteFile("/dev/full", std::string(length, 'x'));
    EXPECT_THAT(std::string(written.message()),
                HasSubstr("cannot write /dev/full: No space left on device"));
  }
}

TEST(WriteFileTest, AFolderThatIsMissingIsAnError) {
  const absl::Status written = WriteFile("/proc/no/such/file", "x");
  EXPECT_EQ(written.code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice
