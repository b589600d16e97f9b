#include "engine/rows/row_edits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace sluice {
namespace {

constexpr int32_t kEos = 2, kOtherEos = 9;

RequestSpec MakeSpec() {
  auto model = std::make_shared<Model>();
  model->config.vocab_size = 100;
  model->config.eos_token_ids = {kEos, kOtherEos};
  RequestSpec spec;
  spec.model = std::move(model);
  return spec;
}

std::vector<int32_t> BannedAt(RowEdits* edits, int32_t index) {
  const kernels::LogitEdits* now = edits->At(index);
  if (now == nullptr) return {};
  std::vector<int32_t> banned(now->banned.begin(), now->banned.end());
  std::sort(banned.begin(), banned.end());
  return banned;
}

std::map<int32_t, int32_t> CountsIn(const kernels::LogitEdits* now) {
  std::map<int32_t, int32_t> counts;
  if (now == nullptr) return counts;
  for (const kernels::SeenToken& seen : now->seen) {
    EXPECT_TRUE(counts.emplace(seen.token, seen.generated).second)
        << seen.token << " appears twice";
  }
  return counts;
}

std::map<int32_t, int32_t> SeenAt(RowEdits* edits, int32_t index) {
  return CountsIn(edits->At(index));
}

TEST(RowEditsTest, DefaultsNeedNoEdits) {
  RequestSpec spec = MakeSpec();
  EXPECT_FALSE(RowEdits::Wanted(spec));
  spec.stop.ids = {5};
  spec.stop.texts = {"x"};
  spec.stop.ignore_eos = true;
  EXPECT_FALSE(RowEdits::Wanted(spec)) << "stop rules do not edit logits";
  RowEdits edits(spec, std::vector<int32_t>{1, 2}, 4);
  EXPECT_EQ(edits.At(0), nullptr);
  edits.Keep(7);
  EXPECT_EQ(edits.At(1), nullptr);
}

TEST(RowEditsTest, EachRuleNeedsEdits) {
  const auto wanted = [](auto change) {
    RequestSpec spec = MakeSpec();
    change(&spec);
    RowEdits edits(spec, std::vector<int32_t>{1}, 4);
    edits.Keep(3);
    const bool at = edits.At(1) != nullptr;
    EXPECT_EQ(at, RowEdits::Wanted(spec));
    return at;
  };
  EXPECT_TRUE(wanted([](RequestSpec* r) { r->edits.repetition_penalty = 0.9f; }));
  EXPECT_TRUE(wanted([](RequestSpec* r) { r->edits.presence_penalty = -1; }));
  EXPECT_TRUE(wanted([](RequestSpec* r) { r->edits.frequency_penalty = 1; }));
  EXPECT_TRUE(wanted([](RequestSpec* r) { r->edits.bias = {{4, 1}}; }));
  EXPECT_TRUE(wanted([](RequestSpec* r) { r->edits.allowed = {4}; }));
  EXPECT_TRUE(wanted([](RequestSpec* r) { r->stop.min_tokens = 2; }));
}

TEST(RowEditsTest, CopiesTheRulesOfTheRequest) {
  RequestSpec spec = MakeSpec();
  spec.edits = {.repetition_penalty = 1.5f,
                .presence_penalty = 0.25f,
                .frequency_penalty = -0.5f,
                .bias = {{4, 1.0f}, {1, -2.0f}},
                .allowed = {1, 4, 8}};
  RowEdits edits(spec, std::vector<int32_t>{1}, 1);
  const kernels::LogitEdits* at = edits.At(0);
  ASSERT_NE(at, nullptr);
  EXPECT_EQ(at->repetition, 1.5f);
  EXPECT_EQ(at->presence, 0.25f);
  EXPECT_EQ(at->frequency, -0.5f);
  ASSERT_EQ(at->bias.size(), 2u);
  EXPECT_EQ(at->bias[1].token, 1);
  EXPECT_EQ(at->bias[1].bias, -2.0f);
  EXPECT_EQ(std::vector<int32_t>(at->allowed.begin(), at->allowed.end()), spec.edits.allowed);
  EXPECT_TRUE(at->banned.empty());
}

TEST(RowEditsTest, StopTokensAreBannedBeforeMinTokens) {
  RequestSpec spec = MakeSpec();
  spec.stop.ids = {5, kOtherEos};
  spec.stop.min_tokens = 2;
  RowEdits both(spec, {}, 4);
  const std::vector<int32_t> ending = {kEos, 5, kOtherEos};
  EXPECT_EQ(BannedAt(&both, 0), ending);
  EXPECT_EQ(BannedAt(&both, 1), ending);
  EXPECT_EQ(both.At(2), nullptr);
  spec.stop.ignore_eos = true;
  RowEdits ignoring(spec, {}, 4);
  EXPECT_EQ(BannedAt(&ignoring, 0), (std::vector<int32_t>{5, kOtherEos}));
  spec.stop.ids.clear();
  RowEdits nothing(spec, {}, 4);
  EXPECT_EQ(nothing.At(0), nullptr) << "no token ends this row";
}

// Penalises the prompt, the generated tokens, or both.
RequestSpec PenalisingSpec(uint64_t seed) {
  RequestSpec spec = MakeSpec();
  if (seed % 3 != 0) spec.edits.repetition_penalty = 1.2f;
  if (seed % 3 != 1) spec.edits.presence_penalty = 0.5f;
  return spec;
}

TEST(RowEditsTest, CountsTheTokensOfThePromptAndTheGeneration) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const RequestSpec spec = PenalisingSpec(seed);
    std::vector<int32_t> prompt(random() % 30);
    for (int32_t& token : prompt) token = static_cast<int32_t>(random() % 20);
    constexpr int32_t kGenerated = 40;
    RowEdits edits(spec, prompt, kGenerated);
    std::map<int32_t, int32_t> expected;
    // Without the repetition penalty, the prompt has no effect.
    if (seed % 3 != 0) {
      for (int32_t token : prompt) expected[token] = 0;
    }
    const kernels::LogitEdits* first = nullptr;
    const kernels::SeenToken* storage = nullptr;
    for (int32_t i = 0; i < kGenerated; ++i) {
      ASSERT_EQ(SeenAt(&edits, i), expected) << "after " << i;
      if (const kernels::LogitEdits* at = edits.At(i); at != nullptr) {
        if (first == nullptr) storage = at->seen.data();
        first = at;
        ASSERT_EQ(at->seen.data(), storage) << "memory was not reserved";
      }
      const auto token = static_cast<int32_t>(random() % 60);
      edits.Keep(token);
      ++expected[token];
    }
    EXPECT_EQ(SeenAt(&edits, kGenerated), expected);
  }
}

// The edits of a draw after drafted tokens are the edits of a row that has kept these tokens.
TEST(RowEditsTest, CountsDraftedTokensLikeKeptOnes) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const RequestSpec spec = PenalisingSpec(seed);
    const auto tokens = [&](uint64_t count) {
      std::vector<int32_t> drawn(count);
      for (int32_t& token : drawn) token = static_cast<int32_t>(random() % 12);
      return drawn;
    };
    const std::vector<int32_t> prompt = tokens(random() % 10), kept = tokens(random() % 10);
    constexpr size_t kDrafted = 6;
    RowEdits edits(spec, prompt, 40, kDrafted);
    for (const int32_t token : kept) edits.Keep(token);
    const std::vector<int32_t> drafts = tokens(kDrafted);
    std::vector<const kernels::LogitEdits*> draws;
    for (size_t drafted = 0; drafted <= kDrafted; ++drafted) {
      draws.push_back(
          edits.At(static_cast<int32_t>(kept.size() + drafted), std::span(drafts).first(drafted)));
    }
    RowEdits plain(spec, prompt, 40);
    for (const int32_t token : kept) plain.Keep(token);
    for (size_t drafted = 0; drafted <= kDrafted; ++drafted) {
      ASSERT_EQ(CountsIn(draws[drafted]),
                SeenAt(&plain, static_cast<int32_t>(kept.size() + drafted)));
      if (drafted < kDrafted) plain.Keep(drafts[drafted]);
    }
  }
}

TEST(EndsTest, AnEosOrAStopIdEndsGeneration) {
  RequestSpec spec = MakeSpec();
  spec.stop.ids = {5, 7};
  const auto ending = [&] {
    std::vector<int32_t> tokens;
    for (int32_t token = 0; token < 100; ++token) {
      if (Ends(spec, token)) tokens.push_back(token);
    }
    return tokens;
  };
  EXPECT_EQ(ending(), (std::vector<int32_t>{kEos, 5, 7, kOtherEos}));
  spec.stop.ignore_eos = true;
  EXPECT_EQ(ending(), (std::vector<int32_t>{5, 7}));
  spec.stop.ids = {kEos, 5};
  EXPECT_EQ(ending(), (std::vector<int32_t>{kEos, 5})) << "an eos in the stop ids ends the row";
}

}  // namespace
}  // namespace sluice
