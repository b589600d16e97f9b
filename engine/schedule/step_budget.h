// The budget of a step for sequences that are not decodes.
#pragma once

#include <cstdint>

#include "engine/bucket.h"
#include "engine/options.h"
#include "engine/schedule/batch_former.h"
#include "engine/schedule/queue.h"

namespace sluice {

// Limits that let every running sequence continue in every step: the largest bucket holds one chunk
// of a prompt and one token of each other running sequence.
struct RunLimits {
  int32_t chunk_tokens = 0;  // maximum tokens of one prompt in a step
  int32_t sequences = 0;     // maximum number of running sequences
};
// Returns prefill_tokens and the sequences of the largest bucket, or less if that bucket is small.
// Then a chunk gets the tokens left after one token for each other sequence, but at least half of
// the bucket, and the number of running sequences is limited so that they fit with a chunk. If
// prefill_tokens is 0 or the policy is not kPacked, a chunk may fill the largest bucket.
RunLimits RunLimitsOf(const BatchOptions& options, const Bucket& largest);

// Returns whether the sequence generates, its next step is one token and its prompt is complete.
// Such a sequence is in every step.
inline bool IsDecode(const WaitingSequence& sequence) {
  return sequence.running && sequence.generates && sequence.tokens == 1 &&
         sequence.later_tokens == 0;
}

// The tokens, sequences and pages that a batch may still take in addition to the decodes. A small
// value type.
//
// Pages: the pages for the next steps of all running sequences, and one more for each, are
// reserved. A new sequence takes its pages from the rest, and one more is reserved for it if it
// will keep running. If nothing runs, the first sequence may take all pages. All pages are then
// available, unless the decision is for the time after a running step and sequences of that step
// still hold pages.
class StepBudget {
 public:
  StepBudget() = default;
  // The budget in the ladder's largest bucket. Requires that the bucket holds `decodes` sequences
  // (CHECK).
  StepBudget(const BatchOptions& options, const SequenceQueue& queue, const FormerInputs& inputs,
             int32_t decodes);

  // Returns the budget in another bucket, before anything is taken. It is not valid() if that
  // bucket does not hold the decodes.
  StepBudget ForBucket(const Bucket& bucket) const;

  bool valid() const { return tokens_ >= 0 && sequences_ >= 0; }
  bool empty() const { return tokens_ <= 0 || sequences_ <= 0; }
  int32_t tokens() const { return tokens_; }
  // Returns whether the sequence fits by its tokens. CanTake also checks pages and places.
  bool Fits(const WaitingSequence& sequence) const {
    return sequences_ > 0 && sequence.tokens <= tokens_;
  }
  bool CanTake(const WaitingSequence& sequence) const;
  void Take(const WaitingSequence& sequence);

 private:
  // Returns whether the sequence does not run yet and will keep running after this step.
  static bool WillKeepRunning(const WaitingSequence& sequence) {
    return !sequence.running && (sequence.later_tokens > 0 || sequence.generates);
  }

  int32_t decodes_ = 0;
  int32_t prompt_tokens_ = 0;  // maximum prompt tokens of a step, for every bucket
  int32_t tokens_ = 0;
  int32_t sequences_ = 0;
  int64_t free_places_ = 0;
  int64_t pages_ = 0;
  bool new_may_join_ = true;
  bool step_is_empty_ = true;
};

}  // namespace sluice
