// Decides what to run next, and when.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/enum_names.h"
#include "engine/bucket.h"
#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/queue.h"
#include "engine/schedule_values.h"

namespace sluice {

// The inputs of a decision, except the queue and the time. The caller owns all pointers.
struct FormerInputs {
  const Ladder* ladder = nullptr;
  const CostModel* costs = nullptr;
  ArrivalRate arrivals{};
  bool draining = false;  // no more requests will arrive, so do not wait
  // The number of KV pages that are free or can be taken from the prefix cache; at least the
  // queue's running_pages().
  int32_t available_pages = std::numeric_limits<int32_t>::max();
};

struct BatchDecision {
  bool launch = false;
  // If launch.
  BatchSize size{};
  Bucket bucket{};  // the bucket that the ladder chooses for `size`
  Trigger trigger = Trigger::kIdle;
  // If not launch: decide again at this time, or earlier if something arrives.
  MonoTime wait_until = MonoTime::max();
  WaitReason wait_reason = WaitReason::kEmpty;

  bool operator==(const BatchDecision&) const = default;
};

// Decides which batch a free device runs. The same arguments give the same decision. An object
// holds only its options and scratch memory, so a decision allocates only if it is larger than all
// earlier ones. Not thread-safe. For every policy:
//   * nothing is launched while sequences of a running step hold the pages that all others need;
//   * a launched batch is not empty, fits its bucket and contains the head of the queue. Instead of
//     the head it may contain a sequence whose deadline is near, or the first sequence that does
//     not expire before the batch ends. While the head lacks pages or a place among the running
//     sequences, running sequences may run without it;
//   * no sequence is overtaken by more than max_overtakes others in total, unless it expires before
//     the batch ends. Running sequences may always overtake but are counted, so that the pages that
//     the head lacks become free;
//   * if the policy keeps pages, every running sequence whose next step is one token is in the
//     batch;
//   * every queued sequence fits the ladder by itself (CHECK for the head).
class BatchFormer {
 public:
  virtual ~BatchFormer() = default;
  // Replaces `batch` by the sequences to launch, in queue order. It is empty if nothing is
  // launched.
  virtual BatchDecision Form(const SequenceQueue& queue, const FormerInputs& inputs, MonoTime now,
                             std::vector<WaitingSequence*>* batch) = 0;
};

// Returns a PackedFormer, or a BaselineFormer for the other policies.
std::unique_ptr<BatchFormer> MakeBatchFormer(const BatchOptions& options);

}  // namespace sluice
