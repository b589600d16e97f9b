#include "engine/model/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kModule[] = "base_model.model.model.layers.0.self_attn.q_proj";

testing::TensorBytes Zeros(const std::string& name, const std::vector<int64_t>& shape,
                           const std::string& dtype = "F32") {
  return {name, dtype, shape, std::string(shape[0] * shape[1] * (dtype == "F64" ? 8 : 4), '\0')};
}

testing::TensorBytes Vector(const std::string& name, int64_t size) {
  return {name, "F32", {size}, std::string(size * 4, '\0')};
}

// The matrices of a projection of the tiny model in rank 2.
std::vector<testing::TensorBytes> Matrices(const std::string& module = kModule) {
  return {Zeros(module + ".lora_A.weight", {2, 32}), Zeros(module + ".lora_B.weight", {32, 2})};
}

class AdapterTest : public ::testing::Test {
 protected:
  void Write(const json& changes, const std::vector<testing::TensorBytes>& tensors) const {
    json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 6}};
    if (!changes.is_null()) config.update(changes);
    WriteTestFile(folder_.File("adapter_config.json"), config.dump());
    WriteTestFile(folder_.File("adapter_model.safetensors"), testing::SafetensorsFile(tensors));
  }
  absl::StatusOr<std::shared_ptr<const Adapter>> Load() const {
    return LoadAdapter("a", *model_, Directory::Open(folder_.path()).value());
  }
  std::string Error() const { return std::string(Load().status().message()); }

  const TemporaryDirectory folder_;
  const std::shared_ptr<const Model> model_ = testing::RandomModel(testing::TinyConfig(), 1);
};

TEST_F(AdapterTest, ReadsTheScaleAndTheLayers) {
  Write({}, Matrices());
  auto adapter = Load();
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  EXPECT_EQ((*adapter)->scale, 3);
  ASSERT_EQ((*adapter)->layers.size(), 1u);
  const auto& op = std::get<LinearOp>(model_->graph.ops[(*adapter)->layers[0].op]);
  EXPECT_EQ(op.weight.name, "model.layers.0.self_attn.q_proj.weight");
  Write({{"use_rslora", true}}, Matrices("base_model.model.layers.1.mlp.up_proj"));
  EXPECT_THAT(Error(), HasSubstr("must be [40, 2]"));
  Write({{"use_rslora", true}}, Matrices("base_model.model.layers.1.self_attn.o_proj"));
  adapter = Load();
  ASSERT_TRUE(adapter.ok()) << "the prefix of the names may be absent: " << adapter.status();
  EXPECT_FLOAT_EQ((*adapter)->scale, 6 / std::sqrt(2.0f));
}

TEST_F(AdapterTest, NamesTheMissingFile) {
  EXPECT_THAT(Error(), HasSubstr("adapter a: adapter_config.json is missing"));
  WriteTestFile(folder_.File("adapter_config.json"), "{}");
  EXPECT_THAT(Error(), HasSubstr("adapter_model.safetensors is missing"));
}

// Cuts and changes bytes of valid files. A load must fail or succeed without reading outside them.
TEST_F(AdapterTest, SurvivesDamagedFiles) {
  const uint64_t seed = 99;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  Write({{"bias", "none"}, {"use_rslora", true}}, Matrices());
  const std::string config = ReadTestFile(folder_.File("adapter_config.json"));
  const std::string weights = ReadTestFile(folder_.File("adapter_model.safetensors"));
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string damaged = i % 2 == 0 ? config : weights.substr(0, 400);
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    for (uint64_t n = 1 + random() % 3; n > 0 && !damaged.empty(); --n) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (i % 2 == 1 && damaged.size() == 400) damaged += weights.substr(400);
    WriteTestFile(folder_.File("adapter_config.json"), i % 2 == 0 ? damaged : config);
    WriteTestFile(folder_.File("adapter_model.safetensors"), i % 2 == 1 ? damaged : weights);
    refused += !Load().ok();
  }
  EXPECT_GT(refused, 200);
}

struct ConfigRow {
  const char* name;
  const char* changes;
  const char* error;
};
class AdapterConfigTable : public TableTest<ConfigRow, AdapterTest> {};

TEST_P(AdapterConfigTable, IsRefused) {
  Write(json::parse(row().changes), Matrices());
  EXPECT_THAT(Error(), HasSubstr(std::string("adapter a: adapter_config.json: ") + row().error));
}

const ConfigRow kConfigRows[] = {
    {.name = "DoRA", .changes = R"({"use_dora": true})", .error = "use_dora is not supported"},
    {.name = "AnotherMethod", .changes = R"({"peft_type": "IA3"})", .error = "peft_type must be"},
    {.name = "Biases", .changes = R"({"bias": "all"})", .error = "bias is not supported"},
    {.name = "ABiasOfB", .changes = R"({"lora_bias": true})", .error = "lora_bias is not"},
    {.name = "ASavedHeadOfALanguageModel",
     .changes = R"({"task_type": "CAUSAL_LM", "modules_to_save": ["lm_head"]})",
     .error = "modules_to_save has \"lm_head\", which is not supported: only classifiers"},
    {.name = "ASavedClassifierWithoutATask",
     .changes = R"({"modules_to_save": ["classifier"]})",
     .error = "modules_to_save has \"classifier\", which is not supported: only classifiers"},
    {.name = "AnotherSavedModule",
     .changes = R"({"task_type": "SEQ_CLS", "modules_to_save": ["score", "embed_tokens"]})",
     .error = "modules_to_save has \"embed_tokens\", which is not supported; an adapter of this "
              "model may save: score"},
    {.name = "SavedModulesThatAreNotAList",
     .changes = R"({"modules_to_save": "score"})",
     .error = "modules_to_save must be null or a list of up to 64 names"},
    {.name = "RanksByModule",
     .changes = R"({"rank_pattern": {"q_proj": 4}})",
     .error = "rank_pattern is not supported"},
    {.name = "ScalesByModule",
     .changes = R"({"alpha_pattern": {"q_proj": 4}})",
     .error = "alpha_pattern is not supported"},
    {.name = "AnInitialisationFromTheModel",
     .changes = R"({"init_lora_weights": "pissa"})",
     .error = "init_lora_weights is not supported"},
    {.name = "AnUnknownFeature",
     .changes = R"({"from_the_future": 1})",
     .error = "from_the_future is not supported"},
    {.name = "RankZero", .changes = R"({"r": 0})", .error = "r "},
    {.name = "ALargeRank", .changes = R"({"r": 513})", .error = "r "},
    {.name = "ANegativeAlpha", .changes = R"({"lora_alpha": -1})", .error = "lora_alpha "},
    {.name = "NoAlpha", .changes = R"({"lora_alpha": null})", .error = "lora_alpha"},
};
SLUICE_TABLE(AdapterConfigTable, kConfigRows);

TEST_F(AdapterTest, AcceptsFeaturesThatAreOffAndKeysWithoutEffect) {
  Write(json::parse(R"({"use_dora": false, "modules_to_save": null, "rank_pattern": {},
                        "from_the_future": [], "lora_dropout": 0.1, "target_modules": "all-linear",
                        "task_type": "CAUSAL_LM", "init_lora_weights": "gaussian"})"),
        Matrices());
  EXPECT_EQ(Load().status(), absl::OkStatus());
}

constexpr char kScore[] = "base_model.model.score.weight";
const json kSavesScore = {{"task_type", "SEQ_CLS"}, {"modules_to_save", {"classifier", "score"}}};

std::vector<testing::TensorBytes> With(std::vector<testing::TensorBytes> tensors,
                                       const testing::TensorBytes& more) {
  tensors.push_back(more);
  return tensors;
}

TEST_F(AdapterTest, ReadsAClassifierAndTheNamesOfItsLabels) {
  Write(kSavesScore, With(Matrices(), Zeros(kScore, {3, 32})));
  auto adapter = Load();
  ASSERT_TRUE(adapter.ok()) << adapter.status();
  ASSERT_TRUE((*adapter)->head.has_value());
  const ClassifierConfig* config = (*adapter)->head->config.get();
  EXPECT_EQ(config->labels, 3);
  EXPECT_EQ(config->pooling, Pooling::kLast);
  EXPECT_FALSE(config->of_tokens);
  EXPECT_THAT(config->names, ElementsAre());
  EXPECT_EQ((*adapter)->head->classifier.saved_bytes(), 3 * 32 * 4);

  WriteTestFile(folder_.File("config.json"), R"({"id2label": {"0": "a", "1": "b", "2": "c"},
                                                 "problem_type": "multi_label_classification"})");
  json of_tokens = kSavesScore;
  of_tokens["task_type"] = "TOKEN_CLS";
  Write(of_tokens, {Zeros(kScore, {3, 32})});
  EXPECT_THAT(Error(), HasSubstr("tensor base_model.model.score.bias is missing"));
  Write(of_tokens, {Zeros(kScore, {3, 32}), Vector("base_model.model.score.bias", 3)});
  adapter = Load();
  ASSERT_TRUE(adapter.ok()) << "a classifier needs no matrices: " << adapter.status();
  config = (*adapter)->head->config.get();
  EXPECT_THAT(config->names, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(config->multi_label);
  EXPECT_TRUE(config->of_tokens);
}

TEST_F(AdapterTest, AClassifierOutlivesItsFile) {
  Write(kSavesScore,
        {{kScore, "BF16", {1, 32}, std::string("\x80\x3f", 2) + std::string(62, '\0')}});
  std::optional<Classifier> copy = (*Load())->head->classifier.WithCopies();
  WriteTestFile(folder_.File("adapter_model.safetensors"), "");
  std::vector<double> state(32, 7), scores;
  copy->Score(state, &scores);
  EXPECT_THAT(scores, ElementsAre(7));
}

struct HeadRow {
  const char* name;
  std::vector<testing::TensorBytes> tensors;
  const char* labels;  // config.json
  const char* error;
};
class AdapterHeadTable : public TableTest<HeadRow, AdapterTest> {};

TEST_P(AdapterHeadTable, IsRefused) {
  if (*row().labels != '\0') WriteTestFile(folder_.File("config.json"), row().labels);
  Write(kSavesScore, row().tensors);
  EXPECT_THAT(Error(), HasSubstr(row().error));
}

const HeadRow kHeadRows[] = {
    {.name = "NoScores",
     .tensors = Matrices(),
     .labels = "",
     .error = "adapter_model.safetensors: tensor base_model.model.score.weight is missing; list "
              "score in modules_to_save"},
    {.name = "AnotherWidth",
     .tensors = {Zeros(kScore, {3, 31})},
     .labels = "",
     .error = "score.weight has shape [3, 31], must be [3, 32]"},
    {.name = "AVector",
     .tensors = {Vector(kScore, 32)},
     .labels = "",
     .error = "score.weight has shape [32], must be [labels, 32]"},
    {.name = "DoublePrecision",
     .tensors = {Zeros(kScore, {3, 32}, "F64")},
     .labels = "",
     .error = "score.weight has dtype F64"},
    {.name = "ABiasThatTheClassifierLacks",
     .tensors = {Zeros(kScore, {3, 32}), Vector("base_model.model.score.bias", 3)},
     .labels = "",
     .error = "tensor base_model.model.score.bias is not supported"},
    {.name = "AModuleThatIsNotListed",
     .tensors = {Zeros(kScore, {3, 32}), Zeros("base_model.model.lm_head.weight", {61, 32})},
     .labels = "",
     .error = "tensor base_model.model.lm_head.weight is not supported"},
    {.name = "NamesOfOtherLabels",
     .tensors = {Zeros(kScore, {3, 32})},
     .labels = R"({"id2label": {"0": "a", "1": "b"}})",
     .error = "config.json: id2label has 2 labels; the adapter's module score has 3"},
    {.name = "ANumberOfOtherLabels",
     .tensors = {Zeros(kScore, {3, 32})},
     .labels = R"({"num_labels": 4})",
     .error = "config.json: num_labels has 4 labels; the adapter's module score has 3"},
};
SLUICE_TABLE(AdapterHeadTable, kHeadRows);

struct TensorRow {
  const char* name;
  std::vector<testing::TensorBytes> tensors;
  const char* error;
};
class AdapterTensorsTable : public TableTest<TensorRow, AdapterTest> {};

TEST_P(AdapterTensorsTable, AreRefused) {
  Write({}, row().tensors);
  EXPECT_THAT(Error(), HasSubstr("adapter a: adapter_model.safetensors: "));
  EXPECT_THAT(Error(), HasSubstr(row().error));
}

const TensorRow kTensorRows[] = {
    {.name = "None", .tensors = {}, .error = "it has no tensors"},
    {.name = "OnlyA",
     .tensors = {Matrices()[0]},
     .error = "self_attn.q_proj.lora_B.weight is missing"},
    {.name = "AnotherRank",
     .tensors = {Zeros(std::string(kModule) + ".lora_A.weight", {3, 32}), Matrices()[1]},
     .error = "has shape [3, 32], must be [2, 32]"},
    {.name = "DoublePrecision",
     .tensors = {Zeros(std::string(kModule) + ".lora_A.weight", {2, 32}, "F64"), Matrices()[1]},
     .error = "has dtype F64"},
    {.name = "AMagnitudeOfDoRA",
     .tensors = {Zeros(std::string(kModule) + ".lora_magnitude_vector", {32, 1})},
     .error = "lora_magnitude_vector is not supported"},
    {.name = "AHead",
     .tensors = Matrices("base_model.model.lm_head"),
     .error = "belongs to no layer that an adapter of this model can change; these are: down_proj, "
              "embed_tokens, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"},
    {.name = "ALayerTooMany",
     .tensors = Matrices("base_model.model.model.layers.2.self_attn.q_proj"),
     .error = "layers.2.self_attn.q_proj.lora_A.weight belongs to no layer"},
    {.name = "OnlyAOfAnEmbedding",
     .tensors = {Zeros("base_model.model.model.embed_tokens.lora_embedding_A", {2, 61})},
     .error = "model.embed_tokens.lora_embedding_B is missing"},
    {.name = "MatricesOfADenseLayerForAnEmbedding",
     .tensors = Matrices("base_model.model.model.embed_tokens"),
     .error = "embed_tokens.lora_A.weight belongs to no layer"},
    {.name = "MatricesOfAnEmbeddingForADenseLayer",
     .tensors = {Zeros(std::string(kModule) + ".lora_embedding_A", {2, 32})},
     .error = "q_proj.lora_embedding_A belongs to no layer"},
};
SLUICE_TABLE(AdapterTensorsTable, kTensorRows);

TEST(ListAdaptersTest, ListsFoldersAndRefusesNamesThatNoRequestCanGive) {
  const TemporaryDirectory root;
  for (const char* name : {"b", "a.1", ".hidden"}) {
    std::filesystem::create_directory(root.File(name));
  }
  WriteTestFile(root.File("README.md"), "");
  const Directory folder = Directory::Open(root.path()).value();
  EXPECT_THAT(*ListAdapters(folder), ElementsAre("a.1", "b"));
  std::filesystem::create_directory(root.File("a:b"));
  EXPECT_THAT(std::string(ListAdapters(folder).status().message()),
              HasSubstr("\"a:b\" is not a valid name"));
}

// Changes a golden model whose checkpoint has adapters for tasks.
class TasksTest : public ::testing::Test {
 protected:
  TasksTest() {
    std::filesystem::copy(SLUICE_SOURCE_DIR "/tests/goldens/families/jina_tasks_1", root_.path(),
                          std::filesystem::copy_options::recursive);
    config_ = json::parse(ReadTestFile(root_.File("config.json")));
  }
  absl::StatusOr<std::shared_ptr<const Model>> Load() {
    WriteTestFile(root_.File("config.json"), config_.dump());
    return LoadModel("m", 1, root_.path());
  }

  const TemporaryDirectory root_;
  json config_;
};

TEST_F(TasksTest, AreAdaptersOfTheModel) {
  auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->graph.takes_adapters);
  std::vector<std::string> names;
  for (const AdapterSource& source : (*model)->adapters) names.push_back(source.name);
  EXPECT_THAT(names, ElementsAre("retrieval.query", "retrieval.passage", "text-matching"));
  testing::WriteAdapter(**model, 1, 3, kernels::DType::kF32, root_.File("adapters/text-matching"));
  EXPECT_THAT(
      std::string(Load().status().message()),
      HasSubstr("adapter text-matching: the model's own checkpoint has an adapter of this"));
  config_["load_trained_adapters"] = false;
  model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->adapters.size(), 1u) << "only the one of the folder";
}

TEST_F(TasksTest, NeedTheirMatricesInTheCheckpoint) {
  config_["lora_rank"] = config_["lora_rank"].get<int>() + 1;
  EXPECT_THAT(std::string(Load().status().message()),
              HasSubstr("adapter retrieval.query: tensor roberta.embeddings.word_embeddings."
                        "parametrizations.weight.0.lora_A has shape"));
  config_["lora_adaptations"].push_back("separation");
  EXPECT_FALSE(Load().ok());
}

TEST(LoadModelTest, TakesAdaptersIfThereIsAFolder) {
  const TemporaryDirectory root;
  testing::WriteModel(testing::TinyConfig(), 1, kernels::DType::kF32, root.path());
  auto model = LoadModel("m", 1, root.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE((*model)->graph.takes_adapters);
  testing::WriteAdapter(**model, 1, 3, kernels::DType::kF32, root.File("adapters/one"));
  model = LoadModel("m", 1, root.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->graph.takes_adapters);
  ASSERT_EQ((*model)->adapters.size(), 1u);
  EXPECT_EQ((*model)->adapters[0].name, "one");
  const TemporaryDirectory empty;
  model = LoadModel("m", 1, root.path(), {.adapters = empty.path()});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->graph.takes_adapters && (*model)->adapters.empty());
  EXPECT_THAT(
      std::string(LoadModel("m", 1, root.path(), {.adapters = "/no/such"}).status().message()),
      HasSubstr("adapters: cannot open directory /no/such"));
}

}  // namespace
}  // namespace sluice
