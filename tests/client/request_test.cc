#include "client/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "absl/strings/str_cat.h"
#include "client/parameter.h"
#include "client/request_lines.h"

namespace sluice::client {
namespace {

using inference::ModelInferRequest;
using testing::HasSubstr;

std::string RawText(const std::string& text) {
  return std::string({static_cast<char>(text.size()), 0, 0, 0}) + text;
}

TEST(SetText, IsOneRowOfBytes) {
  ModelInferRequest request;
  SetText("h\xc3\xa9", &request);
  ASSERT_EQ(request.inputs_size(), 1);
  EXPECT_EQ(request.inputs(0).name(), "text_input");
  EXPECT_EQ(request.inputs(0).datatype(), "BYTES");
  EXPECT_THAT(request.inputs(0).shape(), testing::ElementsAre(1, 1));
  EXPECT_EQ(request.raw_input_contents(0), RawText("h\xc3\xa9"));
}

TEST(SetIds, IsOneRowOfInt32) {
  ModelInferRequest request;
  SetIds({1, -2}, &request);
  EXPECT_EQ(request.inputs(0).name(), "input_ids");
  EXPECT_EQ(request.inputs(0).datatype(), "INT32");
  EXPECT_THAT(request.inputs(0).shape(), testing::ElementsAre(1, 2));
  EXPECT_EQ(request.raw_input_contents(0), std::string("\1\0\0\0\xfe\xff\xff\xff", 8));
}

TEST(SetItems, TakesThePlaceOfThoseBefore) {
  ModelInferRequest request;
  SetIds({1}, &request);
  SetItems("exclude_ids", {4, 5}, &request);
  SetItems("exclude_ids", {6}, &request);
  ASSERT_EQ(request.inputs_size(), 2);
  EXPECT_EQ(request.inputs(1).name(), "exclude_ids");
  EXPECT_THAT(request.inputs(1).shape(), testing::ElementsAre(1, 1));
  EXPECT_EQ(request.raw_input_contents(1), std::string("\6\0\0\0", 4));
}

TEST(SetVectors, AreRowsOfEqualWidth) {
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

TEST(ParseRequestLine, ItemsOfTheLineWinOverThoseOfTheFlags) {
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

TEST(ParseRequestLine, TakesWhatTheLineHasAndTheRestFromDefaults) {
  ModelInferRequest defaults;
  defaults.set_model_name("m");
  AddOutput("logits", &defaults);
  ASSERT_TRUE(SetParameter(*Parameters()[0], {"7"}, &defaults).ok());
  const auto plain = ParseRequestLine(R"({"text": "hi"})", defaults);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->model_name(), "m");
  EXPECT_EQ(plain->outputs(0).name(), "logits");
  EXPECT_EQ(plain->parameters().at("max_tokens").int64_param(), 7);
  EXPECT_EQ(plain->raw_input_contents(0), RawText("hi"));

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

TEST(ParseRequestLine, ErrorsNameTheKey) {
  struct Case {
    std::string line;
    const char* message;
  };
  const Case cases[] = {
      {"", "not valid JSON"},
      {"{\"text\": \"a\"", "not valid JSON"},
      {"{\"text\": \"a\"} x", "not valid JSON"},
      {"{\"text\": \"\xff\"}", "not valid JSON"},
      {std::string("{\"text\": \"a\"}\0", 14), "not valid JSON"},
      {std::string(100000, '['), "not valid JSON"},
      {"[1]", "not a JSON object"},
      {"null", "not a JSON object"},
      {"{}", "needs exactly one of \"text\", \"ids\" and \"inputs_embeds\""},
      {R"({"text": "a", "ids": [1]})",
       "needs exactly one of \"text\", \"ids\" and \"inputs_embeds\""},
      {R"({"text": 5})", "text: expected a string"},
      {R"({"text": "a", "model": null})", "model: expected a string"},
      {R"({"ids": "1"})", "ids: expected a list of at least one 32-bit integer"},
      {R"({"ids": []})", "ids: expected a list of at least one 32-bit integer"},
      {R"({"ids": [1.5]})", "ids: expected a list of at least one 32-bit integer"},
      {R"({"ids": [2147483648]})", "ids: expected a list of at least one 32-bit integer"},
      {R"({"ids": [18446744073709551615]})", "ids: expected a list of at least one 32-bit integer"},
      {R"({"ids": [-2147483649]})", "ids: expected a list of at least one 32-bit integer"},
      {R"({"ids": [[1]]})", "ids: expected a list of at least one 32-bit integer"},
      {R"({"text": "a", "outputs": "x"})", "outputs: expected a list of strings"},
      {R"({"text": "a", "outputs": [1]})", "outputs: expected a list of strings"},
      {R"({"text": "a", "outputs": {"a": "b"}})", "outputs: expected a list of strings"},
      {R"({"text": "a", "max_token": 1})", "unknown key \"max_token\"; did you mean max_tokens?"},
      {R"({"text": "a", "\u0007": 1})", "unknown key \"\\x07\""},
      {R"({"text": "a", "max_tokens": 1.0})", "max_tokens: expected an integer, got \"1.0\""},
      {R"({"text": "a", "max_tokens": 9223372036854775808})",
       "max_tokens: expected an integer, got \"9223372036854775808\""},
      {R"({"text": "a", "max_tokens": "1"})", "max_tokens: expected an integer"},
      {R"({"text": "a", "max_tokens": true})", "max_tokens: expected an integer"},
      {absl::StrCat("{\"max_tokens\":", std::string(1000000, '['), std::string(1000000, ']'), "}"),
       "max_tokens: expected an integer"},
      {R"({"text": "a", "temperature": "hot"})", "temperature: expected a finite number"},
      {R"({"text": "a", "temperature": 1e999})", "not valid JSON"},
      {R"({"text": "a", "temperature": NaN})", "not valid JSON"},
      {R"({"text": "a", "seed": -1})", "seed: expected an integer from 0 to 2^64 - 1, got \"-1\""},
      {R"({"text": "a", "timeout": "5 parsecs"})",
       "timeout: expected a duration such as 500ms (plain numbers are microseconds), got \"5 "
       "parsecs\""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.line.substr(0, 80));
    const auto request = ParseRequestLine(c.line, ModelInferRequest());
    EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(request.status().message(), c.message);
  }
}

TEST(RequestLines, NumbersLinesAndLeavesOutBlankOnes) {
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

TEST(RequestLines, ALineThatIsTooLongIsAnErrorAndIsReadOver) {
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
  const auto line = lines.Next();
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->status.message(), "f:1: cannot be read");
  EXPECT_FALSE(lines.Next().has_value());
}

}  // namespace
}  // namespace sluice::client
