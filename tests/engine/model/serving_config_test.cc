#include "engine/model/serving_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/model/config.h"
#include "engine/model/output_heads.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json Document(bool causal = true) {
  ModelConfig config = testing::TinySluiceConfig(1);
  config.causal = causal;
  return json::parse(testing::ConfigJson(config));
}

absl::StatusOr<ModelConfig> Parse(json document, const char* key, const json& value) {
  document["sluice"][key] = value;
  return ParseModelConfig(document.dump());
}

TEST(ServingConfigTest, DefaultsFollowTheAttention) {
  const auto causal = ParseModelConfig(Document().dump());
  ASSERT_TRUE(causal.ok()) << causal.status();
  EXPECT_EQ(causal->serving.pooling, Poolings(Pooling::kLast));
  EXPECT_EQ(causal->serving.classifier.labels, 0);
  EXPECT_EQ(causal->serving.alignment, PositionAlignment::kStart);
  EXPECT_EQ(causal->serving.truncate, std::nullopt);
  const auto both = Parse(Document(false), "classifier", {{"labels", 4}});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->serving.pooling, Poolings(Pooling::kMean));
  EXPECT_EQ(both->serving.classifier.pooling, Pooling::kCls);
  EXPECT_TRUE(both->serving.classifier.bias);
  EXPECT_FALSE(both->serving.classifier.pooler);
}

TEST(ServingConfigTest, EveryKeyIsRead) {
  const auto embedding =
      Parse(Document(), "embedding", {{"pooling", "cls"}, {"normalize", true}})->serving;
  EXPECT_EQ(embedding.pooling, Poolings(Pooling::kCls));
  EXPECT_TRUE(embedding.normalize);
  const json keys = {{"labels", 7}, {"pooling", "mean"}, {"pooler", "tanh"}, {"bias", false}};
  const ClassifierConfig classifier = Parse(Document(), "classifier", keys)->serving.classifier;
  EXPECT_EQ(classifier.labels, 7);
  EXPECT_EQ(classifier.pooling, Pooling::kMean);
  EXPECT_TRUE(classifier.pooler);
  EXPECT_FALSE(classifier.bias);
  const auto extraction = Parse(Document(false), "extraction",
                                {{"width", 16},
                                 {"lstm_layers", 1},
                                 {"max_width", 7},
                                 {"max_words", 90},
                                 {"label_marker", "[M]"},
                                 {"separator", "[S]"},
                                 {"label_state", "next"},
                                 {"before_labels", json::array({"(", "[P]"})},
                                 {"after_labels", json::array({")"})},
                                 {"gate", "[P]"},
                                 {"label_head", "attention"},
                                 {"words", "links"},
                                 {"conflicts", "label"}});
  ASSERT_TRUE(extraction.ok()) << extraction.status();
  const ExtractionConfig& head = *extraction->serving.extraction;
  EXPECT_EQ(head.width, 16);
  EXPECT_EQ(head.lstm_layers, 1);
  EXPECT_EQ(head.max_width, 7);
  EXPECT_EQ(head.max_words, 90);
  EXPECT_EQ(head.label_marker, "[M]");
  EXPECT_EQ(head.separator, "[S]");
  EXPECT_EQ(head.label_state, LabelState::kNext);
  EXPECT_EQ(head.before_labels, (std::vector<std::string>{"(", "[P]"}));
  EXPECT_EQ(head.after_labels, std::vector<std::string>{")"});
  EXPECT_EQ(head.gate, "[P]");
  EXPECT_EQ(head.label_head, LabelHeadKind::kAttention);
  EXPECT_EQ(head.words, WordKind::kLinks);
  EXPECT_TRUE(head.label_by_label);
  EXPECT_TRUE(head.labels_in_row());
  const auto outside = Parse(Document(false), "extraction", {{"width", 16}, {"label_marker", ""}});
  ASSERT_TRUE(outside.ok()) << outside.status();
  EXPECT_FALSE(outside->serving.extraction->labels_in_row());
  EXPECT_EQ(outside->serving.extraction->separator, "");
  EXPECT_EQ(extraction->serving.truncate, Truncation::kRight);
  EXPECT_EQ(Parse(Document(), "position_alignment", "end")->serving.alignment,
            PositionAlignment::kEnd);
  EXPECT_EQ(Parse(Document(), "truncate", "left")->serving.truncate, Truncation::kLeft);
}

struct BadServingConfigRow {
  const char* name;
  const char* key;
  json value;
  const char* named;
};
class BadServingConfigTable : public TableTest<BadServingConfigRow> {};

TEST_P(BadServingConfigTable, TheErrorNamesTheKey) {
  const auto parsed = Parse(Document(), row().key, row().value);
  ASSERT_FALSE(parsed.ok());
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(row().named));
}

const BadServingConfigRow kBadServingConfigRows[] = {
    {.name = "AnUnknownPoolingIsRefused",
     .key = "embedding",
     .value = {{"pooling", "median"}},
     .named = "sluice.embedding.pooling"},
    {.name = "AnUnknownKeyOfTheEmbeddingIsRefused",
     .key = "embedding",
     .value = {{"size", 3}},
     .named = "sluice.embedding.size"},
    {.name = "AClassifierWithoutLabelsIsRefused",
     .key = "classifier",
     .value = json::object(),
     .named = "sluice.classifier.labels"},
    {.name = "ZeroLabelsAreRefused",
     .key = "classifier",
     .value = {{"labels", 0}},
     .named = "sluice.classifier.labels"},
    {.name = "LabelsThatOverflowAreRefused",
     .key = "classifier",
     .value = {{"labels", int64_t{1} << 40}},
     .named = "sluice.classifier.labels"},
    {.name = "AGateOutsideOfTheTextsBeforeLabelsIsRefused",
     .key = "extraction",
     .value = {{"width", 16}, {"gate", "[P]"}},
     .named = "sluice.extraction.gate"},
    {.name = "ASeparatorAfterNoLabelsIsRefused",
     .key = "extraction",
     .value = {{"width", 16}, {"label_marker", ""}, {"separator", "[S]"}},
     .named = "sluice.extraction.separator"},
    {.name = "AMissingSeparatorIsRefused",
     .key = "extraction",
     .value = {{"width", 16}, {"separator", ""}},
     .named = "sluice.extraction.separator"},
    {.name = "AStateOfLabelsOutsideOfRowsIsRefused",
     .key = "extraction",
     .value = {{"width", 16}, {"label_marker", ""}, {"label_state", "next"}},
     .named = "sluice.extraction.label_state"},
    {.name = "AnUnknownHeadOfLabelsIsRefused",
     .key = "extraction",
     .value = {{"width", 16}, {"label_head", "gru"}},
     .named = "sluice.extraction.label_head"},
    {.name = "AnUnknownAlignmentIsRefused",
     .key = "position_alignment",
     .value = "middle",
     .named = "sluice.position_alignment"},
    {.name = "ATruncationThatIsABooleanIsRefused",
     .key = "truncate",
     .value = true,
     .named = "sluice.truncate"},
};
SLUICE_TABLE(BadServingConfigTable, kBadServingConfigRows);

TEST(OutputHeadsTest, SoftmaxFollowsItsDefinition) {
  std::vector<double> values = {1, 3, -INFINITY, 2};
  std::vector<double> logs = values, logistic = {0, 2};
  const double sum = std::exp(1) + std::exp(2) + std::exp(3);
  Softmax(values);
  LogSoftmax(logs);
  Sigmoid(logistic);
  EXPECT_NEAR(values[1], std::exp(3) / sum, 1e-15);
  EXPECT_EQ(values[2], 0);
  EXPECT_NEAR(logs[3], 2 - std::log(sum), 1e-15);
  EXPECT_EQ(logs[2], -INFINITY);
  EXPECT_NEAR(logistic[1], 1 / (1 + std::exp(-2.0)), 1e-15);
  std::vector<double> none = {-INFINITY, -INFINITY};
  LogSoftmax(none);
  EXPECT_EQ(none[0], -INFINITY) << "and no NaN";
}

}  // namespace
}  // namespace sluice
