#include "engine/model/check_draft.h"

#include <memory>
#include <string>

#include "engine/model/tokenizer/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/checkpoint_writer.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

// Tokens are letters; the text of one token may differ.
class Letters final : public Tokenizer {
 public:
  explicit Letters(int32_t other) : other_(other) {}
  absl::StatusOr<std::vector<int32_t>> EncodeBare(std::string_view, int64_t) const override {
    return std::vector<int32_t>();
  }
  int64_t longest_token_bytes() const override { return 1; }
  std::string Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += id == other_ ? '?' : static_cast<char>('a' + id % 26);
    return text;
  }

 private:
  const int32_t other_;
};

std::shared_ptr<Model> MakeModel(const std::string& name, int64_t vocabulary = 24) {
  ModelConfig config = testing::TinySluiceConfig(1);
  config.vocab_size = vocabulary;
  const auto model = std::const_pointer_cast<Model>(testing::RandomModel(config, 3));
  model->name = name;
  model->tokenizer = std::make_unique<Letters>(-1);
  return model;
}

std::string Error(const Model& model, const Model& draft) {
  return std::string(CheckDraft(model, draft).message());
}

TEST(CheckDraft, AcceptsAModelWithTheSameVocabulary) {
  const auto model = MakeModel("large"), draft = MakeModel("small");
  EXPECT_EQ(CheckDraft(*model, *draft), absl::OkStatus());
  draft->tokenizer = nullptr;
  EXPECT_EQ(CheckDraft(*model, *draft), absl::OkStatus());
}

TEST(CheckDraft, NamesTheFirstDifferenceOfTheVocabularies) {
  const auto model = MakeModel("large"), draft = MakeModel("small");
  draft->tokenizer = std::make_unique<Letters>(7);
  EXPECT_EQ(Error(*model, *draft),
            "speculation.draft: token 7 is \"?\" in model small and \"h\" in model large. Name a "
            "draft model with the same vocabulary");
  EXPECT_EQ(
      Error(*model, *MakeModel("small", 23)),
      "speculation.draft: model small has 23 tokens and model large has 24. Name a draft model "
      "with the same vocabulary");
}

TEST(CheckDraft, RefusesModelsThatCannotDraft) {
  const auto model = MakeModel("large"), draft = MakeModel("small");
  model->config.causal = false;
  EXPECT_THAT(Error(*model, *draft), HasSubstr("model large generates no tokens"));
  EXPECT_THAT(Error(*draft, *model), HasSubstr("model large cannot draft tokens"));
  model->config.causal = true;
  draft->draft = MakeModel("tiny");
  EXPECT_THAT(Error(*model, *draft), HasSubstr("model small has a draft model itself, tiny"));
}

}  // namespace
}  // namespace sluice
