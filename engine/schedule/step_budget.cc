#include "engine/schedule/step_budget.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace sluice {

RunLimits RunLimitsOf(const BatchOptions& options, const Bucket& largest) {
  if (options.policy != PolicyKind::kPacked || options.prefill_tokens == 0) {
    return {.chunk_tokens = largest.tokens,
            .sequences = std::min(largest.sequences, largest.tokens)};
  }
  const int32_t left = largest.tokens - largest.sequences + 1;
  const int32_t chunk = std::min(options.prefill_tokens, std::max(left, (largest.tokens + 1) / 2));
  return {.chunk_tokens = chunk,
          .sequences = std::min(largest.sequences, largest.tokens - chunk + 1)};
}

StepBudget::StepBudget(const BatchOptions& options, const SequenceQueue& queue,
                       const FormerInputs& inputs, int32_t decodes)
    : decodes_(decodes) {
  const Bucket& largest = inputs.ladder->largest();
  const int64_t running = queue.running();
  const bool heeds_budget = decodes > 0 && options.prefill_tokens > 0;
  prompt_tokens_ = heeds_budget ? options.prefill_tokens : std::numeric_limits<int32_t>::max();
  free_places_ = RunLimitsOf(options, largest).sequences - running;
  pages_ = inputs.available_pages - queue.running_pages() - running;
  new_may_join_ = options.continuous || running == 0;
  step_is_empty_ = running == 0;
  *this = ForBucket(largest);
  SLUICE_CHECK(valid());
}

StepBudget StepBudget::ForBucket(const Bucket& bucket) const {
  StepBudget budget = *this;
  budget.tokens_ = std::min(bucket.tokens - decodes_, prompt_tokens_);
  budget.sequences_ = bucket.sequences - decodes_;
  return budget;
}

bool StepBudget::CanTake(const WaitingSequence& sequence) const {
  if (!Fits(sequence)) return false;
  if (sequence.running) return true;
  if (step_is_empty_) return sequence.pages <= pages_;
  const int reserved = WillKeepRunning(sequence) ? 1 : 0;
  return new_may_join_ && (reserved == 0 || free_places_ > 0) &&
         sequence.pages + reserved <= pages_;
}

void StepBudget::Take(const WaitingSequence& sequence) {
  tokens_ -= sequence.tokens;
  --sequences_;
  step_is_empty_ = false;
  if (sequence.running) return;
  const int reserved = WillKeepRunning(sequence) ? 1 : 0;
  free_places_ -= reserved;
  pages_ -= sequence.pages + reserved;
}

}  // namespace sluice
