#include "base/write_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
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

TEST(CheckWritableTest, ForeseesTheErrorsOfWriteFileAndChangesNothing) {
  const TemporaryDirectory directory;
  const std::string file = directory.File("file");
  for (const std::string& path : {file, directory.File("missing/file"), directory.File("."),
                                  file + "/below", std::string("/dev/null"), std::string()}) {
    const absl::Status foreseen = CheckWritable(path);
    EXPECT_FALSE(std::filesystem::exists(file)) << path;
    EXPECT_EQ(foreseen, WriteFile(path, "x")) << path;
    std::filesystem::remove(file);
  }
  ASSERT_TRUE(WriteFile(file, "kept").ok());
  EXPECT_TRUE(CheckWritable(file).ok());
  EXPECT_EQ(*ReadFile(file), "kept");
  EXPECT_EQ(CheckWritable(file + "/below"), WriteFile(file + "/below", "x"));
}

}  // namespace
}  // namespace sluice
