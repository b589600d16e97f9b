#include "client/response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/support/table.h"
#include "tests/support/tensor_bytes.h"

namespace sluice::client {
namespace {

using inference::ModelInferResponse;
using testing::HasSubstr;
using testing::Not;

void Add(const std::string& name, const std::string& datatype, const std::vector<int64_t>& shape,
         const std::string& raw, ModelInferResponse* response) {
  auto* output = response->add_outputs();
  output->set_name(name);
  output->set_datatype(datatype);
  output->mutable_shape()->Assign(shape.begin(), shape.end());
  response->add_raw_output_contents(raw);
}

std::string RawStrings(const std::vector<std::string>& values) {
  std::string raw;
  for (const std::string& value : values) {
    raw += BytesElement(value);
  }
  return raw;
}

ModelInferResponse Answer() {
  ModelInferResponse response;
  response.set_model_name("m");
  response.set_model_version("1");
  response.set_id("r");
  (*response.mutable_parameters())["seed"].set_int64_param(9);
  Add("output_ids", "INT32", {1, 2}, Bytes<int32_t>({104, 105}), &response);
  Add("sequence_length", "INT32", {1, 1}, Bytes<int32_t>({2}), &response);
  Add("logprobs", "FP32", {1, 2}, Bytes<float>({-0.5f, -1.25f}), &response);
  Add("finish_reason", "BYTES", {1, 1}, RawStrings({"length"}), &response);
  Add("text_output", "BYTES", {1, 1}, RawStrings({"hi"}), &response);
  return response;
}

TEST(Response, IsShownAsJson) {
  const ModelInferResponse response = Answer();
  const auto tensors = DecodeOutputs(response);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(GeneratedTokens(*tensors), 2);
  EXPECT_EQ(
      JsonLine(ResponseJson(response, *tensors)),
      "{\"id\":\"r\",\"model\":\"m\",\"outputs\":{\"finish_reason\":\"length\",\"logprobs\":[-0.5,"
      "-1.25],\"output_ids\":[104,105],\"sequence_length\":2,\"text_output\":\"hi\"},"
      "\"parameters\":{\"seed\":9},\"version\":\"1\"}\n");
}

TEST(Response, JsonNestsByShapeAndKeepsListsOfOne) {
  ModelInferResponse response;
  Add("output_ids", "INT32", {1, 1}, Bytes<int32_t>({5}), &response);
  Add("top_ids", "INT32", {1, 2, 3}, Bytes<int32_t>({1, 2, 3, 4, 5, 6}), &response);
  Add("logprobs", "FP32", {1, 0}, "", &response);
  Add("two_rows", "INT64", {2, 1}, Bytes<int64_t>({7, int64_t{1} << 40}), &response);
  const auto tensors = DecodeOutputs(response);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(ResponseJson(response, *tensors)["outputs"].dump(),
            "{\"logprobs\":[],\"output_ids\":[5],\"top_ids\":[[1,2,3],[4,5,6]],\"two_rows\":[[7],["
            "1099511627776]]}");
}

TEST(Response, JsonSurvivesBytesThatAreNotUtf8) {
  ModelInferResponse response;
  Add("text_output", "BYTES", {1, 1}, RawStrings({"a\xff\nb"}), &response);
  const auto tensors = DecodeOutputs(response);
  const std::string line = JsonLine(ResponseJson(response, *tensors));
  EXPECT_THAT(line, HasSubstr("\"a\xef\xbf\xbd\\nb\""));
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

TEST(Response, IsShownAsText) {
  ModelInferResponse response = Answer();
  EXPECT_EQ(ResponseText(*DecodeOutputs(response), /*all=*/false), "hi\n");
  EXPECT_EQ(ResponseText(*DecodeOutputs(response), /*all=*/true),
            "hi\n"
            "output_ids INT32 [1, 2]\n  104 105\n"
            "sequence_length INT32 [1, 1]\n  2\n"
            "logprobs FP32 [1, 2]\n  -0.5000 -1.2500\n"
            "finish_reason BYTES [1, 1]\n  \"length\"\n");
  Add("top_ids", "INT32", {1, 2, 2}, Bytes<int32_t>({104, 7, 105, 8}), &response);
  Add("top_logprobs", "FP32", {1, 2, 2}, Bytes<float>({-1, -2, -3, -4}), &response);
  EXPECT_EQ(ResponseText(*DecodeOutputs(response), /*all=*/false),
            "hi\n"
            "token  candidates (id: log-probability)\n"
            "    0  104: -1.0000  7: -2.0000\n"
            "    1  105: -3.0000  8: -4.0000\n");
  EXPECT_THAT(ResponseText(*DecodeOutputs(response), /*all=*/true), Not(HasSubstr("top_ids")));
}

TEST(Response, IsShownAsIdsWithoutATokenizer) {
  ModelInferResponse response;
  Add("output_ids", "INT32", {1, 3}, Bytes<int32_t>({1, 2, 3}), &response);
  EXPECT_EQ(ResponseText(*DecodeOutputs(response), false), "1 2 3\n");
  EXPECT_EQ(GeneratedTokens(*DecodeOutputs(response)), 3);
  EXPECT_EQ(ResponseText({}, true), "");
}

TEST(Response, LongTensorsAreCutInText) {
  ModelInferResponse response;
  Add("logits", "FP32", {1, 100}, Bytes(std::vector<float>(100, 1.0f)), &response);
  Add("xsa_cos_sim", "FP32", {1, 100, 1}, Bytes(std::vector<float>(100, 1.0f)), &response);
  const std::string text = ResponseText(*DecodeOutputs(response), true);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 1 + 1 + 32 + 1);
}

constexpr int64_t kHuge = int64_t{1} << 62;

struct BadOutputRow {
  const char* name;
  const char* datatype;
  std::vector<int64_t> shape;
  std::string raw;
  const char* problem;
};
class BadOutputTable : public TableTest<BadOutputRow> {};

TEST_P(BadOutputTable, IsNamedWithItsProblem) {
  ModelInferResponse response;
  Add("out", row().datatype, row().shape, row().raw, &response);
  EXPECT_EQ(DecodeOutputs(response).status().message(),
            std::string("the server's output \"out\" ") + row().problem);
}

const BadOutputRow kBadOutputRows[] = {
    {.name = "MoreBytesThanElements",
     .datatype = "INT32",
     .shape = {1, 2},
     .raw = "1234567",
     .problem = "has 7 bytes for 2 elements of 4 bytes"},
    {.name = "BytesOfNoElements",
     .datatype = "INT32",
     .shape = {1, 0},
     .raw = "1234",
     .problem = "has 4 bytes for 0 elements of 4 bytes"},
    {.name = "HalfAnElement",
     .datatype = "INT64",
     .shape = {1, 1},
     .raw = "1234",
     .problem = "has 4 bytes for 1 elements of 8 bytes"},
    {.name = "ANegativeDimension",
     .datatype = "FP32",
     .shape = {1, -1},
     .raw = "1234",
     .problem = "has a negative dimension"},
    {.name = "AShapeThatOverflows",
     .datatype = "FP32",
     .shape = {kHuge, 4},
     .raw = "",
     .problem = "has a shape larger than its bytes"},
    {.name = "AnEmptyShapeThatOverflows",
     .datatype = "FP32",
     .shape = {kHuge, kHuge, 0},
     .raw = "",
     .problem = "has a shape larger than its bytes"},
    {.name = "AHugeDimensionOfNothing",
     .datatype = "FP32",
     .shape = {0, kHuge},
     .raw = "",
     .problem = "has a shape larger than its bytes"},
    {.name = "AShapeBeyondTheBytes",
     .datatype = "FP32",
     .shape = {1 << 20},
     .raw = "1234",
     .problem = "has a shape larger than its bytes"},
    {.name = "NineDimensions",
     .datatype = "FP32",
     .shape = std::vector<int64_t>(9, 1),
     .raw = "1234",
     .problem = "has too many dimensions"},
    {.name = "ALengthThatIsCut",
     .datatype = "BYTES",
     .shape = {1, 1},
     .raw = "12",
     .problem = "ends within a length"},
    {.name = "AnElementThatIsCut",
     .datatype = "BYTES",
     .shape = {1, 1},
     .raw = std::string("\xff\xff\xff\xff"
                        "x"),
     .problem = "ends within an element"},
    {.name = "AMissingString",
     .datatype = "BYTES",
     .shape = {1, 1},
     .raw = "",
     .problem = "has 0 strings, but its shape needs 1"},
    {.name = "AStringTooMany",
     .datatype = "BYTES",
     .shape = {1, 1},
     .raw = RawStrings({"a", "b"}),
     .problem = "has 2 strings, but its shape needs 1"},
    {.name = "AnUnknownDatatype",
     .datatype = "FP16",
     .shape = {1, 1},
     .raw = "12",
     .problem = "has a datatype that this client does not read: FP16"},
};
SLUICE_TABLE(BadOutputTable, kBadOutputRows);

TEST(DecodeOutputs, EveryOutputHasItsContents) {
  ModelInferResponse response = Answer();
  response.mutable_raw_output_contents()->RemoveLast();
  EXPECT_EQ(DecodeOutputs(response).status().message(),
            "the server sent 5 outputs with 4 contents");
}

TEST(DecodeOutputs, AcceptedOutputsCanBeShown) {
  constexpr uint64_t kSeed = 99;
  std::mt19937_64 random(kSeed);
  const char* const names[] = {"top_ids", "top_logprobs", "text_output", "output_ids",
                               "sequence_length"};
  const char* const datatypes[] = {"INT32", "INT64", "FP32", "BYTES"};
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    ModelInferResponse response;
    for (const char* name : names) {
      std::vector<int64_t> shape(random() % 4);
      for (int64_t& dimension : shape) dimension = static_cast<int64_t>(random() % 3);
      std::string raw(4 * (random() % 4), '\0');
      Add(name, datatypes[random() % 4], shape, raw, &response);
      if (!DecodeOutputs(response).ok()) {
        response.mutable_outputs()->RemoveLast();
        response.mutable_raw_output_contents()->RemoveLast();
      }
    }
    const auto tensors = DecodeOutputs(response);
    ASSERT_TRUE(tensors.ok());
    accepted += static_cast<int>(tensors->size());
    JsonLine(ResponseJson(response, *tensors));
    ResponseText(*tensors, true);
    GeneratedTokens(*tensors);
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace sluice::client
