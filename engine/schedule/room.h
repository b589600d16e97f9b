// What a step has room for beside the sequences that run.
#pragma once

#include <cstdint>

#include "engine/bucket.h"
#include "engine/options.h"
#include "engine/schedule/batch_former.h"
#include "engine/schedule/queue.h"

namespace sluice {

// Bounds that let every running sequence go on in every step: one chunk of a prompt fits the largest
// bucket beside one token of each of the others.
struct RunLimits {
  int32_t chunk_tokens = 0;  // that a step computes of one prompt
  int32_t sequences = 0;     // that run at once
};
// prefill_tokens and the ladder's max_sequences, or less: a chunk then takes what as many decodes
// leave, at least half of the bucket, and fewer run.
RunLimits RunLimitsOf(const BatchOptions& options, const Bucket& largest);

// It generates, its next step is one token, and no prompt is left: it rides in every step.
inline bool IsDecode(const WaitingSequence& sequence) {
  return sequence.running && sequence.generates && sequence.tokens == 1 &&
         sequence.later_tokens == 0;
}

// What a batch may still take beside the decodes. A small value.
//
// Pages: those that all running sequences' next steps take, and one more for each, are kept for them.
// Of the rest a new sequence takes its own, and one more is kept for it if it will run. When nothing
// runs the first one may take all there are.
class Room {
 public:
  Room() = default;
  // In the ladder's largest bucket, which holds `decodes` (CHECK).
  Room(const BatchOptions& options, const SequenceQueue& queue, const FormerInputs& inputs,
       int32_t decodes);

  // The same in another bucket, before anything was taken. Not `valid` if that does not hold the decodes.
  Room In(const Bucket& bucket) const;

  bool valid() const { return tokens_ >= 0 && sequences_ >= 0; }
  bool empty() const { return tokens_ <= 0 || sequences_ <= 0; }
  int32_t tokens() const { return tokens_; }
  // Its tokens, at least.
  bool Fits(const WaitingSequence& sequence) const {
    return sequences_ > 0 && sequence.tokens <= tokens_;
  }
  bool Holds(const WaitingSequence& sequence) const;
  void Take(const WaitingSequence& sequence);

 private:
  // It will run, and does not yet.
  static bool Stays(const WaitingSequence& sequence) {
    return !sequence.running && (sequence.later_tokens > 0 || sequence.generates);
  }

  int32_t decodes_ = 0;
  int32_t prompt_tokens_ = 0;  // most of them, whatever the bucket
  int32_t tokens_ = 0;
  int32_t sequences_ = 0;
  int64_t staying_ = 0;
  int64_t pages_ = 0;
  bool joins_ = true;   // new ones may join
  bool nobody_ = true;  // runs or was taken
};

}  // namespace sluice
