#include "client/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/parameter.h"
#include "client/request_lines.h"
#include "tests/support/table.h"
#include "tests/support/tensor_bytes.h"

namespace sluice::client {
namespace {

using inference::ModelInferRequest;
using testing::HasSubstr;

TEST(SetText, SetsOneRowOfBytes) {
  ModelInferRequest request;
  SetText("h\xc3\xa9", &request);
  ASSERT_EQ(request.inputs_size(), 1);
  EXPECT_EQ(request.inputs(0).name(), "text_input");
  EXPECT_EQ(request.inputs(0).datatype(), "BYTES");
  EXPECT_THAT(request.inputs(0).shape(), testing::ElementsAre(1, 1));
  EXPECT_EQ(request.raw_input_contents(0), BytesElement("h\xc3\xa9"));
}

TEST(SetIds, SetsOneRowOfInt32) {
  ModelInferRequest request;
  SetIds({1, -2}, &request);
  EXPECT_EQ(request.inputs(0).name(), "input_ids");
  EXPECT_EQ(request.inputs(0).datatype(), "INT32");
  EXPECT_THAT(request.inputs(0).shape(), testing::ElementsAre(1, 2));
  EXPECT_EQ(request.raw_input_contents(0), std::string("\1\0\0\0\xfe\xff\xff\xff", 8));
}

TEST(SetItems, ReplacesEarlierItems) {
  ModelInferRequest request;
  SetIds({1}, &request);
  SetItems("exclude_ids", {4, 5}, &request);
  SetItems("exclude_ids", {6}, &request);
  ASSERT_EQ(request.inputs_size(), 2);
  EXPECT_EQ(request.inputs(1).name(), "exclude_ids");
  EXPECT_THAT(request.inputs(1).shape(), testing::ElementsAre(1, 1));
  EXPECT_EQ(request.raw_input_contents(1), std::string("\6\0\0\0", 4));
}

TEST(SetVectors, SetsRowsOfEqualWidth) {
  ModelInferRequest request;
  ASSERT_TRUE(SetVectors("[[1, 0.5], [-2, 0]]", &request).ok());
  EXPECT_EQ(request.inputs(0).name(), "inputs_embeds");
  EXPECT_EQ(request.inputs(0).datatype(), "FP32");
  EXPECT_THAT(request.inputs(0).shape(), testing::ElementsAre(1, 2, 2));
  const float values[] = {1, 0.5, -2, 0};
  EXPECT_EQ(request.raw_input_contents(0),
            std::string(reinterpret_cast<const char*>(values), sizeof values));
  for (const char* bad : {"", "[", "[]", "[[]]", "[1]", "[[1], [1, 2]]", "[[\"1\"]]", "{}"}) {
    EXPECT_FALSE(SetVectors(bad, &request).ok()) << bad;
  }
}

TEST(ParseRequestLine, ItemsOfTheLineOverrideItemsOfTheFlags) {
  ModelInferRequest defaults;
  SetItems("candidate_ids", {1, 2}, &defaults);
  const auto line = ParseRequestLine(
      R"({"inputs_embeds": [[1]], "candidate_ids": [7], "pooling": "cls"})", defaults);
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->inputs_size(), 2);
  EXPECT_EQ(line->raw_input_contents(0), std::string("\7\0\0\0", 4));
  EXPECT_EQ(line->parameters().at("pooling").string_param(), "cls");
}

TEST(ParseIds, NeedsIntegersWithCommas) {
  EXPECT_THAT(*ParseIds("1, 2,-3"), testing::ElementsAre(1, 2, -3));
  for (const char* bad : {"", ",", "1,", "1 2", "a", "1.5", "2147483648"}) {
    EXPECT_FALSE(ParseIds(bad).ok()) << bad;
  }
}

TEST(ParseRequestLine, TakesMissingKeysFromDefaults) {
  ModelInferRequest defaults;
  defaults.set_model_name("m");
  AddOutput("logits", &defaults);
  ASSERT_TRUE(SetParameter(*Parameters()[0], {"7"}, &defaults).ok());
  const auto plain = ParseRequestLine(R"({"text": "hi"})", defaults);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->model_name(), "m");
  EXPECT_EQ(plain->outputs(0).name(), "logits");
  EXPECT_EQ(plain->parameters().at("max_tokens").int64_param(), 7);
  EXPECT_EQ(plain->raw_input_contents(0), BytesElement("hi"));

  const auto full = ParseRequestLine(
      R"({"ids": [1, 2], "id": "r1", "model": "n", "version": "3", 
          "outputs": ["top_ids", "logprobs"],
          "max_tokens": 64, "temperature": 0.5, "top_k": 40, "top_p": 1, "min_p": 0.05,
          "seed": 18446744073709551615, "num_top": 3, 
          "stop": "x", "ignore_eos": true, "priority": 1, "timeout": "5ms"})",
      defaults);
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->id(), "r1");
  EXPECT_EQ(full->model_name(), "n");
  EXPECT_EQ(full->model_version(), "3");
  ASSERT_EQ(full->outputs_size(), 2);
  EXPECT_EQ(full->outputs(1).name(), "logprobs");
  const auto& parameters = full->parameters();
  EXPECT_EQ(parameters.at("max_tokens").int64_param(), 64);
  EXPECT_EQ(parameters.at("temperature").double_param(), 0.5);
  EXPECT_EQ(parameters.at("top_k").int64_param(), 40);
  EXPECT_EQ(parameters.at("top_p").double_param(), 1);
  EXPECT_EQ(parameters.at("min_p").double_param(), 0.05);
  EXPECT_EQ(parameters.at("seed").uint64_param(), UINT64_MAX);
  EXPECT_EQ(parameters.at("num_top_logprobs").int64_param(), 3);
  EXPECT_EQ(parameters.at("priority").int64_param(), 1);
  EXPECT_EQ(parameters.at("timeout").int64_param(), 5000);
  EXPECT_EQ(parameters.at("stop").string_param(), "[\"x\"]");
  EXPECT_TRUE(parameters.at("ignore_eos").bool_param());
  EXPECT_EQ(parameters.size(), 11);
}

struct BadRequestLineRow {
  const char* name;
  std::string line;
  const char* error;
};
class BadRequestLineTable : public TableTest<BadRequestLineRow> {};

TEST_P(BadRequestLineTable, IsNamedWithItsKey) {
  EXPECT_EQ(ParseRequestLine(row().line, ModelInferRequest()).status(),
            absl::InvalidArgumentError(row().error));
}

const BadRequestLineRow kBadRequestLineRows[] = {
    {.name = "Nothing", .line = "", .error = "not valid JSON"},
    {.name = "AnObjectThatIsNotClosed", .line = "{\"text\": \"a\"", .error = "not valid JSON"},
    {.name = "TextAfterTheObject", .line = "{\"text\": \"a\"} x", .error = "not valid JSON"},
    {.name = "BytesThatAreNotUtf8", .line = "{\"text\": \"\xff\"}", .error = "not valid JSON"},
    {.name = "ANulByte", .line = std::string("{\"text\": \"a\"}\0", 14), .error = "not valid JSON"},
    {.name = "AHundredThousandBrackets",
     .line = std::string(100000, '['),
     .error = "not valid JSON"},
    {.name = "AList", .line = "[1]", .error = "not a JSON object"},
    {.name = "Null", .line = "null", .error = "not a JSON object"},
    {.name = "NoPrompt",
     .line = "{}",
     .error = "needs exactly one of \"text\", \"ids\" and \"inputs_embeds\""},
    {.name = "TwoPrompts",
     .line = R"({"text": "a", "ids": [1]})",
     .error = "needs exactly one of \"text\", \"ids\" and \"inputs_embeds\""},
    {.name = "ATextThatIsANumber", .line = R"({"text": 5})", .error = "text: expected a string"},
    {.name = "AModelOfNull",
     .line = R"({"text": "a", "model": null})",
     .error = "model: expected a string"},
    {.name = "IdsThatAreAText",
     .line = R"({"ids": "1"})",
     .error = "ids: expected a list of at least one 32-bit integer"},
    {.name = "NoIds",
     .line = R"({"ids": []})",
     .error = "ids: expected a list of at least one 32-bit integer"},
    {.name = "AFractionalId",
     .line = R"({"ids": [1.5]})",
     .error = "ids: expected a list of at least one 32-bit integer"},
    {.name = "AnIdAbove32Bits",
     .line = R"({"ids": [2147483648]})",
     .error = "ids: expected a list of at least one 32-bit integer"},
    {.name = "AnIdOf64Bits",
     .line = R"({"ids": [18446744073709551615]})",
     .error = "ids: expected a list of at least one 32-bit integer"},
    {.name = "AnIdBelow32Bits",
     .line = R"({"ids": [-2147483649]})",
     .error = "ids: expected a list of at least one 32-bit integer"},
    {.name = "IdsInAListOfLists",
     .line = R"({"ids": [[1]]})",
     .error = "ids: expected a list of at least one 32-bit integer"},
    {.name = "OutputsThatAreAText",
     .line = R"({"text": "a", "outputs": "x"})",
     .error = "outputs: expected a list of strings"},
    {.name = "AnOutputThatIsANumber",
     .line = R"({"text": "a", "outputs": [1]})",
     .error = "outputs: expected a list of strings"},
    {.name = "OutputsThatAreAnObject",
     .line = R"({"text": "a", "outputs": {"a": "b"}})",
     .error = "outputs: expected a list of strings"},
    {.name = "AMisspeltKey",
     .line = R"({"text": "a", "max_token": 1})",
     .error = "unknown key \"max_token\"; did you mean max_tokens?"},
    {.name = "AnUnknownKey",
     .line = R"({"text": "a", "\u0007": 1})",
     .error = "unknown key \"\\x07\""},
    {.name = "MaxTokensWithAFraction",
     .line = R"({"text": "a", "max_tokens": 1.0})",
     .error = "max_tokens: expected an integer, got \"1.0\""},
    {.name = "MaxTokensOf64Bits",
     .line = R"({"text": "a", "max_tokens": 9223372036854775808})",
     .error = "max_tokens: expected an integer, got \"9223372036854775808\""},
    {.name = "MaxTokensAsAText",
     .line = R"({"text": "a", "max_tokens": "1"})",
     .error = "max_tokens: expected an integer"},
    {.name = "MaxTokensAsABoolean",
     .line = R"({"text": "a", "max_tokens": true})",
     .error = "max_tokens: expected an integer"},
    {.name = "MaxTokensNestedDeeply",
     .line = absl::StrCat("{\"max_tokens\":", std::string(1000000, '['), std::string(1000000, ']'),
                          "}"),
     .error = "max_tokens: expected an integer"},
    {.name = "ATemperatureThatIsAWord",
     .line = R"({"text": "a", "temperature": "hot"})",
     .error = "temperature: expected a finite number"},
    {.name = "ATemperatureThatOverflows",
     .line = R"({"text": "a", "temperature": 1e999})",
     .error = "not valid JSON"},
    {.name = "ATemperatureThatIsNotANumber",
     .line = R"({"text": "a", "temperature": NaN})",
     .error = "not valid JSON"},
    {.name = "ANegativeSeed",
     .line = R"({"text": "a", "seed": -1})",
     .error = "seed: expected an integer from 0 to 2^64 - 1, got \"-1\""},
    {.name = "ATimeoutWithoutItsUnit",
     .line = R"({"text": "a", "timeout": 5})",
     .error = "timeout: expected a duration with its unit, such as 500ms"},
    {.name = "ATimeoutInAnUnknownUnit",
     .line = R"({"text": "a", "timeout": "5 parsecs"})",
     .error = "timeout: expected a duration with its unit, such as 500ms, got \"5 parsecs\""},
};
SLUICE_TABLE(BadRequestLineTable, kBadRequestLineRows);

TEST(RequestLines, NumbersLinesAndSkipsBlankOnes) {
  std::istringstream in("a\n\n  \r\nb\r\nlast");
  RequestLines lines(&in, "f");
  const auto a = lines.Next();
  EXPECT_EQ(a->text, "a");
  EXPECT_EQ(a->number, 1);
  EXPECT_NEAR(*a->share_read, 2.0 / 14, 1e-9);
  EXPECT_EQ(lines.Next()->number, 4);
  const auto last = lines.Next();
  EXPECT_EQ(last->text, "last");
  EXPECT_EQ(last->number, 5);
  EXPECT_EQ(*last->share_read, 1);
  EXPECT_FALSE(lines.Next().has_value());
  EXPECT_FALSE(lines.Next().has_value());
}

TEST(RequestLines, ALineThatIsTooLongIsAnErrorAndIsSkipped) {
  std::istringstream in(absl::StrCat(std::string(RequestLines::kMaxLineBytes, 'x'), "\n",
                                     std::string(RequestLines::kMaxLineBytes + 1, 'x'),
                                     "\nnext\n"));
  RequestLines lines(&in, "f");
  EXPECT_TRUE(lines.Next()->status.ok());
  const auto line = lines.Next();
  EXPECT_EQ(line->status.message(), "f:2: longer than 16777216 bytes");
  EXPECT_EQ(lines.Next()->text, "next");
}

TEST(RequestLines, AStreamThatBreaksEndsWithAnError) {
  struct Broken : std::streambuf {
    int_type underflow() override { throw std::ios_base::failure("broken"); }
  };
  Broken buffer;
  std::istream in(&buffer);
  RequestLines lines(&in, "f");
  EXPECT_TRUE(lines.status().ok());
  EXPECT_FALSE(lines.Next().has_value());
  EXPECT_EQ(lines.status().message(), "f:1: cannot be read");
  EXPECT_FALSE(lines.Next().has_value());
}

}  // namespace
}  // namespace sluice::client
