// A step of equal sequences with made-up tokens, for profiles and tests.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "engine/model/config.h"
#include "engine/step_batch.h"
#include "engine/step_description.h"
#include "kernels/cpu/kv_cache.h"

namespace sluice {

// The batch of the step. The last token of each sequence is sampled if the model has a head.
class EqualSequences {
 public:
  // Sequence i has the pages [i * pages_each, (i + 1) * pages_each). Requires sizes from
  // CompleteStep.
  EqualSequences(const ModelConfig& config, const StepSizes& step, int64_t pages_each,
                 RowOrder order)
      : pages_(static_cast<size_t>(step.sequences * pages_each)),
        tokens_(static_cast<size_t>(step.tokens)),
        inputs_(static_cast<size_t>(step.tokens * config.input_width), 0.5f),
        results_(config.has_lm_head ? static_cast<size_t>(step.sequences) : 0),
        batch_(static_cast<int32_t>(step.sequences * step.tokens),
               static_cast<int32_t>(step.sequences), static_cast<int32_t>(step.context),
               kernels::kPageTokens, static_cast<int32_t>(config.input_width),
               config.padding_token) {
    std::iota(pages_.begin(), pages_.end(), 0);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<int32_t>(static_cast<int64_t>(i) % config.vocab_size);
    }
    const auto tokens = static_cast<int32_t>(step.tokens);
    const auto context = static_cast<int32_t>(step.context);
    std::vector<StepSequence> sequences;
    std::vector<SampledRow> sampled;
    for (int32_t i = 0; i < step.sequences; ++i) {
      sequences.push_back({.first_position = context - tokens,
                           .count = tokens,
                           .tokens = tokens_.data(),
                           .pages = &pages_[i * pages_each],
                           .input_count = config.embeds_ids() ? 0 : tokens,
                           .inputs = inputs_.data()});
      if (results_.empty()) continue;
      sampled.push_back({.sequence = i, .position = context - 1, .result = &results_[i]});
    }
    batch_.Assign(sequences, sampled, order);
  }

  const StepBatch& batch() const { return batch_; }

 private:
  std::vector<int32_t> pages_, tokens_;
  std::vector<float> inputs_;  // [tokens, input_width]
  std::vector<kernels::SampleResult> results_;
  StepBatch batch_;
};

}  // namespace sluice
