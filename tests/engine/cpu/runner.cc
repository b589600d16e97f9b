#include "tests/engine/cpu/runner.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "gtest/gtest.h"
#include "kernels/cpu/kv_cache.h"

namespace sluice::testing {
namespace {

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Returns the sum of the states [length, width] of a sequence.
std::vector<double> SumOf(const std::vector<float>& states, int64_t width) {
  std::vector<double> sum(width);
  for (size_t i = 0; i < states.size(); ++i) sum[i % width] += states[i];
  return sum;
}

// Returns the values of one sequence as [layers, length, heads], from `all`, which is [layers,
// rows, heads] in the order of the batch's rows.
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
         SameBits(a.state_sum, b.state_sum) &&
         std::equal(a.next.begin(), a.next.end(), b.next.begin(), b.next.end(), same) &&
         SameBits(a.xsa_cos_sim, b.xsa_cos_sim) && SameBits(a.xsa_proj_frac, b.xsa_proj_frac);
}

Runner::Runner(std::shared_ptr<const Model> model, const CpuOptions& options, const Bucket& largest)
    : Runner(std::move(model), MakeBackendUnderTest(options), largest) {}

Runner::Runner(std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend,
               const Bucket& largest)
    : model_(std::move(model)), backend_(std::move(backend)), largest_(largest) {
  auto executable = backend_->Load(model_);
  SLUICE_CHECK(executable.ok());
  executable_ = *std::move(executable);
  auto slot = executable_->CreateSlot(largest, 2 * MaxPages(largest, kernels::kPageTokens));
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

struct Runner::Step {
  Step(const ModelConfig& config, const Bucket& bucket)
      : batch(bucket.tokens, bucket.sequences, static_cast<int32_t>(config.max_positions),
              kernels::kPageTokens, static_cast<int32_t>(config.input_width),
              config.padding_token) {}

  std::vector<Prompt> prompts;
  std::vector<int32_t> pages;
  std::vector<Answer> answers;
  std::vector<StepSequence> sequences;
  std::vector<SampledRow> sampled;
  std::vector<StateSum> states;
  std::vector<std::vector<double>> state_values;  // by prompt, [length, hidden]
  std::vector<float> cos_sim, proj_frac;
  StepBatch batch;
};

std::unique_ptr<Runner::Step> Runner::Lay(const std::vector<Prompt>& prompts, const Bucket& bucket,
                                          const kernels::SampleParams& params) {
  const ModelConfig& config = model_->config;
  auto step = std::make_unique<Step>(config, bucket);
  step->prompts = prompts;
  step->pages.resize(static_cast<size_t>(slot_->pages()));
  std::iota(step->pages.begin(), step->pages.end(), 0);
  std::shuffle(step->pages.begin(), step->pages.end(), random_);
  step->answers.resize(prompts.size());
  const int32_t* free_pages = step->pages.data();
  for (const Prompt& prompt : step->prompts) {
    const auto length = static_cast<int32_t>(prompt.tokens.size());
    step->sequences.push_back({.first_position = 0,
                               .count = length,
                               .tokens = prompt.tokens.data(),
                               .pages = free_pages,
                               .position_offset = prompt.position_offset,
                               .input_count = prompt.inputs.empty() ? 0 : length,
                               .inputs = prompt.inputs.data(),
                               .type_count = static_cast<int32_t>(prompt.types.size()),
                               .types = prompt.types.data(),
                               .adapter = prompt.adapter});
    free_pages += (length + kernels::kPageTokens - 1) / kernels::kPageTokens;
    AddSampledRows(prompt, params, step.get());
  }
  StepBatch& batch = step->batch;
  batch.Assign(step->sequences, step->sampled, executable_->row_order(), step->states);
  step->cos_sim.assign(static_cast<size_t>(config.layers * batch.tokens() * config.heads), -7);
  step->proj_frac = step->cos_sim;
  batch.xsa_cos_sim = step->cos_sim.data();
  batch.xsa_proj_frac = step->proj_frac.data();
  return step;
}

// Samples every row of the last sequence that was added to the step.
void Runner::AddSampledRows(const Prompt& prompt, const kernels::SampleParams& params,
                            Step* step) const {
  const ModelConfig& config = model_->config;
  const auto length = static_cast<int32_t>(prompt.tokens.size());
  const auto sequence = static_cast<int32_t>(step->sequences.size()) - 1;
  Answer& answer = step->answers[static_cast<size_t>(sequence)];
  answer.state_sum.resize(config.hidden_size);
  step->states.push_back(
      {.sequence = sequence, .position = 0, .out = answer.state_sum.data(), .count = length});
  auto& values = step->state_values.emplace_back(length * config.hidden_size);
  for (int32_t i = 0; i < length; ++i) {
    step->states.push_back(
        {.sequence = sequence, .position = i, .out = values.data() + i * config.hidden_size});
  }
  if (!config.has_lm_head) return;
  answer.logits.resize(length * config.vocab_size);
  answer.next.resize(length);
  for (int32_t i = 0; i < length; ++i) {
    const bool last = i == length - 1;
    step->sampled.push_back({.sequence = sequence,
                             .position = i,
                             .target = last ? -1 : prompt.tokens[i + 1],
                             .params = last ? params : kernels::SampleParams{},
                             .logits = answer.logits.data() + i * config.vocab_size,
                             .result = &answer.next[i]});
  }
}

std::vector<Answer> Runner::Collect(Step* step) const {
  const ModelConfig& config = model_->config;
  for (size_t s = 0; s < step->answers.size(); ++s) {
    Answer& answer = step->answers[s];
    answer.states.assign(step->state_values[s].begin(), step->state_values[s].end());
    EXPECT_TRUE(SameBits(answer.state_sum, SumOf(answer.states, config.hidden_size)));
    answer.xsa_cos_sim = Gather(step->cos_sim, step->batch, s, config.layers, config.heads);
    answer.xsa_proj_frac = Gather(step->proj_frac, step->batch, s, config.layers, config.heads);
  }
  return std::move(step->answers);
}

std::vector<Answer> Runner::Run(const std::vector<Prompt>& prompts, const Bucket& bucket,
                                const kernels::SampleParams& params) {
  const std::unique_ptr<Step> step = Lay(prompts, bucket, params);
  auto plan = executable_->Prepare(bucket);
  SLUICE_CHECK(plan.ok());
  SLUICE_CHECK(executable_->Replay(**plan, *slot_, step->batch).ok());
  return Collect(step.get());
}

std::vector<std::vector<Answer>> Runner::RunOverlapping(
    const std::vector<std::vector<Prompt>>& batches, const Bucket& bucket) {
  auto plan = executable_->Prepare(bucket);
  SLUICE_CHECK(plan.ok());
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<std::vector<Answer>> answers;
  const auto finish = [&] {
    SLUICE_CHECK(executable_->Finish(*slot_).ok());
    answers.push_back(Collect(steps[answers.size()].get()));
  };
  for (const std::vector<Prompt>& prompts : batches) {
    const size_t most = 1 + static_cast<size_t>(backend_->info().steps_ahead);
    if (steps.size() - answers.size() == most) finish();
    steps.push_back(Lay(prompts, bucket, {}));
    executable_->Start(**plan, *slot_, steps.back()->batch);
  }
  while (answers.size() < steps.size()) finish();
  return answers;
}

std::vector<int32_t> Runner::Generate(std::vector<int32_t> prompt, int steps) {
  for (int i = 0; i < steps; ++i) prompt.push_back(Run({prompt})[0].next.back().token);
  return {prompt.end() - steps, prompt.end()};
}

std::vector<float> LogitsOfCut(Runner& runner, const ModelConfig& config,
                               const std::vector<int32_t>& tokens,
                               const std::vector<int32_t>& cuts) {
  const auto length = static_cast<int32_t>(tokens.size());
  const ExecutableModel& executable = runner.executable();
  const auto plan = executable.Prepare({length, 1});
  SLUICE_CHECK(plan.ok());
  std::vector<int32_t> pages((length + kernels::kPageTokens - 1) / kernels::kPageTokens);
  std::iota(pages.rbegin(), pages.rend(), 2);
  StepBatch batch(length, 1, config.max_positions, kernels::kPageTokens);
  std::vector<float> logits(length * config.vocab_size);
  std::vector<kernels::SampleResult> results(length);
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    const StepSequence step{cuts[c], cuts[c + 1] - cuts[c], tokens.data() + cuts[c], pages.data()};
    std::vector<SampledRow> sampled;
    for (int32_t p = cuts[c]; p < cuts[c + 1]; ++p) {
      sampled.push_back(
          {.position = p, .logits = logits.data() + p * config.vocab_size, .result = &results[p]});
    }
    batch.Assign({&step, 1}, sampled, executable.row_order());
    SLUICE_CHECK(executable.Replay(**plan, runner.slot(), batch).ok());
  }
  return logits;
}

}  // namespace sluice::testing
