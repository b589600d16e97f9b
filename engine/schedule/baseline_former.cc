#include "engine/schedule/baseline_former.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "engine/schedule/step_shape.h"
#include "engine/schedule/waiting.h"

namespace sluice {
namespace {

BatchSize With(BatchSize size, int32_t sequence_tokens) {
  size.Add(sequence_tokens);
  return size;
}

// Returns the width of the column in which the sequence would run by itself, or 0 if no column is
// wide enough.
int32_t ColumnOf(const Ladder& ladder, const WaitingSequence& sequence) {
  const Bucket* bucket =
      ladder.Choose({.tokens = sequence.tokens, .sequences = 1, .longest = sequence.tokens});
  return bucket == nullptr ? 0 : bucket->positions;
}

// Cuts `waiting` to its longest prefix that fits the ladder.
BatchSize CutToFit(const Ladder& ladder, std::vector<WaitingSequence*>* waiting) {
  BatchSize size{};
  for (const WaitingSequence* sequence : *waiting) {
    const BatchSize larger = With(size, sequence->tokens);
    if (ladder.Choose(larger) == nullptr) break;
    size = larger;
  }
  SLUICE_CHECK(size.sequences > 0);
  waiting->resize(size.sequences);
  return size;
}

// Cuts `batch` to the largest number of rows that fill a bucket completely.
BatchSize CutToPreferred(const Ladder& ladder, std::vector<WaitingSequence*>* batch) {
  int64_t rows = 1;
  for (const Bucket& bucket : ladder.buckets()) {
    if (bucket.sequences > std::ssize(*batch)) continue;
    rows = std::max<int64_t>(rows, bucket.sequences);
  }
  batch->resize(rows);
  BatchSize size{};
  for (const WaitingSequence* sequence : *batch) size.Add(sequence->tokens);
  return size;
}

}  // namespace

BatchDecision BaselineFormer::Form(const SequenceQueue& queue, const FormerInputs& inputs,
                                   MonoTime now, std::vector<WaitingSequence*>* batch) {
  batch->clear();
  if (queue.empty()) return {};
  const Ladder& ladder = *inputs.ladder;
  BatchSize size = Gather(queue, ladder, batch);
  Trigger trigger = Trigger::kIdle;
  if (std::ssize(*batch) < queue.size() || ladder.Choose(With(size, 1)) == nullptr) {
    trigger = Trigger::kFull;
  } else if (inputs.draining) {
    trigger = Trigger::kDrain;
  } else if (max_delay_ > nanoseconds::zero()) {
    const double cost = inputs.costs->Estimate(EstimatedShapeOf(*batch, *ladder.Choose(size)));
    const MonoTime last_start = LastStart(*batch, cost);
    const MonoTime until = std::min(queue.OldestArrival() + max_delay_, last_start);
    if (until > now) {
      batch->clear();
      return {.size = size, .wait_until = until, .wait_reason = WaitReason::kMoreRequests};
    }
    trigger = last_start <= now ? Trigger::kDeadline : Trigger::kDelay;
  }
  if (policy_ == PolicyKind::kStaticPadded && trigger != Trigger::kDelay) {
    size = CutToPreferred(ladder, batch);
  }
  return {.launch = true, .size = size, .bucket = *ladder.Choose(size), .trigger = trigger};
}

BatchSize BaselineFormer::Gather(const SequenceQueue& queue, const Ladder& ladder,
                                 std::vector<WaitingSequence*>* batch) const {
  if (policy_ == PolicyKind::kPaddedBuckets) {
    queue.Front(kWindow, batch);
    KeepColumn(ladder, batch);
  } else {
    queue.Front(ladder.max_sequences(), batch);
  }
  return CutToFit(ladder, batch);
}

void BaselineFormer::KeepColumn(const Ladder& ladder,
                                std::vector<WaitingSequence*>* waiting) const {
  const int32_t column = ColumnOf(ladder, *waiting->front());
  int64_t kept = 0;
  // The number of sequences that may be kept before an excluded sequence would be overtaken too
  // often.
  auto most = std::numeric_limits<int64_t>::max();
  for (WaitingSequence* sequence : *waiting) {
    if (kept >= most) break;
    if (ColumnOf(ladder, *sequence) == column) {
      (*waiting)[kept++] = sequence;
    } else {
      most = std::min(most, kept + max_overtakes_ - sequence->overtaken);
    }
  }
  waiting->resize(kept);
}

}  // namespace sluice
