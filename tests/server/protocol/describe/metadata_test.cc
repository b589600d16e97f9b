#include "server/protocol/describe/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/protocol/messages.h"
#include "tests/support/fake_backend.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

template <typename Tensors>
std::vector<std::string> Names(const Tensors& tensors) {
  std::vector<std::string> names;
  for (const auto& tensor : tensors) names.push_back(tensor.name());
  return names;
}

TEST(MetadataTest, OnlyDefaultOutputsAreListed) {
  const inference::ModelMetadataResponse text = DescribeModel(*testing::TextModel(), {1, 3});
  EXPECT_EQ(text.name(), "text");
  EXPECT_THAT(text.versions(), ElementsAre("1", "3"));
  EXPECT_THAT(Names(text.inputs()), ElementsAre("input_ids", "input_lengths", "text_input"));
  EXPECT_THAT(Names(text.outputs()), ElementsAre("output_ids", "sequence_length", "logprobs",
                                                 "finish_reason", "text_output"));
  EXPECT_EQ(text.properties().at("direction"), "causal");
  EXPECT_TRUE(text.properties().contains("pooling"));
  EXPECT_EQ(text.properties().at("normalize"), "false");
  EXPECT_EQ(text.properties().at("truncate"), "error");
  EXPECT_FALSE(text.properties().contains("ignored"));
  EXPECT_EQ(text.properties().at("special_tokens"), "[]");
  const inference::ModelMetadataResponse ids = DescribeModel(*FakeModel(FakeConfig()), {1});
  EXPECT_THAT(Names(ids.inputs()), ElementsAre("input_ids", "input_lengths"));
  EXPECT_THAT(Names(ids.outputs()),
              ElementsAre("output_ids", "sequence_length", "logprobs", "finish_reason"));
}

TEST(MetadataTest, ListsTheTasksThatHaveAdaptersInTheCheckpoint) {
  ModelConfig config = FakeConfig();
  EXPECT_FALSE(DescribeModel(*FakeModel(config), {1}).properties().contains("task_adapters"));
  config.task_adapters.names = {"retrieval.query", "separation"};
  EXPECT_EQ(DescribeModel(*FakeModel(config), {1}).properties().at("task_adapters"),
            R"(["retrieval.query","separation"])");
}

TEST(MetadataTest, TheTaskOfAModelWithExtractionIsExtract) {
  ModelConfig config = FakeConfig();
  EXPECT_EQ(DescribeModel(*FakeModel(config), {1}).properties().at("task"), "generate");
  config.serving.extraction = {.width = 1, .max_width = 1, .max_words = 1};
  EXPECT_EQ(DescribeModel(*FakeModel(config), {1}).properties().at("task"), "extract");
}

TEST(MetadataTest, StatesTheActivationThatMakesProbabilities) {
  const auto activation = [](const ClassifierConfig& classifier) {
    ModelConfig config = FakeConfig();
    config.serving.classifier = classifier;
    const auto properties = DescribeModel(*FakeModel(config), {1}).properties();
    return properties.contains("probabilities") ? properties.at("probabilities") : "absent";
  };
  EXPECT_EQ(activation({.labels = 0}), "absent");
  EXPECT_EQ(activation({.labels = 1}), "sigmoid");
  EXPECT_EQ(activation({.labels = 3}), "softmax");
  EXPECT_EQ(activation({.labels = 3, .multi_label = true}), "sigmoid");
  EXPECT_EQ(activation({.labels = 3, .scale = ScoreScale::kSigmoid}), "sigmoid");
  EXPECT_EQ(activation({.labels = 1, .scale = ScoreScale::kSoftmax}), "softmax");
  EXPECT_EQ(activation({.labels = 1, .regression = true}), "none");
  EXPECT_EQ(activation({.labels = 3, .regression = true}), "none");
  EXPECT_EQ(activation({.labels = 1, .regression = true, .scale = ScoreScale::kSigmoid}),
            "sigmoid");
}

TEST(MetadataTest, ShapesBeginWithTheRowDimension) {
  const inference::ModelMetadataResponse response = DescribeModel(*testing::TextModel(), {1});
  EXPECT_THAT(response.inputs(0).shape(), ElementsAre(-1, -1));
  EXPECT_EQ(response.inputs(0).datatype(), "INT32");
  EXPECT_THAT(response.inputs(2).shape(), ElementsAre(-1, 1));
  EXPECT_EQ(response.inputs(2).datatype(), "BYTES");
  EXPECT_THAT(response.outputs(1).shape(), ElementsAre(-1, 1));
}

TEST(DescribeMemoryLimit, IsEmptyWithoutALimitAndNamesItsEffect) {
  ModelStats stats;
  EXPECT_EQ(DescribeMemoryLimit(stats), "");
  stats.ladder_options.memory_limit_bytes = 1024;
  EXPECT_EQ(DescribeMemoryLimit(stats), "1024 bytes for the ladder, which it does not change");
  stats.memory_limit_effect = "Smaller.";
  EXPECT_EQ(DescribeMemoryLimit(stats), "Smaller.");
}

TEST(MetadataTest, TheConfigEqualsTheMetadataWithoutTheRowDimension) {
  const auto model = testing::TextModel();
  const inference::ModelMetadataResponse metadata = DescribeModel(*model, {1});
  const inference::ModelConfig config =
      ConfigureModel(*model, /*max_rows=*/7, /*max_queue_delay_us=*/50);
  EXPECT_EQ(config.name(), "text");
  EXPECT_EQ(config.max_batch_size(), 7);
  EXPECT_EQ(config.dynamic_batching().max_queue_delay_microseconds(), 50u);
  EXPECT_FALSE(config.model_transaction_policy().decoupled());
  EXPECT_EQ(Names(config.input()), Names(metadata.inputs()));
  EXPECT_EQ(Names(config.output()), Names(metadata.outputs()));
  for (int i = 0; i < config.input_size(); ++i) {
    EXPECT_TRUE(config.input(i).optional());
    EXPECT_THAT(config.input(i).dims(), ElementsAre(metadata.inputs(i).shape(1)));
  }
  EXPECT_EQ(config.input(0).data_type(), inference::TYPE_INT32);
  EXPECT_EQ(config.input(2).data_type(), inference::TYPE_STRING);
  EXPECT_EQ(config.output(2).data_type(), inference::TYPE_FP32);
}

}  // namespace
}  // namespace sluice
