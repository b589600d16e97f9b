#include "server/protocol/parameters/parameter_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/common/status.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kVocab = 97;

inference::InferParameter Text(const std::string& text) {
  inference::InferParameter value;
  value.set_string_param(text);
  return value;
}

// Returns the error, or "" if the value is accepted.
std::string ErrorOf(const absl::Status& status) {
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), Reason::kParameter);
  EXPECT_THAT(std::string(status.message()), HasSubstr("parameter p"));
  return std::string(status.message());
}

std::string BiasError(const std::string& text, std::vector<kernels::TokenBias>* out) {
  out->clear();
  return ErrorOf(ReadTokenBias("p", Text(text), kVocab, out));
}
std::string IdsError(const std::string& text, std::vector<int32_t>* out, size_t most = 5) {
  out->clear();
  return ErrorOf(ReadTokenIds("p", Text(text), kVocab, most, out));
}
std::string TextsError(const std::string& text, std::vector<std::string>* out) {
  out->clear();
  return ErrorOf(ReadTexts("p", Text(text), kMaxStopTexts, out));
}

TEST(TokenBiasTest, ReadsNumbersAndBans) {
  std::vector<kernels::TokenBias> bias;
  ASSERT_EQ(BiasError(R"( {"0": 1, "96": -2.5, "5": null, "6": "-inf", "7": 1e2} )", &bias), "");
  ASSERT_EQ(bias.size(), 5u);
  EXPECT_EQ(bias[0].token, 0);
  EXPECT_EQ(bias[0].bias, 1);
  EXPECT_EQ(bias[1].token, 96);
  EXPECT_EQ(bias[1].bias, -2.5f);
  for (int i : {2, 3}) EXPECT_EQ(bias[i].bias, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(bias[4].bias, 100);
  EXPECT_EQ(BiasError("{}", &bias), "");
  EXPECT_THAT(bias, IsEmpty());
}

struct BadTokenBiasRow {
  const char* name;
  std::string text;
  const char* error;
};
class BadTokenBiasTable : public TableTest<BadTokenBiasRow> {};

TEST_P(BadTokenBiasTable, TheErrorNamesTheEntryAndTheLimit) {
  std::vector<kernels::TokenBias> out;
  EXPECT_THAT(BiasError(row().text, &out), HasSubstr(row().error));
}

const BadTokenBiasRow kBadTokenBiasRows[] = {
    {.name = "Nothing", .text = "", .error = "a JSON object"},
    {.name = "AList", .text = "[]", .error = "a JSON object"},
    {.name = "ANumber", .text = "7", .error = "a JSON object"},
    {.name = "Null", .text = "null", .error = "a JSON object"},
    {.name = "AnObjectThatIsNotClosed", .text = R"({"1": 2)", .error = "a JSON object"},
    {.name = "TextAfterTheObject", .text = R"({"1": 2} x)", .error = "a JSON object"},
    {.name = "AnObjectAsBias", .text = R"({"1": {"2": 3}})", .error = "a JSON object"},
    {.name = "AListAsBias", .text = R"({"1": [2]})", .error = "a JSON object"},
    {.name = "ABooleanAsBias", .text = R"({"1": true})", .error = "a JSON object"},
    {.name = "ABiasThatOverflows", .text = R"({"1": 1e999})", .error = "a JSON object"},
    {.name = "ABiasThatIsNotANumber", .text = R"({"1": NaN})", .error = "a JSON object"},
    {.name = "AnIdBeyondTheVocabulary",
     .text = R"({"97": 1})",
     .error = "token \"97\" is not an integer in [0, 96]"},
    {.name = "ANegativeId", .text = R"({"-1": 1})", .error = "token \"-1\""},
    {.name = "AnIdWithALeadingZero", .text = R"({"01": 1})", .error = "token \"01\""},
    {.name = "AnIdWithASpace", .text = R"({" 1": 1})", .error = "token \" 1\""},
    {.name = "AnEmptyId", .text = R"({"": 1})", .error = "token \"\""},
    {.name = "AnIdThatOverflows",
     .text = R"({"99999999999999999999": 1})",
     .error = "is not an integer"},
    {.name = "AnIdGivenTwice",
     .text = R"({"1": 1, "2": 1, "1": 1})",
     .error = "token 1 appears twice"},
    {.name = "ABiasBeyondItsRange",
     .text = R"({"1": 100.5})",
     .error = "the bias of token 1 is not a number in [-100, 100]"},
    {.name = "AnInfiniteBias", .text = R"({"1": "inf"})", .error = "the bias of token 1"},
    {.name = "ATextAsBias", .text = R"({"1": "2"})", .error = "the bias of token 1"},
};
SLUICE_TABLE(BadTokenBiasTable, kBadTokenBiasRows);

TEST(TokenBiasTest, TheNumberOfEntriesIsBounded) {
  const auto entries = [](size_t count) {
    std::vector<std::string> members;
    for (size_t i = 0; i < count; ++i) members.push_back(absl::StrCat("\"", i, "\": 1"));
    return Text(absl::StrCat("{", absl::StrJoin(members, ","), "}"));
  };
  std::vector<kernels::TokenBias> bias;
  EXPECT_TRUE(ReadTokenBias("p", entries(kMaxBiasEntries), 5000, &bias).ok());
  bias.clear();
  EXPECT_THAT(ErrorOf(ReadTokenBias("p", entries(kMaxBiasEntries + 1), 5000, &bias)),
              HasSubstr("more than 1024 entries"));
  EXPECT_EQ(bias.size(), kMaxBiasEntries);
}

TEST(TokenIdsTest, BothFormsYieldAscendingIds) {
  std::vector<int32_t> ids;
  for (const char* text : {"[7, 3,96]", "7,3,96", " [7,3,96]"}) {
    SCOPED_TRACE(text);
    if (text[0] == ' ') {
      EXPECT_NE(IdsError(text, &ids), "");
      continue;
    }
    EXPECT_EQ(IdsError(text, &ids), "");
    EXPECT_THAT(ids, ElementsAre(3, 7, 96));
  }
  EXPECT_EQ(IdsError("[]", &ids), "");
  EXPECT_THAT(ids, IsEmpty());
  EXPECT_EQ(IdsError("[5.0]", &ids), "") << "5.0 is an integer";
}

struct BadTokenIdsRow {
  const char* name;
  std::string text;
  const char* error;
};
class BadTokenIdsTable : public TableTest<BadTokenIdsRow> {};

TEST_P(BadTokenIdsTable, TheErrorNamesTheEntryAndTheLimit) {
  std::vector<int32_t> out;
  EXPECT_THAT(IdsError(row().text, &out), HasSubstr(row().error));
}

const BadTokenIdsRow kBadTokenIdsRows[] = {
    {.name = "Nothing", .text = "", .error = "JSON array"},
    {.name = "AListThatIsNotClosed", .text = "[1", .error = "JSON array"},
    {.name = "TextAfterTheList", .text = "[1] 2", .error = "JSON array"},
    {.name = "AListInTheList", .text = "[[1]]", .error = "JSON array"},
    {.name = "AnObjectInTheList", .text = "[{}]", .error = "JSON array"},
    {.name = "ABooleanInTheList", .text = "[true]", .error = "JSON array"},
    {.name = "Null", .text = "[null]", .error = "not a token id"},
    {.name = "ATextInTheList", .text = "[\"1\"]", .error = "not a token id"},
    {.name = "AnIdBeyondTheVocabulary",
     .text = "[97]",
     .error = "token 97 is not an integer in [0, 96]"},
    {.name = "ANegativeId", .text = "[-1]", .error = "token -1"},
    {.name = "AFraction", .text = "[1.5]", .error = "token 1.5"},
    {.name = "AHugeNumber", .text = "[1e300]", .error = "token 1e+300"},
    {.name = "ANumberOf64Bits", .text = "[18446744073709551615]", .error = "is not an integer in"},
    {.name = "AWordBeyondTheVocabulary",
     .text = "97",
     .error = "token \"97\" is not an integer in [0, 96]"},
    {.name = "ACommaAtTheEnd", .text = "1,", .error = "token \"\""},
    {.name = "ASpaceBehindAComma", .text = "1, 2", .error = "token \" 2\""},
    {.name = "ALetter", .text = "a", .error = "token \"a\""},
    {.name = "AnObject", .text = "{}", .error = "token \"{}\""},
    {.name = "AnIdListedTwice", .text = "[3,1,3]", .error = "token 3 appears twice"},
    {.name = "AnIdWrittenTwice", .text = "3,1,3", .error = "token 3 appears twice"},
    {.name = "MoreListedThanTheLimit", .text = "[1,2,3,4,5,6]", .error = "more than 5 entries"},
    {.name = "MoreWrittenThanTheLimit", .text = "1,2,3,4,5,6", .error = "more than 5 entries"},
};
SLUICE_TABLE(BadTokenIdsTable, kBadTokenIdsRows);

TEST(TokenIdsTest, ANumberIsNotAList) {
  inference::InferParameter number;
  number.set_int64_param(5);
  std::vector<int32_t> ids;
  EXPECT_NE(ErrorOf(ReadTokenIds("p", number, kVocab, 5, &ids)), "");
}

TEST(TextsTest, ReadsOneOrSeveralTexts) {
  std::vector<std::string> texts;
  EXPECT_EQ(TextsError("end\n", &texts), "");
  EXPECT_THAT(texts, ElementsAre("end\n"));
  EXPECT_EQ(TextsError("[\"a\", \"\\u20ac\", \"[\"]", &texts), "");
  EXPECT_THAT(texts, ElementsAre("a", "\xe2\x82\xac", "["));
  EXPECT_EQ(TextsError("[]", &texts), "");
  EXPECT_THAT(texts, IsEmpty());
  EXPECT_EQ(TextsError(std::string(kMaxStopTextBytes, 'x'), &texts), "");
}

std::string TooManyTexts() {
  std::string list = "[\"0\"";
  for (size_t i = 1; i <= kMaxStopTexts; ++i) list += ",\"x\"";
  return list + "]";
}

struct BadTextsRow {
  const char* name;
  std::string text;
  const char* error;
};
class BadTextsTable : public TableTest<BadTextsRow> {};

TEST_P(BadTextsTable, TheErrorNamesTheLimit) {
  std::vector<std::string> out;
  EXPECT_THAT(TextsError(row().text, &out), HasSubstr(row().error));
}

const BadTextsRow kBadTextsRows[] = {
    {.name = "AnEmptyText", .text = "", .error = "0 bytes; expected 1 to 256"},
    {.name = "AnEmptyTextInAList", .text = "[\"\"]", .error = "0 bytes"},
    {.name = "ATextThatIsTooLong",
     .text = std::string(kMaxStopTextBytes + 1, 'x'),
     .error = "257 bytes"},
    {.name = "MoreTextsThanTheLimit", .text = TooManyTexts(), .error = "more than 16 entries"},
    {.name = "ANumberInTheList", .text = "[1]", .error = "not a text"},
    {.name = "NullInTheList", .text = "[null]", .error = "not a text"},
    {.name = "AListInTheList", .text = "[[\"a\"]]", .error = "JSON array of texts"},
    {.name = "AListThatIsNotClosed", .text = "[\"a\"", .error = "JSON array of texts"},
    {.name = "HalfASurrogatePair",
     .text = "[\"\\ud800\"]",
     .error = "JSON array of texts"},  // half a surrogate pair is not UTF-8
};
SLUICE_TABLE(BadTextsTable, kBadTextsRows);

TEST(TextsTest, AParameterWithoutValueIsRefused) {
  std::vector<std::string> texts;
  EXPECT_NE(ErrorOf(ReadTexts("p", inference::InferParameter(), kMaxStopTexts, &texts)), "");
}

// Deep or damaged texts are read or refused, and all accepted values are within the limits.
TEST(ParameterListTest, HostileTextsAreRefusedOrWithinTheLimits) {
  std::vector<kernels::TokenBias> bias;
  std::vector<int32_t> ids;
  EXPECT_NE(IdsError(std::string(1'000'000, '['), &ids), "");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"1\":";
  EXPECT_NE(BiasError(deep, &bias), "");

  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = R"({"1": 2, "30": null, "4": -7.5})";
    for (uint64_t edits = random() % 4; edits > 0; --edits) {
      text[random() % text.size()] = "{}[]\",:0123456789.-enul \\"[random() % 26];
    }
    if (BiasError(text, &bias).empty()) {
      ++accepted;
      for (const kernels::TokenBias& entry : bias) {
        EXPECT_TRUE(entry.token >= 0 && entry.token < kVocab) << text;
        EXPECT_TRUE(std::isinf(entry.bias) || std::fabs(entry.bias) <= kMaxBias) << text;
      }
    }
  }
  EXPECT_GT(accepted, 5'000);
  EXPECT_LT(accepted, 19'000);
}

}  // namespace
}  // namespace sluice
