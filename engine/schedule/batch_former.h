// The decision what to run next, and when.
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

namespace sluice {

enum class Trigger {  // why a batch was launched now
  kFull,              // more waits than rides, or the largest bucket is full
  kDelay,             // a sequence waited max_queue_delay
  kDeadline,          // a sequence would miss its deadline by waiting on
  kIdle,              // nothing is gained by waiting
  kDrain,             // shutting down
};
constexpr auto EnumNamesOf(Trigger) {
  using enum Trigger;
  return EnumNameTable<Trigger>({{kFull, "full"},
                                 {kDelay, "delay"},
                                 {kDeadline, "deadline"},
                                 {kIdle, "idle"},
                                 {kDrain, "drain"}});
}

enum class WaitReason {
  kEmpty,    // nothing waits
  kCompany,  // those expected until wait_until save more device time than the delay costs
};
constexpr auto EnumNamesOf(WaitReason) {
  using enum WaitReason;
  return EnumNameTable<WaitReason>({{kEmpty, "empty"}, {kCompany, "company"}});
}

// How fast sequences arrive, decayed; all 0 when unknown.
struct ArrivalRate {
  double sequences_per_second = 0;
  double tokens_per_second = 0;
};

// What a decision is made from beside the queue and the time. Owned by the caller.
struct FormerInputs {
  const Ladder* ladder = nullptr;
  const CostModel* costs = nullptr;
  ArrivalRate arrivals{};
  bool draining = false;  // nothing more will arrive: do not wait
  // KV pages that are free or may be taken from the prefix cache; at least running_pages() of the queue.
  int32_t available_pages = std::numeric_limits<int32_t>::max();
};

struct BatchDecision {
  bool launch = false;
  // When launching.
  BatchSize size{};
  Bucket bucket{};  // the ladder's choice for `size`
  Trigger trigger = Trigger::kIdle;
  // When waiting: decide again at this time, or earlier if something arrives.
  MonoTime wait_until = MonoTime::max();
  WaitReason wait_reason = WaitReason::kEmpty;

  bool operator==(const BatchDecision&) const = default;
};

// Decides for a free device. Pure: the same arguments give the same decision; an object holds nothing
// but its options and scratch, so that a decision allocates nothing once it has seen one as large.
// One thread uses it. Whatever the policy,
//   * the batch is not empty when launching, fits the bucket, and has the head of the queue in it, or,
//     in its place, a sequence whose deadline is near, or the first one that will not expire before
//     the batch ends, or, while the head lacks pages or a place to stay, running ones;
//   * no sequence is passed over by more than max_overtakes in all, except one that will expire so,
//     and except by running ones, which count nevertheless: so the pages that a head lacks come free;
//   * running sequences whose next step is one token all ride, where the policy keeps pages;
//   * every queued sequence fits the ladder alone (CHECK for the head).
class BatchFormer {
 public:
  virtual ~BatchFormer() = default;
  // Replaces `batch` by what to launch, in the order of the queue.
  virtual BatchDecision Form(const SequenceQueue& queue, const FormerInputs& inputs, MonoTime now,
                             std::vector<WaitingSequence*>* batch) = 0;
};

// See CutAndFill and, for the others, BaselineFormer.
std::unique_ptr<BatchFormer> MakeBatchFormer(const BatchOptions& options);

}  // namespace sluice
