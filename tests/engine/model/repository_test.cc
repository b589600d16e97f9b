#include "engine/model/repository.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RepositoryTest : public ::testing::Test {
 protected:
  void AddModel(const std::string& path, uint64_t seed = 1) {
    std::filesystem::create_directories(root_.File(path));
    testing::WriteModel(testing::TinyConfig(), seed, kernels::DType::kF32, root_.File(path));
  }
  ModelRepository Open() { return *ModelRepository::Open(root_.path()); }
  std::string FindError(const std::string& name) {
    return std::string(Open().Find(name).status().message());
  }

  const TemporaryDirectory root_;
};

TEST_F(RepositoryTest, ListsModelsAndReportsOtherDirectories) {
  AddModel("plain");
  AddModel("many/2");
  AddModel("many/10");
  for (const char* path :
       {"many/03", "many/0", "many/x", "many/4294967296", "empty", ".hidden", "..data", "sp ace"}) {
    std::filesystem::create_directory(root_.File(path));
  }
  WriteTestFile(root_.File("README"), "no model");
  const auto list = Open().List();
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->size(), 3u);
  EXPECT_EQ((*list)[0].name, "empty");
  EXPECT_THAT(std::string((*list)[0].status.message()), HasSubstr("neither config.json nor"));
  EXPECT_EQ((*list)[1].name, "many");
  EXPECT_THAT((*list)[1].versions, ElementsAre(2, 10));
  EXPECT_EQ((*list)[2].name, "plain");
  EXPECT_THAT((*list)[2].versions, ElementsAre(1));
}

TEST_F(RepositoryTest, FindsByNameOnly) {
  AddModel("m");
  EXPECT_TRUE(Open().Find("m").ok());
  EXPECT_EQ(Open().Find("absent").status().code(), absl::StatusCode::kNotFound);
  for (const std::string& name :
       {std::string("../m"), std::string("m/"), std::string(""), std::string("."),
        std::string(".."), std::string("m\0x", 3), std::string(129, 'm'), std::string("/etc")}) {
    EXPECT_EQ(Open().Find(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST_F(RepositoryTest, FollowsTheLinksOfAKubernetesVolume) {
  AddModel("store/v7");
  std::filesystem::create_symlink("store/v7", root_.File("m"));
  std::filesystem::create_directory(root_.File("n"));
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::create_symlink(std::string("../m/") + file, root_.File("n/") + file);
  }
  for (const char* name : {"m", "n"}) {
    const ModelRepository repository = Open();
    const auto found = repository.Find(name);
    ASSERT_TRUE(found.ok()) << found.status();
    const auto folder = repository.Folder(*found, 1);
    ASSERT_TRUE(folder.ok()) << folder.status();
    EXPECT_TRUE(LoadModel(name, 1, *folder).ok()) << LoadModel(name, 1, *folder).status();
  }
}

TEST_F(RepositoryTest, AFolderStaysTheSameIfTheLinkToItChanges) {
  AddModel("store/.v1", 1);
  AddModel("store/.v2", 2);
  const auto link = [&](const std::string& name, const std::string& target) {
    std::filesystem::create_symlink(target, root_.File("new"));
    std::filesystem::rename(root_.File("new"), root_.File(name));
  };
  link("m", "store/.v1");
  link("store/.v1/words.txt", "../shared.txt");
  WriteTestFile(root_.File("store/shared.txt"), "shared");
  const ModelRepository repository = Open();
  const auto folder = repository.Folder(*repository.Find("m"), 1);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const std::string fingerprint = *folder->Fingerprint();
  link("m", "store/.v2");
  EXPECT_EQ(*folder->Fingerprint(), fingerprint);
  EXPECT_NE(*repository.Folder(*repository.Find("m"), 1)->Fingerprint(), fingerprint);
  const auto weights = folder->Map("model.safetensors");
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ((*weights)->bytes(),
            (*MappedFile::Open(root_.File("store/.v1/model.safetensors")))->bytes());
  EXPECT_EQ(*folder->Read("words.txt", 99), "shared") << "links start at the folder's own place";
}

TEST_F(RepositoryTest, RefusesLinksThatLeaveTheRepository) {
  const TemporaryDirectory outside;
  testing::WriteModel(testing::TinyConfig(), 1, kernels::DType::kF32, outside.path());
  std::filesystem::create_symlink(outside.path(), root_.File("whole"));
  EXPECT_THAT(FindError("whole"), HasSubstr("out of the root directory"));
  AddModel("weights");
  std::filesystem::remove(root_.File("weights/model.safetensors"));
  std::filesystem::create_symlink(outside.File("model.safetensors"),
                                  root_.File("weights/model.safetensors"));
  const ModelRepository repository = Open();
  const absl::Status status =
      LoadModel("weights", 1, *repository.Folder(*repository.Find("weights"), 1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("weights/model.safetensors leads out of the root directory"));
}

TEST_F(RepositoryTest, FingerprintsChangeWithTheFiles) {
  AddModel("m");
  const auto fingerprint = [this] {
    const ModelRepository repository = Open();
    return *repository.Folder(*repository.Find("m"), 1)->Fingerprint();
  };
  const std::string before = fingerprint();
  EXPECT_EQ(fingerprint(), before);
  WriteTestFile(root_.File("m/notes.txt"), "no part of the model");
  EXPECT_EQ(fingerprint(), before);
  AddModel("other", 2);
  std::filesystem::rename(root_.File("other/model.safetensors"), root_.File("m/model.safetensors"));
  EXPECT_NE(fingerprint(), before);
}

}  // namespace
}  // namespace sluice
