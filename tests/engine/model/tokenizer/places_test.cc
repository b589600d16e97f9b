// Compares the places of tokens with the original library's (tests/goldens/offsets.json).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/model/tokenizer/hugging_face.h"

namespace sluice::tokenize {
namespace {

using nlohmann::json;

const std::string kGoldenFolder = std::string(SLUICE_SOURCE_DIR) + "/tests/goldens/";

json ReadJsonGolden(const std::string& name) {
  return json::parse(std::ifstream(kGoldenFolder + name));
}

std::vector<std::string> TokenizerNames() {
  const json golden = ReadJsonGolden("offsets.json");
  std::vector<std::string> names;
  for (const auto& [name, expected] : golden["tokenizers"].items()) names.push_back(name);
  return names;
}

class PlacesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(PlacesTest, EqualTheOriginalOrAreUnknown) {
  const json golden = ReadJsonGolden("offsets.json");
  const auto tokenizer =
      ParseHuggingFace(ReadJsonGolden("tokenizers/" + GetParam() + ".json").dump(), {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  int known = 0, all = 0;
  for (size_t i = 0; i < golden["texts"].size(); ++i) {
    const auto text = golden["texts"][i].get<std::string>();
    const json& expected = golden["tokenizers"][GetParam()][i];
    std::vector<ByteRange> ranges;
    const auto ids = (*tokenizer)->EncodeLocated(text, Tokenizer::kNoLimit, &ranges);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, *(*tokenizer)->EncodeBare(text, Tokenizer::kNoLimit));
    ASSERT_EQ(ranges.size(), ids->size());
    ASSERT_EQ(ranges.size(), expected.size()) << text;
    for (size_t token = 0; token < ranges.size(); ++token) {
      const auto [begin, end] = ranges[token];
      const int32_t first = expected[token][0], last = expected[token][1];
      if (first >= 0) ++all;
      if (begin < 0 || first < 0) continue;
      ++known;
      EXPECT_TRUE(begin == first && end == last)
          << text << ": token " << token << " is at " << begin << " to " << end << ", not " << first
          << " to " << last;
    }
  }
  EXPECT_GT(known, all * 8 / 10) << "of " << all << "; a prefix has no place";
}

INSTANTIATE_TEST_SUITE_P(All, PlacesTest, ::testing::ValuesIn(TokenizerNames()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace sluice::tokenize
