// Tests that each error about a malformed input names the problem.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/server/protocol/messages.h"
#include "tests/server/protocol/request/validated.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using testing::AddInput;
using testing::Bytes;
using testing::BytesElement;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::IdsRequest;
using testing::TextRequest;
using testing::Validated;

// A valid request, a change that breaks one of its rules, and the error that follows.
struct BadInputRow {
  const char* name;
  ModelInferRequest good;
  std::function<void(ModelInferRequest*)> spoil;
  const char* error;
};
class BadInputTable : public TableTest<BadInputRow> {};

TEST_P(BadInputTable, TheErrorNamesTheProblem) {
  ModelInferRequest message = row().good;
  row().spoil(&message);
  EXPECT_THAT(ErrorOf(message), HasSubstr(row().error));
}

void SetShape(ModelInferRequest* message, int input, const std::vector<int64_t>& shape) {
  message->mutable_inputs(input)->clear_shape();
  for (int64_t size : shape) message->mutable_inputs(input)->add_shape(size);
}

std::vector<BadInputRow> BadInputs() {
  const ModelInferRequest ids = IdsRequest({1, 2, 3});
  const ModelInferRequest text = TextRequest("ab");
  const auto with_lengths = [&](const std::vector<int32_t>& lengths) {
    ModelInferRequest message = ids;
    AddInput(&message, "input_lengths", "INT32", {static_cast<int64_t>(lengths.size()), 1},
             Bytes(lengths));
    return message;
  };
  const auto shape = [](std::vector<int64_t> sizes) {
    return [sizes](ModelInferRequest* m) { SetShape(m, 0, sizes); };
  };
  const auto raw = [](std::string bytes) {
    return [bytes](ModelInferRequest* m) { m->set_raw_input_contents(0, bytes); };
  };
  const auto none = [](ModelInferRequest*) {};
  return {
      {.name = "NoInputs",
       .good = ids,
       .spoil =
           [](auto* m) {
             m->clear_inputs();
             m->clear_raw_input_contents();
           },
       .error = "input_ids is missing"},
      {.name = "BothKindsOfPrompt",
       .good = ids,
       .spoil =
           [](auto* m) {
             AddInput(m, "text_input", "BYTES", {1, 1}, BytesElement("a"));
           },
       .error = "text_input"},
      {.name = "AnUnknownInput",
       .good = ids,
       .spoil = [](auto* m) { m->mutable_inputs(0)->set_name("ids\n"); },
       .error = "\"ids\\n\""},
      {.name = "AnInputGivenTwice",
       .good = ids,
       .spoil =
           [](auto* m) {
             AddInput(m, "input_ids", "INT32", {1, 1}, Bytes<int32_t>({1}));
           },
       .error = "input_ids appears twice"},
      {.name = "LengthsBesideAText",
       .good = text,
       .spoil =
           [](auto* m) {
             AddInput(m, "input_lengths", "INT32", {1, 1}, Bytes<int32_t>({1}));
           },
       .error = "input_lengths"},
      {.name = "IdsOfAnotherDatatype",
       .good = ids,
       .spoil = [](auto* m) { m->mutable_inputs(0)->set_datatype("FP32"); },
       .error = "input input_ids has the datatype \"FP32\"; expected INT32 or INT64"},
      {.name = "LengthsOfAnotherDatatype",
       .good = with_lengths({3}),
       .spoil = [](auto* m) { m->mutable_inputs(1)->set_datatype("INT64"); },
       .error = "input_lengths"},
      {.name = "TextOfAnotherDatatype",
       .good = text,
       .spoil = [](auto* m) { m->mutable_inputs(0)->set_datatype("INT32"); },
       .error = "BYTES"},
      {.name = "OneDimension", .good = ids, .spoil = shape({3}), .error = "1 dimensions"},
      {.name = "ThreeDimensions", .good = ids, .spoil = shape({1, 3, 1}), .error = "3 dimensions"},
      {.name = "NoRows", .good = ids, .spoil = shape({0, 3}), .error = "0 rows; expected 1 to 4"},
      {.name = "TooManyRows", .good = ids, .spoil = shape({5, 3}), .error = "5 rows"},
      {.name = "NoColumns", .good = ids, .spoil = shape({1, 0}), .error = "0 columns"},
      {.name = "ARowThatIsTooLong",
       .good = ids,
       .spoil =
           [](auto* m) {
             SetShape(m, 0, {1, 65});
             m->set_raw_input_contents(0, Bytes(std::vector<int32_t>(65, 1)));
           },
       .error = "input_ids [0] has 65 tokens; expected 1 to 64"},
      {.name = "NegativeRows", .good = ids, .spoil = shape({-1, -3}), .error = "-1 rows"},
      {.name = "RowsThatOverflow",
       .good = ids,
       .spoil = shape({INT64_MAX, INT64_MAX}),
       .error = "rows"},
      {.name = "ColumnsThatOverflowToAGoodSize",
       .good = ids,
       .spoil = shape({1, (int64_t{1} << 62) + 3}),
       .error = "columns"},
      {.name = "TheLeastInteger", .good = ids, .spoil = shape({1, INT64_MIN}), .error = "columns"},
      {.name = "TooFewBytes",
       .good = ids,
       .spoil = raw(Bytes<int32_t>({1, 2})),
       .error = "8 raw bytes; its shape [1, 3] needs 12"},
      {.name = "TooManyBytes",
       .good = ids,
       .spoil = raw(Bytes<int32_t>({1, 2, 3, 4})),
       .error = "16 raw bytes"},
      {.name = "NoBytes", .good = ids, .spoil = raw(""), .error = "0 raw bytes"},
      {.name = "MoreRawEntriesThanInputs",
       .good = ids,
       .spoil = [](auto* m) { m->add_raw_input_contents("x"); },
       .error = "2 entries for 1 inputs"},
      {.name = "BothRawAndTypedContents",
       .good = ids,
       .spoil = [](auto* m) { m->mutable_inputs(0)->mutable_contents()->add_int_contents(1); },
       .error = "in addition to raw_input_contents"},
      {.name = "NeitherRawNorTypedContents",
       .good = ids,
       .spoil = [](auto* m) { m->clear_raw_input_contents(); },
       .error = "0 int_contents"},
      {.name = "ParametersOfATensor",
       .good = ids,
       .spoil =
           [](auto* m) { (*m->mutable_inputs(0)->mutable_parameters())["x"].set_bool_param(true); },
       .error = "input input_ids has the unknown parameter \"x\"; remove it"},
      {.name = "ANegativeId",
       .good = ids,
       .spoil = raw(Bytes<int32_t>({1, -1, 3})),
       .error = "[0, 1] is -1; expected 0 to 257"},
      {.name = "AnIdBeyondTheVocabulary",
       .good = ids,
       .spoil = raw(Bytes<int32_t>({1, 2, 258})),
       .error = "[0, 2] is 258"},
      {.name = "ALengthOfZero",
       .good = with_lengths({0}),
       .spoil = none,
       .error = "input_lengths [0] is 0; expected 1 to 3"},
      {.name = "ALengthBeyondTheColumns",
       .good = with_lengths({4}),
       .spoil = none,
       .error = "input_lengths"},
      {.name = "LengthsForOtherRows",
       .good = with_lengths({1, 1}),
       .spoil = none,
       .error = "2 rows"},
      {.name = "TextOfTwoColumns", .good = text, .spoil = shape({1, 2}), .error = "2 columns"},
      {.name = "TextWithoutItsLength", .good = text, .spoil = raw("abc"), .error = "too few"},
      {.name = "TextThatIsCut",
       .good = text,
       .spoil = raw(Bytes<uint32_t>({3}) + "ab"),
       .error = "within element 0"},
      {.name = "ATextLengthThatOverflows",
       .good = text,
       .spoil = raw(Bytes<uint32_t>({UINT32_MAX}) + "ab"),
       .error = "within element 0"},
      {.name = "BytesAfterTheText",
       .good = text,
       .spoil = raw(BytesElement("ab") + "c"),
       .error = "1 bytes after"},
      {.name = "ATextOfTooManyTokens",
       .good = text,
       .spoil = raw(BytesElement(std::string(64, 'x'))),
       .error = "65 tokens; expected 1 to 64"},
      {.name = "AHugeText",
       .good = text,
       .spoil = raw(BytesElement(std::string(64 * 256 + 1, 'x'))),
       .error = "bytes; the limit is"},
      {.name = "ALongId",
       .good = ids,
       .spoil = [](auto* m) { m->set_id(std::string(257, 'i')); },
       .error = "id has 257 bytes"},
  };
}

SLUICE_TABLE(BadInputTable, BadInputs());

TEST(MalformedInputTest, TypedContentsOfAnotherDatatypeAreRefused) {
  ModelInferRequest message = IdsRequest({1});
  message.clear_raw_input_contents();
  message.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
  EXPECT_TRUE(Validated(message).ok());
  message.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  EXPECT_THAT(ErrorOf(message), HasSubstr("other datatypes"));
}

}  // namespace
}  // namespace sluice
