#include "engine/model/root_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The directory root/ with some entries, and a secret file next to it.
class RootDirectoryTest : public ::testing::Test {
 protected:
  RootDirectoryTest() {
    std::filesystem::create_directories(directory_.File("root/a/b"));
    WriteTestFile(directory_.File("secret"), "secret");
    WriteTestFile(directory_.File("root/file"), "top");
    WriteTestFile(directory_.File("root/a/b/file"), "deep");
    root_ = *RootDirectory::Open(directory_.File("root"));
  }

  void Link(const std::string& target, const std::string& name) {
    std::filesystem::create_symlink(target, directory_.File("root/" + name));
  }

  // Returns the content of a file, or "ERROR: message".
  std::string Read(const std::string& path) {
    const absl::StatusOr<Descriptor> file = root_->OpenBeneath(path, O_RDONLY);
    if (!file.ok()) return "ERROR: " + std::string(file.status().message());
    char content[64];
    const ssize_t size = read(file->get(), content, sizeof(content));
    return size < 0 ? "no file" : std::string(content, static_cast<size_t>(size));
  }

  const TemporaryDirectory directory_;
  std::shared_ptr<const RootDirectory> root_;
};

TEST_F(RootDirectoryTest, OpensFilesBelowTheRoot) {
  EXPECT_EQ(Read("file"), "top");
  EXPECT_EQ(Read("a/b/file"), "deep");
  EXPECT_EQ(Read("a//./b/../b/file"), "deep");
  EXPECT_EQ(root_->OpenBeneath("a/none", O_RDONLY).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Read("file/x"), HasSubstr("file/x"));
  EXPECT_THAT(*root_->List("", 9), ElementsAre("a", "file"));
  EXPECT_THAT(*root_->List("a", 9), ElementsAre("b"));
  EXPECT_THAT(std::string(root_->List("", 1).status().message()), HasSubstr("more than 1"));
}

// The links are like a Kubernetes volume's: names that lead to ..data, which leads to the latest
// version.
TEST_F(RootDirectoryTest, FollowsLinksThatStayBelow) {
  std::filesystem::create_directory(directory_.File("root/..2026"));
  WriteTestFile(directory_.File("root/..2026/config.json"), "first");
  Link("..2026", "..data");
  Link("..data/config.json", "config.json");
  Link("../../file", "a/b/up");
  Link("a/b", "short");
  EXPECT_EQ(Read("config.json"), "first");
  EXPECT_EQ(Read("a/b/up"), "top");
  EXPECT_EQ(Read("short/up"), "top");
  EXPECT_THAT(*root_->List("short", 9), ElementsAre("file", "up"));
}

TEST_F(RootDirectoryTest, RefusesPathsAndLinksThatLeaveTheRoot) {
  Link("../secret", "relative");
  Link(directory_.File("secret"), "absolute");
  Link("..", "parent");
  Link("a/../../secret", "crooked");
  Link("relative", "chained");
  Link("/", "slash");
  for (const char* path : {"../secret", "a/../../secret", "relative", "absolute", "parent/secret",
                           "crooked", "chained", "slash/etc/passwd", "a/b/../../../secret"}) {
    EXPECT_THAT(Read(path), HasSubstr("out of the root directory")) << path;
  }
  EXPECT_THAT(Read("chained"), HasSubstr("symbolic link relative"));
  EXPECT_THAT(Read(directory_.File("secret")), HasSubstr("is not a path below"));
  EXPECT_THAT(Read(std::string("file\0x", 6)), HasSubstr("is not a path below"));
  EXPECT_FALSE(root_->List("parent", 9).ok());
}

TEST_F(RootDirectoryTest, RefusesLoopsOfLinksAndFifosWithoutWaiting) {
  Link("loop", "loop");
  EXPECT_THAT(Read("loop"), HasSubstr("symbolic links"));
  ASSERT_EQ(mkfifo(directory_.File("root/fifo").c_str(), 0600), 0);
  EXPECT_TRUE(root_->OpenBeneath("fifo", O_RDONLY).ok()) << "it does not wait for a writer";
}

// For any components of a path, the file that it opens is below the root.
TEST_F(RootDirectoryTest, RandomPathsAndLinksOpenOnlyFilesBelowTheRoot) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::vector<std::string> parts = {"a",  "b",  "..", ".", "file",
                                          "l0", "l1", "l2", "",  "secret"};
  const auto draw_path = [&] {
    std::string path = parts[random() % parts.size()];
    for (uint64_t n = random() % 5; n > 0; --n) path += "/" + parts[random() % parts.size()];
    return path;
  };
  for (int round = 0; round < 200; ++round) {
    for (const char* name : {"l0", "a/l1", "a/b/l2"}) {
      std::filesystem::remove(directory_.File(std::string("root/") + name));
      Link(random() % 8 == 0 ? directory_.path() : "./" + draw_path(), name);
    }
    for (int i = 0; i < 20; ++i) {
      const std::string path = draw_path();
      EXPECT_NE(Read(path), "secret") << path;
    }
  }
}

}  // namespace
}  // namespace sluice
