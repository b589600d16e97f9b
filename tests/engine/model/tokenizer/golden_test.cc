// Compares the tokenizers with the results of the original libraries for the same files
// (tests/goldens/tokenizers).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/escaping.h"
#include "engine/model/text_stream.h"
#include "engine/model/tokenizer/hugging_face.h"
#include "engine/model/tokenizer/sentencepiece.h"

namespace sluice::tokenize {
namespace {

using nlohmann::json;

const std::string kFolder = std::string(SLUICE_SOURCE_DIR) + "/tests/goldens/tokenizers/";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

const json& Cases() {
  static const json* const cases = new json(json::parse(ReadAll(kFolder + "cases.json")));
  return *cases;
}

struct Golden {
  std::unique_ptr<const Tokenizer> tokenizer;
  const json* expected;
};

Golden Load(const std::string& name, bool hugging_face) {
  const json& all = Cases()[hugging_face ? "hugging_face" : "sentencepiece"];
  auto tokenizer = hugging_face ? ParseHuggingFace(ReadAll(kFolder + name + ".json"), {})
                                : ParseSentencePiece(ReadAll(kFolder + name + ".model"), {});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return {tokenizer.ok() ? *std::move(tokenizer) : nullptr, &all[name]};
}

std::string Shown(const std::string& text) { return absl::CHexEscape(text.substr(0, 200)); }

struct Named {
  std::string name;
  bool hugging_face;
};

std::vector<Named> All() {
  std::vector<Named> all;
  for (const auto& [name, expected] : Cases()["hugging_face"].items()) all.push_back({name, true});
  for (const auto& [name, expected] : Cases()["sentencepiece"].items()) {
    all.push_back({name, false});
  }
  return all;
}

class GoldenTest : public ::testing::TestWithParam<Named> {
 protected:
  void SetUp() override {
    golden_ = Load(GetParam().name, GetParam().hugging_face);
    ASSERT_NE(golden_.tokenizer, nullptr);
  }
  Golden golden_;
};

TEST_P(GoldenTest, EncodesAsTheOriginal) {
  const json& texts = Cases()["texts"];
  const json& ids = (*golden_.expected)["ids"];
  ASSERT_EQ(texts.size(), ids.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    const auto encoded = golden_.tokenizer->Encode(text);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    EXPECT_EQ(*encoded, ids[i].get<std::vector<int32_t>>()) << i << ": " << Shown(text);
  }
}

TEST_P(GoldenTest, DecodesAsTheOriginal) {
  const auto check = [&](const char* ids_key, const char* decoded_key) {
    const json& ids = (*golden_.expected)[ids_key];
    const json& decoded = (*golden_.expected)[decoded_key];
    ASSERT_EQ(ids.size(), decoded.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto expected = decoded[i].get<std::string>();
      const std::string text = golden_.tokenizer->Decode(ids[i].get<std::vector<int32_t>>());
      EXPECT_EQ(text, expected) << ids_key << " " << i << ": " << Shown(expected);
    }
  };
  check("ids", "decoded");
  check("drawn", "drawn_decoded");
}

TEST_P(GoldenTest, InvalidUtf8BecomesReplacementCharacters) {
  const json& raw = Cases()["raw"];
  const json& ids = (*golden_.expected)["raw"];
  for (size_t i = 0; i < raw.size(); ++i) {
    const std::string text = absl::HexStringToBytes(raw[i].get<std::string>());
    const auto encoded = golden_.tokenizer->Encode(text);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    EXPECT_EQ(*encoded, ids[i].get<std::vector<int32_t>>()) << Shown(text);
  }
}

// The tokens come from encoded texts. For tokens that no text is encoded to, a stream may give more
// U+FFFD than Decode.
TEST_P(GoldenTest, AStreamGivesTheDecodedText) {
  const json& ids = (*golden_.expected)["ids"];
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto tokens = ids[i].get<std::vector<int32_t>>();
    TextStream stream(golden_.tokenizer.get(),
                      std::make_shared<const StopTexts>(std::vector<std::string>()), 0);
    std::string text;
    for (const int32_t token : tokens) stream.Append(token, &text);
    stream.Finish(&text);
    EXPECT_EQ(text, golden_.tokenizer->Decode(tokens)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, ::testing::ValuesIn(All()), [](const auto& param) {
  return param.param.name + (param.param.hugging_face ? "_json" : "_model");
});

}  // namespace
}  // namespace sluice::tokenize
