#include "server/protocol/parameter_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/common/status.h"

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

// "" when it is accepted.
std::string ErrorOf(const absl::Status& status) {
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), "parameter");
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
  return ErrorOf(ReadTexts("p", Text(text), out));
}

TEST(TokenBiasTest, NumbersAndBans) {
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

TEST(TokenBiasTest, ErrorsNameEntryAndLimit) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "a JSON object"},
      {"[]", "a JSON object"},
      {"7", "a JSON object"},
      {"null", "a JSON object"},
      {R"({"1": 2)", "a JSON object"},
      {R"({"1": 2} x)", "a JSON object"},
      {R"({"1": {"2": 3}})", "a JSON object"},
      {R"({"1": [2]})", "a JSON object"},
      {R"({"1": true})", "a JSON object"},
      {R"({"1": 1e999})", "a JSON object"},
      {R"({"1": NaN})", "a JSON object"},
      {R"({"97": 1})", "token \"97\" is no integer in [0, 96]"},
      {R"({"-1": 1})", "token \"-1\""},
      {R"({"01": 1})", "token \"01\""},
      {R"({" 1": 1})", "token \" 1\""},
      {R"({"": 1})", "token \"\""},
      {R"({"99999999999999999999": 1})", "is no integer"},
      {R"({"1": 1, "2": 1, "1": 1})", "token 1 appears twice"},
      {R"({"1": 100.5})", "the bias of token 1 is no number in [-100, 100]"},
      {R"({"1": "inf"})", "the bias of token 1"},
      {R"({"1": "2"})", "the bias of token 1"},
  };
  std::vector<kernels::TokenBias> bias;
  for (const auto& [text, named] : cases) {
    SCOPED_TRACE(text);
    EXPECT_THAT(BiasError(text, &bias), HasSubstr(named));
  }
}

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

TEST(TokenIdsTest, BothFormsGiveAscendingIds) {
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
  EXPECT_EQ(IdsError("[5.0]", &ids), "") << "an integer, however it is written";
}

TEST(TokenIdsTest, ErrorsNameEntryAndLimit) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "JSON array"},
      {"[1", "JSON array"},
      {"[1] 2", "JSON array"},
      {"[[1]]", "JSON array"},
      {"[{}]", "JSON array"},
      {"[true]", "JSON array"},
      {"[null]", "no token id"},
      {"[\"1\"]", "no token id"},
      {"[97]", "token 97 is no integer in [0, 96]"},
      {"[-1]", "token -1"},
      {"[1.5]", "token 1.5"},
      {"[1e300]", "token 1e+300"},
      {"[18446744073709551615]", "is no integer in"},
      {"97", "token \"97\" is no integer in [0, 96]"},
      {"1,", "token \"\""},
      {"1, 2", "token \" 2\""},
      {"a", "token \"a\""},
      {"{}", "token \"{}\""},
      {"[3,1,3]", "token 3 appears twice"},
      {"3,1,3", "token 3 appears twice"},
      {"[1,2,3,4,5,6]", "more than 5 entries"},
      {"1,2,3,4,5,6", "more than 5 entries"},
  };
  std::vector<int32_t> ids;
  for (const auto& [text, named] : cases) {
    SCOPED_TRACE(text);
    EXPECT_THAT(IdsError(text, &ids), HasSubstr(named));
  }
  inference::InferParameter number;
  number.set_int64_param(5);
  EXPECT_NE(ErrorOf(ReadTokenIds("p", number, kVocab, 5, &ids)), "");
}

TEST(TextsTest, OneOrSeveral) {
  std::vector<std::string> texts;
  EXPECT_EQ(TextsError("end\n", &texts), "");
  EXPECT_THAT(texts, ElementsAre("end\n"));
  EXPECT_EQ(TextsError("[\"a\", \"\\u20ac\", \"[\"]", &texts), "");
  EXPECT_THAT(texts, ElementsAre("a", "\xe2\x82\xac", "["));
  EXPECT_EQ(TextsError("[]", &texts), "");
  EXPECT_THAT(texts, IsEmpty());
  EXPECT_EQ(TextsError(std::string(kMaxStopTextBytes, 'x'), &texts), "");
}

TEST(TextsTest, ErrorsNameTheLimit) {
  std::string many = "[\"0\"";
  for (size_t i = 1; i <= kMaxStopTexts; ++i) many += ",\"x\"";
  const std::pair<std::string, const char*> cases[] = {
      {"", "0 bytes; expected 1 to 256"},
      {"[\"\"]", "0 bytes"},
      {std::string(kMaxStopTextBytes + 1, 'x'), "257 bytes"},
      {many + "]", "more than 16 entries"},
      {"[1]", "no text"},
      {"[null]", "no text"},
      {"[[\"a\"]]", "JSON array of texts"},
      {"[\"a\"", "JSON array of texts"},
      {"[\"\\ud800\"]", "JSON array of texts"},  // half a surrogate pair is no UTF-8
  };
  std::vector<std::string> texts;
  for (const auto& [text, named] : cases) {
    SCOPED_TRACE(text);
    EXPECT_THAT(TextsError(text, &texts), HasSubstr(named));
  }
  EXPECT_NE(ErrorOf(ReadTexts("p", inference::InferParameter(), &texts)), "");
}

// However deep or damaged the text is, it is read or refused, and what is read is within the
// limits.
TEST(ParameterListTest, HostileTexts) {
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
