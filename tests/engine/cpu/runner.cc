#include "tests/engine/cpu/runner.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/check.h"
#include "kernels/cpu/kv_cache.h"

namespace sluice::testing {
namespace {

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// [layers, rows, heads] by batch row -> [layers, length, heads] of one sequence.
std::vector<float> Gather(const std::vector<float>& all, const StepBatch& batch, size_t sequence,
                          int64_t layers, int64_t heads) {
  const StepBatch::Sequence& place = batch.sequences()[sequence];
  std::vector<float> own;
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int32_t i = 0; i < place.count; ++i) {
      const int64_t row = layer * batch.tokens() + batch.sequence_rows()[place.rows_offset + i];
      own.insert(own.end(), all.begin() + row * heads, all.begin() + (row + 1) * heads);
    }
  }
  return own;
}

}  // namespace

std::string TestName(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::vector<int32_t> RandomTokens(std::mt19937_64& random, int64_t length, int64_t vocab) {
  std::vector<int32_t> tokens(length);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % vocab);
  return tokens;
}

bool SameBits(const Answer& a, const Answer& b) {
  const auto same = [](const kernels::SampleResult& x, const kernels::SampleResult& y) {
    return x.token == y.token && std::memcmp(&x.logprob, &y.logprob, sizeof(float)) == 0;
  };
  return SameBits(a.logits, b.logits) && SameBits(a.states, b.states) &&
         std::equal(a.next.begin(), a.next.end(), b.next.begin(), b.next.end(), same) &&
         SameBits(a.xsa_cos_sim, b.xsa_cos_sim) && SameBits(a.xsa_proj_frac, b.xsa_proj_frac);
}

Runner::Runner(std::shared_ptr<const Model> model, const CpuOptions& options, const Bucket& largest)
    : model_(std::move(model)), largest_(largest) {
  backend_ = MakeBackendUnderTest(options);
  auto executable = backend_->Load(model_);
  SLUICE_CHECK(executable.ok());
  executable_ = *std::move(executable);
  auto slot = executable_->CreateSlot(largest, 2 * MostPages(largest, kernels::kPageTokens));
  SLUICE_CHECK(slot.ok());
  slot_ = *std::move(slot);
}

std::vector<Answer> Runner::Run(const std::vector<std::vector<int32_t>>& sequences) {
  int32_t tokens = 0;
  for (const auto& sequence : sequences) tokens += static_cast<int32_t>(sequence.size());
  return Run(sequences, {tokens, static_cast<int32_t>(sequences.size())});
}

std::vector<Answer> Runner::Run(const std::vector<std::vector<int32_t>>& sequences,
                                const Bucket& bucket, const kernels::SampleParams& params) {
  std::vector<Prompt> prompts;
  for (const auto& sequence : sequences) prompts.push_back({sequence});
  return Run(prompts, bucket, params);
}

std::vector<Answer> Runner::Run(const std::vector<Prompt>& prompts, const Bucket& bucket,
                                const kernels::SampleParams& params) {
  const ModelConfig& config = model_->config;
  std::vector<int32_t> pages(slot_->pages());
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random_);

  std::vector<Answer> answers(prompts.size());
  std::vector<StepSequence> steps;
  std::vector<SampledRow> sampled;
  std::vector<StateRow> states;
  const int32_t* free_pages = pages.data();
  for (size_t s = 0; s < prompts.size(); ++s) {
    const std::vector<int32_t>& tokens = prompts[s].tokens;
    const auto length = static_cast<int32_t>(tokens.size());
    steps.push_back({.first_position = 0,
                     .count = length,
                     .tokens = tokens.data(),
                     .pages = free_pages,
                     .position_offset = prompts[s].position_offset,
                     .input_count = prompts[s].inputs.empty() ? 0 : length,
                     .inputs = prompts[s].inputs.data()});
    free_pages += (length + kernels::kPageTokens - 1) / kernels::kPageTokens;
    answers[s].states.resize(length * config.hidden_size);
    for (int32_t i = 0; i < length; ++i) {
      states.push_back({.sequence = static_cast<int32_t>(s),
                        .position = i,
                        .out = answers[s].states.data() + i * config.hidden_size});
    }
    if (!config.has_lm_head) continue;
    answers[s].logits.resize(length * config.vocab_size);
    answers[s].next.resize(length);
    for (int32_t i = 0; i < length; ++i) {
      const bool last = i == length - 1;
      sampled.push_back({.sequence = static_cast<int32_t>(s),
                         .position = i,
                         .target = last ? -1 : tokens[i + 1],
                         .params = last ? params : kernels::SampleParams{},
                         .logits = answers[s].logits.data() + i * config.vocab_size,
                         .result = &answers[s].next[i]});
    }
  }
  StepBatch batch(bucket.tokens, bucket.sequences, static_cast<int32_t>(config.max_positions),
                  kernels::kPageTokens, static_cast<int32_t>(config.input_width));
  batch.Assign(steps, sampled, executable_->row_order(), states);
  std::vector<float> cos_sim(config.layers * batch.tokens() * config.heads, -7);
  std::vector<float> proj_frac(cos_sim.size(), -7);
  batch.xsa_cos_sim = cos_sim.data();
  batch.xsa_proj_frac = proj_frac.data();

  auto plan = executable_->Prepare(bucket);
  SLUICE_CHECK(plan.ok());
  SLUICE_CHECK(executable_->Replay(**plan, *slot_, batch).ok());
  for (size_t s = 0; s < prompts.size(); ++s) {
    answers[s].xsa_cos_sim = Gather(cos_sim, batch, s, config.layers, config.heads);
    answers[s].xsa_proj_frac = Gather(proj_frac, batch, s, config.layers, config.heads);
  }
  return answers;
}

std::vector<int32_t> Runner::Generate(std::vector<int32_t> prompt, int steps) {
  for (int i = 0; i < steps; ++i) prompt.push_back(Run({prompt})[0].next.back().token);
  return {prompt.end() - steps, prompt.end()};
}

}  // namespace sluice::testing
