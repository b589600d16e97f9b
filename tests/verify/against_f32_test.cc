#include "verify/against_f32.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/checkpoint_writer.h"
#include "tests/support/golden_file.h"
#include "tests/support/temporary_directory.h"

namespace sluice::verify {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Error(const std::string& directory, const std::string& text) {
  const auto report = VerifyAgainstF32(directory, text, {.threads = 1, .profile = "f32"}, {});
  return report.ok() ? Report(*report) : std::string(report.status().message());
}

TEST(VerifyAgainstF32Test, ErrorsNameTheFileAndTheLine) {
  const TemporaryDirectory directory;
  testing::WriteModel(testing::TinyConfig(1), 1, kernels::DType::kBF16, directory.path());
  const std::string text = directory.File("text");
  EXPECT_EQ(Error(directory.path(), text), "cannot read " + text + ": No such file or directory");
  WriteTestFile(text, "1 2 3\n4 61\n");
  EXPECT_EQ(Error(directory.path(), text),
            text + ": line 2: is not a list of token ids in [0, 60]; the model has no tokenizer");
  WriteTestFile(text, "\n");
  EXPECT_EQ(Error(directory.path(), text), text + ": has no text");
  EXPECT_THAT(Error("nowhere", text), HasSubstr("nowhere"));
}

// A tab divides a pair: the report has another score than for the same words as one text.
TEST(VerifyAgainstF32Test, LinesWithATabArePairsForAClassifierOfPairs) {
  const std::string model = testing::GoldenPath("sentences/cross_1");
  const TemporaryDirectory directory;
  const std::string text = directory.File("text");
  const auto int8 = [&](const std::string& line) {
    WriteTestFile(text, line);
    const auto report =
        VerifyAgainstF32(model, text, {.threads = 1, .profile = "f32"},
                         {.quantization = QuantizationConfig{Quantization::kInt8, true}});
    EXPECT_TRUE(report.ok()) << report.status();
    return Report(*report);
  };
  const std::string pair = int8("the server\tanswers the request\n");
  EXPECT_THAT(pair, HasSubstr("labels: 0 of 1 differ"));
  EXPECT_NE(pair, int8("the server answers the request\n"));
  std::string longer = "the server\t";
  for (int i = 0; i < 200; ++i) longer += "answers ";
  EXPECT_THAT(int8(longer + "\n"), HasSubstr("labels: 0 of 1 differ"));
}

TEST(VerifyAgainstF32Test, Int8DiffersFromF32AndF32DoesNot) {
  const TemporaryDirectory directory;
  testing::WriteModel(testing::TinyConfig(1), 1, kernels::DType::kBF16, directory.path());
  const std::string text = directory.File("text");
  WriteTestFile(text, "1 2 3\n4 5 6 7\n8 9\n");
  EXPECT_THAT(Error(directory.path(), text), HasSubstr("largest difference 0, mean 0"));
  const auto int8 =
      VerifyAgainstF32(directory.path(), text, {.threads = 1, .profile = "f32"},
                       {.quantization = QuantizationConfig{Quantization::kInt8, true}});
  ASSERT_TRUE(int8.ok()) << int8.status();
  const std::string text_of_int8 = Report(*int8);
  EXPECT_THAT(text_of_int8, Not(HasSubstr("largest difference 0,")));
  EXPECT_THAT(text_of_int8, HasSubstr("of 6 next tokens"));
  EXPECT_THAT(text_of_int8, HasSubstr("embeddings of 3 texts: mean cosine 0.99"));
  const nlohmann::json json = ReportJson(*int8);
  EXPECT_EQ(json["texts"], 3);
  EXPECT_EQ(json["next_tokens"]["tokens"], 6);
  EXPECT_GT(json["next_tokens"]["largest_difference"], 0);
  EXPECT_EQ(json["embeddings"]["mean_cosine"], int8->mean_cosine);
  EXPECT_FALSE(json.contains("labels"));
}

}  // namespace
}  // namespace sluice::verify
