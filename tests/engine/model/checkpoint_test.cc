#include "engine/model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SafetensorsFile;

absl::StatusOr<Checkpoint> Open(const TemporaryDirectory& directory) {
  SLUICE_ASSIGN_OR_RETURN(auto opened, Directory::Open(directory.path()));
  return Checkpoint::Open(opened);
}

std::string OpenError(const TemporaryDirectory& directory) {
  const auto checkpoint = Open(directory);
  EXPECT_FALSE(checkpoint.ok());
  return std::string(checkpoint.status().message());
}

void WriteIndex(const TemporaryDirectory& directory, const std::string& weight_map) {
  WriteTestFile(directory.File("model.safetensors.index.json"),
                R"({"weight_map": )" + weight_map + "}");
}

TEST(CheckpointTest, FindsTensorsByNameAndShape) {
  const TemporaryDirectory directory;
  const std::string values("\0\0\x80\x3f\0\0\0\x40", 8);  // 1.0f, 2.0f
  WriteTestFile(directory.File("model.safetensors"),
                SafetensorsFile({{"a", "F32", {2}, values}, {"b", "I64", {1}, values}}));
  auto opened = Open(directory);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Checkpoint checkpoint = *std::move(opened);  // the mapping moves with it

  const auto a = checkpoint.Find("a", {2});
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ(a->dtype, kernels::DType::kF32);
  EXPECT_EQ(a->elements(), 2);
  EXPECT_EQ(kernels::LoadAsFloat(a->data, a->dtype, 1), 2.0f);
  EXPECT_EQ(checkpoint.Find("a", {2, 1}).status(),
            absl::InvalidArgumentError("tensor a has shape [2], must be [2, 1]"));
  EXPECT_EQ(checkpoint.Find("b", {1}).status(),
            absl::InvalidArgumentError("tensor b has dtype I64, must be F32, F16 or BF16"));
  EXPECT_EQ(checkpoint.Find("c", {1}).status(), absl::NotFoundError("tensor c is missing"));
  EXPECT_TRUE(checkpoint.Has("a"));
  EXPECT_FALSE(checkpoint.Has("b"));
}

TEST(CheckpointTest, ErrorsNameTheFile) {
  const TemporaryDirectory directory;
  EXPECT_THAT(OpenError(directory), HasSubstr("cannot open model.safetensors"));
  WriteTestFile(directory.File("model.safetensors"), "");
  EXPECT_THAT(OpenError(directory), HasSubstr("model.safetensors: no safetensors header size"));
  EXPECT_FALSE(Directory::Open(directory.File("model.safetensors")).ok());
  EXPECT_THAT(std::string(Directory::Open(directory.File("missing")).status().message()),
              HasSubstr("cannot open directory " + directory.File("missing")));
}

TEST(CheckpointTest, NamesTheConverterIfThereAreOnlyPickledWeights) {
  const TemporaryDirectory directory;
  EXPECT_THAT(OpenError(directory), HasSubstr("cannot open model.safetensors"));
  WriteTestFile(directory.File("pytorch_model.bin"), "PK");
  EXPECT_EQ(
      OpenError(directory),
      "there is pytorch_model.bin but no model.safetensors; convert it with tools/convert DIR "
      "NEW_DIR (docs/your_model.md)");
}

TEST(CheckpointTest, ReadsTensorsFromSeveralShards) {
  const TemporaryDirectory directory;
  WriteTestFile(directory.File("one.safetensors"), SafetensorsFile({{"a", "F32", {1}, "abcd"}}));
  WriteTestFile(directory.File("two.safetensors"),
                SafetensorsFile({{"b", "BF16", {2}, "efgh"}, {"c", "I8", {1}, "x"}}));
  WriteIndex(directory, R"({"a": "one.safetensors", "b": "two.safetensors",
                            "c": "two.safetensors"})");
  const auto checkpoint = Open(directory);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(checkpoint->Find("a", {1}).ok());
  EXPECT_TRUE(checkpoint->Find("b", {2}).ok());
}

struct BadIndexRow {
  const char* name;
  const char* weight_map;
  const char* error;
};
class BadIndexTable : public TableTest<BadIndexRow> {};

TEST_P(BadIndexTable, TheErrorNamesTheFault) {
  const TemporaryDirectory directory;
  WriteTestFile(directory.File("one.safetensors"), SafetensorsFile({{"a", "F32", {1}, "abcd"}}));
  WriteTestFile(directory.File("two.safetensors"),
                SafetensorsFile({{"a", "F32", {1}, "abcd"}, {"b", "F32", {1}, "abcd"}}));
  WriteIndex(directory, row().weight_map);
  EXPECT_THAT(OpenError(directory), HasSubstr(row().error));
}

const BadIndexRow kBadIndexRows[] = {
    {.name = "ATensorOfTwoShardsIsRefused",
     .weight_map = R"({"a": "one.safetensors", "b": "two.safetensors"})",
     .error = "two.safetensors: tensor a is in another shard too"},
    {.name = "AMissingTensorIsRefused",
     .weight_map = R"({"a": "one.safetensors", "x": "one.safetensors"})",
     .error = "tensor x is missing"},
    {.name = "AnUnlistedTensorIsRefused",
     .weight_map = R"({"b": "two.safetensors"})",
     .error = "hold 2 tensors"},
    {.name = "AMissingShardIsRefused",
     .weight_map = R"({"a": "three.safetensors"})",
     .error = "cannot open three.safetensors"},
    {.name = "AListOfShardsIsRefused",
     .weight_map = R"(["one.safetensors"])",
     .error = "weight_map is not an object of file names"},
    {.name = "AFileNameThatIsANumberIsRefused",
     .weight_map = R"({"a": 1})",
     .error = "weight_map is not an object of file names"},
    {.name = "AnotherKindOfFileIsRefused",
     .weight_map = R"({"a": "one.bin"})",
     .error = "\"one.bin\" is not a .safetensors file"},
    {.name = "ATensorListedTwiceIsRefused",
     .weight_map = R"({"a": "one.safetensors", "a": "two.safetensors"})",
     .error = "appears twice"},
};
SLUICE_TABLE(BadIndexTable, kBadIndexRows);

TEST(CheckpointTest, FileNamesThatLeaveTheDirectoryAreRefused) {
  const TemporaryDirectory directory;
  const std::string file = SafetensorsFile({{"a", "F32", {1}, "abcd"}});
  WriteTestFile(directory.File("secret.safetensors"), file);
  std::filesystem::create_directory(directory.File("model"));
  const auto inside = Directory::Open(directory.File("model"));
  ASSERT_TRUE(inside.ok());
  const std::string absolute = directory.File("secret.safetensors");
  for (const std::string& name :
       {std::string("../secret.safetensors"), absolute, std::string("./x.safetensors"),
        std::string("sub/x.safetensors"), std::string("..\\u0000.safetensors")}) {
    SCOPED_TRACE(name);
    WriteTestFile(directory.File("model/model.safetensors.index.json"),
                  R"({"weight_map": {"a": ")" + name + "\"}}");
    const auto checkpoint = Checkpoint::Open(*inside);
    EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(checkpoint.status().message()), HasSubstr("not a plain file name"));
  }
}

TEST(CheckpointTest, MessagesShowNamesAsOneHarmlessLine) {
  const TemporaryDirectory directory;
  WriteIndex(directory, R"({"a": "x\u001b[2J\n.safetensors"})");
  EXPECT_THAT(OpenError(directory), HasSubstr("cannot open x\\x1b[2J\\n.safetensors"));
  WriteIndex(directory, R"({"a": "../\u0007.safetensors"})");
  EXPECT_THAT(OpenError(directory), HasSubstr("\"../\\x07.safetensors\" is not a plain file name"));
}

TEST(DirectoryTest, ReadsFilesUpToTheLimitAndRefusesLargerOnes) {
  const TemporaryDirectory directory;
  const std::string text("a\0b\n", 4);
  WriteTestFile(directory.File("x"), text);
  WriteTestFile(directory.File("empty"), "");
  const auto opened = Directory::Open(directory.path());
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(*opened->Read("x", 4), text);
  EXPECT_EQ(*opened->Read("empty", 0), "");
  EXPECT_EQ(opened->Read("x", 3).status(),
            absl::InvalidArgumentError("x has 4 bytes; the limit is 3"));
  // The file is a hole that takes no space on the disk; nothing of its size may be allocated.
  std::filesystem::resize_file(directory.File("x"), std::uintmax_t{1} << 40);
  EXPECT_EQ(opened->Read("x", 4).status(),
            absl::InvalidArgumentError("x has 1099511627776 bytes; the limit is 4"));
}

// A service whose standard input is closed gets its number for the next file that it opens.
TEST(MappedFileTest, AFileMayHaveTheNumberOfTheStandardInput) {
  const TemporaryDirectory directory;
  WriteTestFile(directory.File("x"), "text");
  const int input = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  const auto file = MappedFile::Open(directory.File("x"), FileAccess::kMap);
  dup2(input, STDIN_FILENO);
  close(input);
  EXPECT_TRUE(file.ok()) << file.status();
}

TEST(CheckpointTest, RefusesTooManyShards) {
  const TemporaryDirectory directory;
  std::string weight_map = "{";
  for (int i = 0; i < 4097; ++i) {
    weight_map += "\"" + std::to_string(i) + "\": \"" + std::to_string(i) + ".safetensors\",";
  }
  weight_map.back() = '}';
  WriteIndex(directory, weight_map);
  EXPECT_THAT(OpenError(directory), HasSubstr("4097 shards; the limit is 4096"));
}

TEST(CheckpointTest, RefusesLinksOutOfTheDirectoryAndFilesThatAreNotRegular) {
  const TemporaryDirectory directory;
  const std::string model = directory.File("model.safetensors");
  WriteTestFile(directory.File("other.safetensors"), SafetensorsFile({{"a", "F32", {1}, "abcd"}}));
  std::filesystem::create_symlink("other.safetensors", model);
  EXPECT_TRUE(Checkpoint::Open(*Directory::Open(directory.path())).ok());
  std::filesystem::remove(model);
  std::filesystem::create_symlink("../other.safetensors", model);
  EXPECT_THAT(OpenError(directory),
              HasSubstr("leads out of the root directory by the symbolic link model.safetensors"));
  std::filesystem::remove(model);
  ASSERT_EQ(mkfifo(model.c_str(), 0600), 0);
  EXPECT_THAT(OpenError(directory), HasSubstr("model.safetensors is not a regular file"));
  std::filesystem::remove(model);
  std::filesystem::create_directory(model);
  EXPECT_THAT(OpenError(directory), HasSubstr("model.safetensors is not a regular file"));
}

}  // namespace
}  // namespace sluice
