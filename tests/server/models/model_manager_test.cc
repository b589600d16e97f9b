#include "server/models/model_manager.h"

#include <filesystem>
#include <fstream>

#include "base/interruption.h"
#include "engine/step_description.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/models/model_target.h"
#include "server/models/repository_calls.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/fake_backend.h"
#include "tests/support/recording_observer.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

EngineOptions OfLittleWork() {
  EngineOptions options;
  options.ladder.strategy = StrategyKind::kGeometric;
  options.ladder.ratio = 4;
  options.batch.max_batch_tokens = 64;
  return options;
}

class ModelManagerTest : public ::testing::Test {
 protected:
  void AddModel(const std::string& path, uint64_t seed = 1) {
    std::filesystem::create_directories(root_.File(path));
    ModelConfig config = testing::TinyConfig();
    config.max_positions = 64;
    testing::WriteModel(config, seed, kernels::DType::kF32, root_.File(path));
  }

  // Returns "name:version" of each served model.
  std::vector<std::string> Served() {
    std::vector<std::string> names;
    for (const auto& model : engine_->Models()) {
      names.push_back(model->name + ":" + std::to_string(model->version));
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  // Returns "name:version reason" of each model; for models that are ready, the reason is "ready".
  std::vector<std::string> Index() {
    std::vector<std::string> lines;
    const auto entries = *manager_.Index();
    for (const ModelManager::Entry& entry : entries) {
      lines.push_back(entry.name + ":" + std::to_string(entry.version) +
                      (entry.ready ? " ready" : "") +
                      (entry.reason.empty() ? "" : " " + entry.reason));
    }
    return lines;
  }
  std::shared_ptr<const Model> Find(const std::string& name) {
    const auto model = engine_->Resolve(name, "");
    return model.ok() ? *model : nullptr;
  }

  const TemporaryDirectory root_;
  FakeBackend backend_;
  RecordingObserver observer_;
  const std::unique_ptr<Log> log_ = *Log::Create({.level = "error"});
  const std::unique_ptr<Engine> engine_ =
      Engine::Create(OfLittleWork(), &backend_, Clock::Real(), &observer_);
  ModelManager manager_{engine_.get(), log_.get()};
};

// Returns the reasons of all models in ListModels, in one text.
std::string ReasonsOf(ModelManager* manager, Reasons reasons) {
  inference::RepositoryIndexResponse index;
  EXPECT_TRUE(ListModels({}, manager, reasons, &index).ok());
  std::string all;
  for (const auto& model : index.models()) all += model.reason() + "\n";
  return all;
}

TEST_F(ModelManagerTest, AnIndexShowsNoPathsToCallersThatMayOnlyInfer) {
  AddModel("a/1");
  ASSERT_EQ(manager_.Apply({}, root_.path()).status(), absl::OkStatus());
  std::filesystem::create_directories(root_.File("a/2"));
  EXPECT_FALSE(manager_.Load("a", 2).ok());
  EXPECT_THAT(ReasonsOf(&manager_, Reasons::kInFull), HasSubstr("config.json"));
  const std::string word = ReasonsOf(&manager_, Reasons::kInAWord);
  EXPECT_THAT(word, HasSubstr("the admin address has the reason"));
  EXPECT_EQ(word.find('.'), std::string::npos) << word;
  EXPECT_EQ(word.find('/'), std::string::npos) << word;
  AddModel("b/1");
  AddModel("a/2");
  EXPECT_EQ(manager_.Load("a", 2), absl::OkStatus());
  EXPECT_EQ(ReasonsOf(&manager_, Reasons::kInAWord), "\n\nnot loaded\n");
}

TEST_F(ModelManagerTest, ServesTheListedModelsAndTheHighestVersions) {
  const TemporaryDirectory elsewhere;
  testing::WriteModel(testing::TinyConfig(), 1, kernels::DType::kF32, elsewhere.path());
  AddModel("a");
  AddModel("b/2");
  AddModel("b/10");
  ASSERT_EQ(manager_.Apply({{"listed", elsewhere.path(), 3}}, root_.path()).status(),
            absl::OkStatus());
  EXPECT_THAT(Served(), ElementsAre("a:1", "b:10", "listed:3"));
  EXPECT_THAT(Index(), ElementsAre("a:1 ready", "b:2 not loaded", "b:10 ready", "listed:3 ready"));
  EXPECT_EQ(manager_.Apply({{"a", elsewhere.path(), 3}}, root_.path()).status().code(),
            absl::StatusCode::kInvalidArgument)
      << "two directories with one name";
  EXPECT_EQ(manager_.Apply({}, "").status(), absl::OkStatus());
  EXPECT_THAT(Served(), IsEmpty());
}

TEST_F(ModelManagerTest, CountsTheModelsOfTheListAndOfTheRepository) {
  AddModel("a");
  AddModel("b/2");
  AddModel("b/10");
  std::filesystem::create_directories(root_.File("no-model"));
  const std::vector<ModelSpec> listed = {{"x", "/a", 1}, {"y", "/b", 1}};
  EXPECT_EQ(CountModels(listed, root_.path()), 4);
  EXPECT_EQ(CountModels(listed, ""), 2);
  EXPECT_EQ(CountModels(listed, root_.File("absent")), 2);
}

TEST_F(ModelManagerTest, ANameOfTheHubIsExplained) {
  const auto error = [&](const std::string& path) {
    return std::string(manager_.Apply({{"m", path, 1}}, "").status().message());
  };
  EXPECT_THAT(error("sentence-transformers/no-such-model"),
              HasSubstr("sluice-pull \"sentence-transformers/no-such-model\""));
  for (const char* path : {"no-such-model", "/no/such", "./no-such", "a/b/c", "no-such/"}) {
    EXPECT_THAT(error(path), Not(HasSubstr("sluice-pull"))) << path;
  }
}

TEST_F(ModelManagerTest, LoadsAndUnloadsAdaptersOfAServedModelByName) {
  AddModel("a");
  const auto write = [&](const std::string& name) {
    const auto base = LoadModel("a", 1, root_.File("a"));
    testing::WriteAdapter(**base, 1, 2, kernels::DType::kF32, root_.File("a/adapters/" + name));
  };
  write("one");
  ASSERT_EQ(manager_.Apply({}, root_.path()).status(), absl::OkStatus());
  const auto model = Find("a");
  EXPECT_THAT(Index(), ElementsAre("a:1 ready", "a:one:1 ready"));
  EXPECT_EQ(manager_.Load("a:two", {}).code(), absl::StatusCode::kNotFound);
  write("two");
  EXPECT_EQ(manager_.Load("a:two", {}), absl::OkStatus());
  EXPECT_EQ(manager_.Load("a:two", 1), absl::OkStatus()) << "again";
  EXPECT_THAT(Index(), ElementsAre("a:1 ready", "a:one:1 ready", "a:two:1 ready"));
  EXPECT_EQ(manager_.Load("a:two", {}, root_.File("a/adapters/two/")), absl::OkStatus());
  for (const char* path : {"a/adapters/one", "a/adapters", "a/two", "a/adapters/two/two"}) {
    const absl::Status refused = manager_.Load("a:two", {}, root_.File(path));
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << path;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(root_.File("a/adapters/two")));
  }
  EXPECT_EQ(manager_.Load("a:two", {}, "two").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(manager_.Load("a", {}, root_.File("a")).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(manager_.Unload("a:one", {}), absl::OkStatus());
  EXPECT_EQ(manager_.Unload("a:one", {}).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Index(), ElementsAre("a:1 ready", "a:two:1 ready"));
  EXPECT_EQ(Find("a:two"), model) << "the model is not loaded again";
  EXPECT_EQ(Find("a:one"), nullptr);
  EXPECT_EQ(manager_.Load("b:two", {}).code(), absl::StatusCode::kNotFound);
  AddModel("c");
  ASSERT_EQ(manager_.Load("c", {}), absl::OkStatus());
  std::filesystem::create_directory(root_.File("c/adapters"));
  std::filesystem::copy(root_.File("a/adapters/two"), root_.File("c/adapters/two"));
  EXPECT_EQ(manager_.Load("c:two", {}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ModelManagerTest, ACheckReadsTheModelsWithoutAnEngine) {
  AddModel("a");
  AddModel("b/10");
  ModelManager checker(/*engine=*/nullptr, log_.get());
  const ModelManager::Checked checked = checker.Check({}, root_.path());
  EXPECT_THAT(checked.errors, IsEmpty());
  EXPECT_EQ(checked.models, 2);
  const auto model = *LoadModel("a", 1, root_.File("a"), {});
  EXPECT_EQ(checked.weight_bytes, 2 * EstimateWeightMemory(*model)) << "two equal models";
  EXPECT_EQ(checked.file_bytes, 2 * model->checkpoint.bytes());
}

TEST_F(ModelManagerTest, ACheckNamesEachModelThatApplyLeavesOut) {
  AddModel("a");
  AddModel("short");
  WriteTestFile(root_.File("short/model.safetensors"), "short");
  AddModel("link");
  std::filesystem::remove(root_.File("link/config.json"));
  std::filesystem::create_symlink("/etc/hostname", root_.File("link/config.json"));
  std::vector<std::string> errors;
  for (const absl::Status& error : manager_.Check({}, root_.path()).errors) {
    errors.emplace_back(error.message());
  }
  EXPECT_THAT(errors,
              UnorderedElementsAre(HasSubstr("model short version 1 from the repository: "),
                                   HasSubstr("model link version 1 from the repository: ")));
  const auto applied = manager_.Apply({}, root_.path());
  ASSERT_EQ(applied.status(), absl::OkStatus()) << "the other model is served";
  EXPECT_THAT(applied->failed, UnorderedElementsAre(HasSubstr(errors[0]), HasSubstr(errors[1])));
}

TEST_F(ModelManagerTest, LoadsADraftModelFirst) {
  AddModel("large");
  AddModel("small", 2);
  const auto listed = [&](const std::string& draft) {
    ModelSpec large{.name = "large", .path = root_.File("large")};
    large.speculation = {.kind = Speculation::kModel, .draft = draft};
    return std::vector<ModelSpec>{large, {.name = "small", .path = root_.File("small")}};
  };
  ASSERT_EQ(manager_.Apply(listed("small"), "").status(), absl::OkStatus());
  const auto large = Find("large");
  EXPECT_EQ(large->draft, Find("small"));
  EXPECT_EQ(manager_.Load("large", std::nullopt), absl::OkStatus());
  EXPECT_EQ(Find("large")->draft, Find("small"));
  // A change of the draft model's files loads both models again.
  const auto loaded = Find("large");
  ASSERT_TRUE(manager_.Apply(listed("small"), "").ok());
  EXPECT_EQ(Find("large"), loaded);
  AddModel("new", 3);
  std::filesystem::rename(root_.File("new/model.safetensors"),
                          root_.File("small/model.safetensors"));
  ASSERT_TRUE(manager_.Apply(listed("small"), "").ok());
  EXPECT_NE(Find("large"), loaded);
  EXPECT_EQ(Find("large")->draft, Find("small"));

  const auto error = [&](const std::string& draft) {
    return std::string(manager_.Apply(listed(draft), "").status().message());
  };
  EXPECT_EQ(error("other"),
            "model large: speculation.draft is other, which is not the name of a model. Add it to "
            "the list of models");
  EXPECT_EQ(error("large"),
            "model large: speculation.draft is large, but this model drafts for another one or for "
            "itself. Remove speculation.draft");
}

TEST_F(ModelManagerTest, KeepsModelsThatHaveNotChanged) {
  AddModel("a");
  AddModel("b");
  ASSERT_TRUE(manager_.Apply({}, root_.path()).ok());
  const auto a = Find("a"), b = Find("b");
  AddModel("new", 2);
  std::filesystem::rename(root_.File("new/model.safetensors"), root_.File("b/model.safetensors"));
  std::filesystem::remove_all(root_.File("new"));
  ASSERT_TRUE(manager_.Apply({}, root_.path()).ok());
  EXPECT_EQ(Find("a"), a);
  EXPECT_NE(Find("b"), b);
}

TEST_F(ModelManagerTest, CopiesOfAModelHaveTheSameFingerprintAndEachFileCounts) {
  const auto fingerprint = [this](const std::string& name) {
    EXPECT_EQ(manager_.Apply({}, root_.path()).status(), absl::OkStatus());
    return Find(name)->content_hash;
  };
  AddModel("a/1");
  AddModel("b/1");
  AddModel("other/1", /*seed=*/2);
  const std::string first = fingerprint("a");
  EXPECT_EQ(first.size(), 16u);
  EXPECT_EQ(fingerprint("b"), first);
  EXPECT_NE(fingerprint("other"), first);

  const auto write = [this](const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_.File(file)).parent_path());
    std::ofstream(root_.File(file)) << text;
  };
  write("b/1/2_Other/config.json", "{}");
  const std::string second = fingerprint("b");
  EXPECT_NE(second, first);
  write("b/1/2_Other/config.json", "[]");
  EXPECT_NE(fingerprint("b"), second);
  EXPECT_EQ(fingerprint("a"), first);
}

TEST_F(ModelManagerTest, ABrokenListedModelChangesNothing) {
  AddModel("listed");
  AddModel("repository/a");
  const std::string repository = root_.File("repository");
  const std::vector<ModelSpec> models = {{"listed", root_.File("listed"), 1}};
  ASSERT_TRUE(manager_.Apply({}, repository).ok());
  AddModel("repository/good");
  WriteTestFile(root_.File("listed/model.safetensors"), "short");
  const absl::Status status = manager_.Apply(models, repository).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("listed"));
  EXPECT_THAT(Served(), ElementsAre("a:1"));
  EXPECT_EQ(manager_.Apply({}, root_.File("nowhere")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Served(), ElementsAre("a:1"));
}

TEST_F(ModelManagerTest, ABrokenModelOfTheRepositoryIsLeftOut) {
  AddModel("a");
  AddModel("worse");
  WriteTestFile(root_.File("worse/model.safetensors"), "short");
  int loaded = 0, failed = 0;
  manager_.SetOnLoad([&](bool ok) { ++(ok ? loaded : failed); });
  const auto changes = manager_.Apply({}, root_.path());
  ASSERT_EQ(changes.status(), absl::OkStatus());
  EXPECT_THAT(changes->loaded, ElementsAre("a version 1"));
  EXPECT_THAT(changes->failed, ElementsAre(HasSubstr("worse version 1: model worse version 1")));
  EXPECT_EQ(loaded, 1);
  EXPECT_EQ(failed, 1);
  EXPECT_THAT(Served(), ElementsAre("a:1"));
  EXPECT_THAT(Index(), ElementsAre("a:1 ready", HasSubstr("worse:1 the last load failed: ")));
  EXPECT_THAT(manager_.FailedModels(), ElementsAre("worse version 1"));
  EXPECT_EQ(manager_.Load("worse", std::nullopt).code(), absl::StatusCode::kInvalidArgument);
  // A further Apply tries again.
  ASSERT_EQ(manager_.Apply({}, root_.path()).status(), absl::OkStatus());
  EXPECT_EQ(failed, 3);
  EXPECT_THAT(Index()[1], HasSubstr("worse:1 the last load failed: "));
  AddModel("worse");
  ASSERT_EQ(manager_.Apply({}, root_.path()).status(), absl::OkStatus());
  EXPECT_THAT(Index(), ElementsAre("a:1 ready", "worse:1 ready"));
  EXPECT_THAT(manager_.FailedModels(), IsEmpty());
  std::filesystem::remove_all(root_.File("worse"));
  EXPECT_TRUE(manager_.Apply({}, root_.path()).ok());
  EXPECT_THAT(Index(), ElementsAre("a:1 ready")) << "models that failed are forgotten";
}

TEST_F(ModelManagerTest, AModelWhoseNewFilesAreBrokenStays) {
  AddModel("a");
  AddModel("same");
  AddModel("higher/1");
  AddModel("link");
  ASSERT_EQ(manager_.Apply({}, root_.path()).status(), absl::OkStatus());
  const auto same = Find("same"), higher = Find("higher"), link = Find("link");
  WriteTestFile(root_.File("same/config.json"), "{}");
  AddModel("higher/2");
  WriteTestFile(root_.File("higher/2/model.safetensors"), "short");
  std::filesystem::remove(root_.File("link/config.json"));
  std::filesystem::create_symlink("/etc/hostname", root_.File("link/config.json"));
  AddModel("new");
  const auto changes = manager_.Apply({}, root_.path());
  ASSERT_EQ(changes.status(), absl::OkStatus());
  EXPECT_THAT(changes->loaded, ElementsAre("new version 1"));
  EXPECT_THAT(changes->withdrawn, IsEmpty());
  EXPECT_EQ(changes->failed.size(), 3u);
  EXPECT_THAT(Served(), ElementsAre("a:1", "higher:1", "link:1", "new:1", "same:1"));
  EXPECT_EQ(Find("same"), same);
  EXPECT_EQ(Find("higher"), higher);
  EXPECT_EQ(Find("link"), link);
  EXPECT_THAT(Index(), ElementsAre("a:1 ready", "higher:1 ready",
                                   HasSubstr("higher:2 the last load failed: "),
                                   HasSubstr("link:1 ready the last load failed: "), "new:1 ready",
                                   HasSubstr("same:1 ready the last load failed: ")));
  EXPECT_THAT(manager_.FailedModels(),
              ElementsAre("higher version 2", "link version 1", "same version 1"));
}

TEST_F(ModelManagerTest, AModelOfTheRepositoryThatCannotBeWarmedUpIsLeftOut) {
  AddModel("a");
  AddModel("b");
  AddModel("c");
  std::optional<Bucket> largest;  // prepared first, for each model
  int models = 0;
  backend_.OnPrepare([&](const Bucket& bucket) {
    if (!largest) largest = bucket;
    const bool second = bucket == *largest && ++models == 2;
    return second ? absl::InternalError("no such kernel") : absl::OkStatus();
  });
  const auto changes = manager_.Apply({}, root_.path());
  ASSERT_EQ(changes.status(), absl::OkStatus());
  ASSERT_EQ(changes->failed.size(), 1u);
  EXPECT_THAT(changes->failed[0], HasSubstr("b version 1: "));
  EXPECT_THAT(changes->failed[0], HasSubstr("no such kernel"));
  EXPECT_THAT(changes->loaded, ElementsAre("a version 1", "c version 1"));
  EXPECT_THAT(Served(), ElementsAre("a:1", "c:1"));
}

TEST_F(ModelManagerTest, WithoutAModelThatCanBeServedNothingChanges) {
  AddModel("one");
  AddModel("two");
  WriteTestFile(root_.File("one/model.safetensors"), "short");
  WriteTestFile(root_.File("two/config.json"), "{}");
  EXPECT_THAT(std::string(manager_.Apply({}, root_.path()).status().message()),
              HasSubstr("model one version 1"));
  AddModel("one");
  backend_.OnPrepare([](const Bucket&) { return absl::InternalError("no such kernel"); });
  EXPECT_THAT(std::string(manager_.Apply({}, root_.path()).status().message()),
              HasSubstr("no such kernel"));
  EXPECT_THAT(Served(), IsEmpty());
  // A served model stays until another one can be served.
  backend_.OnPrepare([](const Bucket&) { return absl::OkStatus(); });
  AddModel("listed/own");
  ASSERT_TRUE(manager_.Apply({{"own", root_.File("listed/own"), 1}}, "").ok());
  std::filesystem::remove_all(root_.File("one"));
  EXPECT_FALSE(manager_.Apply({}, root_.path()).ok());
  EXPECT_THAT(Served(), ElementsAre("own:1"));
}

TEST_F(ModelManagerTest, ADraftModelInTheRepositoryIsRequired) {
  AddModel("listed/large");
  AddModel("repository/a");
  AddModel("repository/small");
  WriteTestFile(root_.File("repository/small/model.safetensors"), "short");
  ModelSpec large{.name = "large", .path = root_.File("listed/large")};
  large.speculation = {.kind = Speculation::kModel, .draft = "small"};
  EXPECT_THAT(std::string(manager_.Apply({large}, root_.File("repository")).status().message()),
              HasSubstr("model small version 1 from the repository: "));
  EXPECT_THAT(Served(), IsEmpty());
}

TEST_F(ModelManagerTest, LoadsAndUnloadsByName) {
  AddModel("m/1");
  ASSERT_TRUE(manager_.Apply({}, root_.path()).ok());
  const auto first = Find("m");
  AddModel("m/2");
  AddModel("m/3");
  ASSERT_EQ(manager_.Load("m", 2), absl::OkStatus());
  EXPECT_THAT(Served(), ElementsAre("m:1", "m:2"));
  ASSERT_EQ(manager_.Load("m", 1), absl::OkStatus());
  EXPECT_NE(*engine_->Resolve("m", "1"), first) << "it is loaded again";
  ASSERT_EQ(manager_.Unload("m", 1), absl::OkStatus());
  EXPECT_THAT(Served(), ElementsAre("m:2"));
  ASSERT_EQ(manager_.Load("m", std::nullopt), absl::OkStatus());
  EXPECT_THAT(Served(), ElementsAre("m:3")) << "the highest version replaces the others";
  ASSERT_EQ(manager_.Unload("m", std::nullopt), absl::OkStatus());
  EXPECT_THAT(Served(), IsEmpty());
  EXPECT_EQ(manager_.Unload("m", std::nullopt).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(manager_.Load("m", 9).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(manager_.Load("absent", std::nullopt).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(manager_.Load("../m", std::nullopt).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ModelManagerTest, AnUnknownNameIsRefusedWithTheNearestAndTheKnownNames) {
  AddModel("listed");
  AddModel("repository/rec/1");
  AddModel("repository/rec/2");
  std::filesystem::create_directories(root_.File("repository/empty"));
  const std::vector<ModelSpec> models = {{"demo", root_.File("listed"), 3}};
  const auto load = [&](const std::string& name, std::optional<int64_t> version = std::nullopt) {
    return std::string(manager_.Load(name, version).message());
  };
  ASSERT_EQ(manager_.Apply(models, "").status(), absl::OkStatus());
  EXPECT_EQ(load("dmo"), "no model \"dmo\" is configured; did you mean demo?; known: demo");
  EXPECT_EQ(load("demo", 4), "no model \"demo\" with version 4 is configured; known versions: 3");
  ASSERT_EQ(manager_.Apply(models, root_.File("repository")).status(), absl::OkStatus());
  EXPECT_EQ(load("recc"),
            "no model \"recc\" is configured or in the model repository; did you mean rec?; known: "
            "demo, rec");
  EXPECT_EQ(load("rec", 9),
            "no model \"rec\" with version 9 is in the model repository; known versions: 1, 2");
  EXPECT_EQ(load("empty"), "model empty has neither config.json nor a numbered version");
  EXPECT_EQ(std::string(manager_.Unload("re", std::nullopt).message()),
            "no model \"re\" is served; did you mean rec?; known: demo, rec");
  EXPECT_EQ(std::string(manager_.Unload("rec", 1).message()),
            "no model \"rec\" with version 1 is served; known versions: 2");
}

TEST_F(ModelManagerTest, AFolderOfModelFoldersIsRefusedWithTheOptionForARepository) {
  AddModel("all/one");
  AddModel("all/two/7");
  const auto apply = [&](const std::string& path) {
    return std::string(manager_.Apply({{"m", root_.File(path), 1}}, "").status().message());
  };
  EXPECT_THAT(apply("all"),
              HasSubstr("; it has the folders of models one, two: serve all of them "
                        "by --model-repository " +
                        root_.File("all") + " (model_repository), or one by --model " +
                        "one=" + root_.File("all/one")));
  std::filesystem::create_directories(root_.File("none/folder"));
  EXPECT_THAT(apply("none"), Not(HasSubstr("--model-repository")));
  AddModel("broken");
  AddModel("broken/inner");
  std::filesystem::remove(root_.File("broken/model.safetensors"));
  EXPECT_THAT(apply("broken"), Not(HasSubstr("--model-repository")));
}

TEST_F(ModelManagerTest, ACacheOfTheHubIsRefusedWithTheFolderOfASnapshot) {
  const auto apply = [&](const std::string& path) {
    return std::string(manager_.Apply({{"m", root_.File(path), 1}}, "").status().message());
  };
  const std::string one = "hub/models--org--one", two = "hub/models--org--two";
  AddModel(one + "/snapshots/0123");
  AddModel(one + "/snapshots/4567");
  AddModel(two + "/snapshots/89ab");
  for (const std::string& each : {one, two}) {
    std::filesystem::create_directories(root_.File(each + "/refs"));
  }
  WriteTestFile(root_.File(one + "/refs/main"), "4567");
  const std::string of_one = root_.File(one + "/snapshots/4567");
  const std::string of_two = root_.File(two + "/snapshots/89ab");
  EXPECT_THAT(apply(one), AllOf(HasSubstr("snapshot in it, --model m=" + of_one),
                                Not(HasSubstr("--model-repository"))));
  EXPECT_THAT(apply(two), HasSubstr("snapshot in it, --model m=" + of_two));
  EXPECT_THAT(apply("hub"), HasSubstr("snapshot in it, --model m=" + of_one + ", " + of_two));
  EXPECT_EQ(apply(two + "/snapshots/89ab"), "");
  std::filesystem::create_directories(root_.File("empty/snapshots"));
  EXPECT_THAT(apply("empty"), Not(HasSubstr("Hugging Face")));
  AddModel("training/snapshots/epoch1");
  EXPECT_THAT(apply("training"), Not(HasSubstr("Hugging Face")));
}

TEST_F(ModelManagerTest, AnInterruptedLoadChangesNothing) {
  AddModel("a");
  bool ending = false;
  ModelManager manager(engine_.get(), log_.get(), FileAccess::kMap, [&ending] {
    return ending ? absl::CancelledError("the process ends") : absl::OkStatus();
  });
  ASSERT_EQ(manager.Apply({}, root_.path()).status(), absl::OkStatus());
  const auto served = Find("a");
  AddModel("b");
  ending = true;
  EXPECT_EQ(manager.Load("a", {}).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(manager.Apply({}, root_.path()).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Find("a"), served);
  EXPECT_EQ(Find("b"), nullptr);
}

TEST_F(ModelManagerTest, ALoadForgetsTheFailedVersionThatItReplaces) {
  AddModel("m/1");
  ASSERT_TRUE(manager_.Apply({}, root_.path()).ok());
  AddModel("m/2");
  WriteTestFile(root_.File("m/2/config.json"), "{}");
  EXPECT_FALSE(manager_.Load("m", std::nullopt).ok());
  EXPECT_THAT(manager_.FailedModels(), SizeIs(1));
  EXPECT_EQ(manager_.Load("m", 1), absl::OkStatus());
  EXPECT_THAT(manager_.FailedModels(), SizeIs(1)) << "version 2 is still to be repaired";
  std::filesystem::remove_all(root_.File("m/2"));
  EXPECT_EQ(manager_.Load("m", std::nullopt), absl::OkStatus());
  EXPECT_THAT(manager_.FailedModels(), IsEmpty());
  EXPECT_THAT(Index(), ElementsAre("m:1 ready"));
}

TEST_F(ModelManagerTest, AnErrorOfAModelWhoseLoadFailedStatesThis) {
  AddModel("a");
  AddModel("m/2");
  WriteTestFile(root_.File("m/2/config.json"), "{}");
  ASSERT_TRUE(manager_.Apply({}, root_.path()).ok());
  const auto message = [&](const char* name, const char* version) {
    return std::string(
        manager_.WithFailedLoad(absl::NotFoundError("no model"), name, version).message());
  };
  for (const char* const version : {"", "2"}) {
    EXPECT_THAT(message("m", version),
                HasSubstr("no model. The last load of m version 2 failed; the daemon's log"));
  }
  EXPECT_EQ(message("m", "1"), "no model");
  EXPECT_EQ(message("absent", ""), "no model");
  EXPECT_EQ(message("a", ""), "no model");
  const absl::Status other = absl::UnavailableError("u");
  EXPECT_EQ(manager_.WithFailedLoad(other, "m", ""), other);
  EXPECT_EQ(manager_.WithFailedLoad(absl::OkStatus(), "m", ""), absl::OkStatus());
}

TEST_F(ModelManagerTest, AnUnloadForgetsFailedLoads) {
  AddModel("a");
  AddModel("m");
  ASSERT_TRUE(manager_.Apply({}, root_.path()).ok());
  WriteTestFile(root_.File("m/config.json"), "{}");
  EXPECT_FALSE(manager_.Load("m", std::nullopt).ok());
  EXPECT_THAT(manager_.FailedModels(), SizeIs(1));
  EXPECT_EQ(manager_.Unload("m", std::nullopt), absl::OkStatus());
  EXPECT_THAT(manager_.FailedModels(), IsEmpty());
  EXPECT_THAT(Index(), ElementsAre("a:1 ready", "m:1 not loaded"));
}

TEST_F(ModelManagerTest, AFailedReloadBlamesOnlyTheModelThatFailed) {
  std::vector<ModelSpec> models;
  for (const char* name : {"a", "b", "c"}) {
    AddModel(name);
    models.push_back({.name = name, .path = root_.File(name)});
  }
  WriteTestFile(root_.File("b/model.safetensors"), "short");
  EXPECT_FALSE(manager_.Apply(models, "").ok());
  EXPECT_THAT(Index(), ElementsAre(HasSubstr("b:1 the last load failed: ")));
  AddModel("b");
  int prepared = 0;
  backend_.OnPrepare([&](const Bucket&) {
    return ++prepared == 1 ? absl::InternalError("no such kernel") : absl::OkStatus();
  });
  EXPECT_FALSE(manager_.Apply(models, "").ok());
  EXPECT_THAT(Index(), ElementsAre(HasSubstr("a:1 the last load failed: "),
                                   HasSubstr("b:1 the last load failed: ")))
      << "b was not loaded again";
  EXPECT_THAT(manager_.FailedModels(), ElementsAre("a version 1", "b version 1"));
}

// The tokenizer calls the check after the weights have been opened.
TEST_F(ModelManagerTest, AModelWhoseFilesAreReplacedDuringTheLoadIsRefused) {
  AddModel("m");
  AddModel("new", 2);
  WriteTestFile(root_.File("m/tokenizer.json"), R"({
    "added_tokens": [{"id": 2, "content": "<s>", "special": true}],
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "<s>": 2}, "unk_token": "a"}})");
  bool replaces = false;
  ModelManager manager(engine_.get(), log_.get(), FileAccess::kMap, [&] {
    std::error_code no_more;
    if (replaces) {
      std::filesystem::rename(root_.File("new/model.safetensors"),
                              root_.File("m/model.safetensors"), no_more);
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(manager.Apply({}, root_.path()).ok());
  const auto served = Find("m");
  replaces = true;
  const absl::Status status = manager.Load("m", std::nullopt);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("replaced while they were read"));
  EXPECT_EQ(Find("m"), served);
  EXPECT_EQ(manager.Load("m", std::nullopt), absl::OkStatus());
}

TEST_F(ModelManagerTest, AFailedReloadKeepsTheServedModel) {
  AddModel("m");
  ASSERT_TRUE(manager_.Apply({}, root_.path()).ok());
  const auto served = Find("m");
  backend_.OnPrepare([](const Bucket&) { return absl::InternalError("no such kernel"); });
  EXPECT_EQ(manager_.Load("m", std::nullopt).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Find("m"), served);
  EXPECT_THAT(Index()[0], HasSubstr("m:1 ready the last load failed: "));
  EXPECT_THAT(Index()[0], HasSubstr("no such kernel"));
}

}  // namespace
}  // namespace sluice
