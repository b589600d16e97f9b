// Measures the cost that edits add to the choice of a token. Arguments: edits (see EditsOf), draw
// (see ParamsOf). Uses the machine's best profile, on 32768 logits.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/sample.h"

namespace sluice::kernels {
namespace {

constexpr int32_t kVocab = 32768;
constexpr int32_t kTokens = 1000;  // tokens that an edit names

struct Tokens {
  std::vector<SeenToken> seen;
  std::vector<TokenBias> bias;
  std::vector<int32_t> allowed;
};

Tokens SpreadTokens(std::mt19937_64& random) {
  Tokens tokens;
  for (int32_t i = 0; i < kTokens; ++i) {
    const int32_t token = i * (kVocab / kTokens) + static_cast<int32_t>(random() % 32);
    tokens.seen.push_back({token, i % 3});
    tokens.bias.push_back({token, 0.5f});
    tokens.allowed.push_back(token);
  }
  std::shuffle(tokens.seen.begin(), tokens.seen.end(), random);
  return tokens;
}

enum EditKind : int64_t { kNone, kPenalties, kBias, kAllowed };
LogitEdits EditsOf(int64_t kind, const Tokens& tokens) {
  LogitEdits edits;
  if (kind == kPenalties) {
    edits.seen = tokens.seen;
    edits.repetition = 1.1f;
    edits.presence = edits.frequency = 0.2f;
  }
  if (kind == kBias) edits.bias = tokens.bias;
  if (kind == kAllowed) edits.allowed = tokens.allowed;
  return edits;
}

enum DrawKind : int64_t { kGreedy, kWholeRow, kTopK };
SampleParams ParamsOf(int64_t kind) {
  return {.temperature = kind == kGreedy ? 0.0f : 0.8f, .top_k = kind == kTopK ? 50 : 0};
}

void BM_Sample(benchmark::State& state) {
  std::mt19937_64 random(1);
  const Tokens tokens = SpreadTokens(random);
  const LogitEdits edits = EditsOf(state.range(0), tokens);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = normal(random);
  std::vector<uint64_t> scratch(SampleScratch(kVocab));
  SampleParams params = ParamsOf(state.range(1));
  const SampleRow row = {.logits = logits.data(),
                         .n = kVocab,
                         .num_top = 0,
                         .top_ids = nullptr,
                         .top_logprobs = nullptr,
                         .edits = state.range(0) == kNone ? nullptr : &edits};
  const Profile profile = BestProfile();
  for (auto _ : state) {
    ++params.token_index;
    benchmark::DoNotOptimize(Sample(profile, params, row, scratch.data()));
  }
  state.SetLabel(std::string(ProfileName(profile)));
}
BENCHMARK(BM_Sample)->ArgNames({"edits", "draw"})->ArgsProduct({{0, 1, 2, 3}, {0, 1, 2}});

}  // namespace
}  // namespace sluice::kernels
