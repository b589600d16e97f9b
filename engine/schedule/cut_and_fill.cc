#include "engine/schedule/cut_and_fill.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

#include "engine/schedule/step_shape.h"
#include "engine/schedule/waiting.h"
#include "kernels/check.h"

namespace sluice {
namespace {

// A step in time for the most urgent is preferred to a better one down to this share of its rate.
constexpr double kRescueShare = 0.5;

// Estimates err by some percent. Of batches that are as good as each other the larger is taken: where
// tokens cost the same in any number, it spares steps.
constexpr double kClearlyBetter = 1.02;

nanoseconds Duration(double seconds) { return nanoseconds(std::llround(seconds * 1e9)); }

bool HasRoom(const Bucket& bucket, const BatchSize& size, int32_t tokens) {
  return size.sequences < bucket.sequences && tokens <= bucket.tokens - size.tokens;
}

// Useful tokens per second; per step while costs are unknown.
double Rate(double tokens, double seconds) { return seconds > 0 ? tokens / seconds : tokens; }

}  // namespace

BatchDecision CutAndFill::Form(const SequenceQueue& queue, const FormerInputs& inputs, MonoTime now,
                               std::vector<WaitingSequence*>* batch) {
  batch->clear();
  if (queue.empty()) return {};
  const Bucket& largest = inputs.ladder->largest();
  const MonoTime urgent_until =
      now + 2 * Duration(inputs.costs->EstimateDrain(largest.tokens, largest));
  const bool urgent = queue.EarliestDeadline() <= urgent_until;
  LoadOrder(queue, largest, urgent);
  if (urgent) MoveUrgentFirst(queue, urgent_until);

  const Candidate* best = Best(inputs, now, urgent);
  if (best == nullptr) best = Best(inputs, now, false);
  SLUICE_CHECK(best != nullptr);
  batch->assign(best->members.begin(), best->members.end());
  std::sort(batch->begin(), batch->end(),
            [&](const auto* a, const auto* b) { return queue.Before(*a, *b); });

  BatchDecision launch{.launch = true, .size = best->size, .bucket = best->bucket};
  if (batch->size() < queue.size() || !HasRoom(largest, best->size, 1)) {
    launch.trigger = Trigger::kFull;
  } else if (inputs.draining) {
    launch.trigger = Trigger::kDrain;
  } else if (max_delay_ > nanoseconds::zero()) {
    return WaitOrLaunch(launch, queue.OldestArrival() + max_delay_, inputs, now, batch);
  }
  return launch;
}

BatchDecision CutAndFill::WaitOrLaunch(BatchDecision launch, MonoTime due,
                                       const FormerInputs& inputs, MonoTime now,
                                       std::vector<WaitingSequence*>* batch) {
  const double cost = inputs.costs->Estimate(EstimatedShapeOf(*batch, launch.bucket));
  const MonoTime last_start = LastStart(*batch, cost);
  if (last_start <= now) {
    launch.trigger = Trigger::kDeadline;
  } else if (due <= now) {
    launch.trigger = Trigger::kDelay;
  } else if (WorthWaiting(*batch, launch, inputs)) {
    batch->clear();
    return {.size = launch.size,
            .wait_until = std::min(due, last_start),
            .wait_reason = WaitReason::kCompany};
  }
  return launch;
}

// As much of the queue as the largest bucket may take, and the window; all within reach if `urgent`.
void CutAndFill::LoadOrder(const SequenceQueue& queue, const Bucket& largest, bool urgent) {
  BatchSize size{};
  size_t prefix = 0;
  for (size_t count = urgent ? kUrgentReach : 2 * kWindow;; count *= 2) {
    queue.Front(count, &order_);
    while (prefix < order_.size() && HasRoom(largest, size, order_[prefix]->tokens)) {
      size.tokens += order_[prefix++]->tokens;
      ++size.sequences;
    }
    if (order_.size() < count || prefix + kWindow <= count) break;
  }
  window_end_ = std::min(prefix + kWindow, order_.size());
  jumped_ = 0;
}

// Moves the urgent ones of order_, the earliest deadline first, to its head, as many as those ahead of
// them allow.
void CutAndFill::MoveUrgentFirst(const SequenceQueue& queue, MonoTime until) {
  allowance_.resize(order_.size());
  int32_t least = std::numeric_limits<int32_t>::max();
  for (size_t i = 0; i < order_.size(); ++i) {
    allowance_[i] = least;
    least = std::min(least, max_overtakes_ - order_[i]->overtaken);
  }
  const auto before = [&](const auto* a, const auto* b) { return queue.Before(*a, *b); };
  queue.Urgent(until, kMostUrgent, &urgent_);
  others_.assign(order_.begin(), order_.end());
  order_.clear();
  for (WaitingSequence* sequence : urgent_) {
    const auto it = std::lower_bound(others_.begin(), others_.end(), sequence, before);
    if (it == others_.end()) continue;
    if (allowance_[static_cast<size_t>(it - others_.begin())] >
        static_cast<int32_t>(order_.size())) {
      order_.push_back(sequence);
    }
  }
  jumped_ = order_.size();
  urgent_.assign(order_.begin(), order_.end());
  std::sort(urgent_.begin(), urgent_.end(), before);
  others_.resize(window_end_);
  std::set_difference(others_.begin(), others_.end(), urgent_.begin(), urgent_.end(),
                      std::back_inserter(order_), before);
  window_end_ = order_.size();
}

// The best candidate; nullptr when every sequence would be late and deadlines are heeded.
const CutAndFill::Candidate* CutAndFill::Best(const FormerInputs& inputs, MonoTime now,
                                              bool heed_deadlines) {
  best_.rate = 0;
  rescue_.rate = 0;
  const WaitingSequence* const first = heed_deadlines ? MostUrgent(inputs, now) : nullptr;
  const std::span<const Bucket> buckets = inputs.ladder->buckets();
  int32_t most = inputs.ladder->largest().tokens;
  if (const Bucket* all = inputs.ladder->Choose(WindowSize())) most = all->tokens;
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    if (bucket->tokens > most) continue;
    const double useful = bucket->tokens;
    const double bound = Rate(
        useful, inputs.costs->Estimate({.bucket = *bucket, .computed_tokens = bucket->tokens}));
    const bool may_rescue = first != nullptr && bound > rescue_.rate;
    if (bound <= kClearlyBetter * best_.rate && !may_rescue) continue;

    MonoTime end = MonoTime::min();
    if (heed_deadlines) {
      end = now + Duration(inputs.costs->EstimateDrain(bucket->tokens, *bucket));
    }
    Compose(inputs, *bucket, end);
    if (trial_.members.empty()) continue;
    // Those in between hold the same.
    if (!heed_deadlines) most = trial_.bucket.tokens;
    if (trial_.members.front() == first && trial_.rate > rescue_.rate) rescue_ = trial_;
    if (trial_.rate > kClearlyBetter * best_.rate) std::swap(best_, trial_);
  }
  if (rescue_.rate > 0 && rescue_.rate >= kRescueShare * best_.rate) return &rescue_;
  return best_.rate > 0 ? &best_ : nullptr;
}

BatchSize CutAndFill::WindowSize() const {
  BatchSize size{.longest = 1};
  for (size_t i = 0; i < window_end_; ++i) {
    size.tokens += order_[i]->tokens;
    ++size.sequences;
  }
  return size;
}

// The first urgent one that can still be in time; nullptr when there is none.
const WaitingSequence* CutAndFill::MostUrgent(const FormerInputs& inputs, MonoTime now) const {
  for (size_t i = 0; i < jumped_; ++i) {
    WaitingSequence* const alone[] = {order_[i]};
    const Bucket* bucket = inputs.ladder->Choose(
        {.tokens = alone[0]->tokens, .sequences = 1, .longest = alone[0]->tokens});
    const double cost = inputs.costs->Estimate(EstimatedShapeOf(alone, *bucket));
    if (now + Duration(cost) <= alone[0]->deadline) return alone[0];
  }
  return nullptr;
}

// Makes trial_ the candidate of `bucket`, of those whose deadline is not before `end`.
void CutAndFill::Compose(const FormerInputs& inputs, const Bucket& bucket, MonoTime end) {
  trial_.members.clear();
  trial_.size = {};
  const size_t cut = Cut(bucket, end);
  if (trial_.members.empty()) return;
  if (cut < window_end_ && HasRoom(bucket, trial_.size, 1)) Fill(bucket, cut, end);
  trial_.bucket = *inputs.ladder->Choose(trial_.size);
  trial_.rate = Rate(trial_.size.tokens,
                     inputs.costs->Estimate(EstimatedShapeOf(trial_.members, trial_.bucket)));
}

// Adds the longest prefix of order_ and returns where it ends.
size_t CutAndFill::Cut(const Bucket& bucket, MonoTime end) {
  for (size_t i = 0; i < window_end_; ++i) {
    if (order_[i]->deadline < end) continue;
    if (!HasRoom(bucket, trial_.size, order_[i]->tokens)) return i;
    Add(order_[i]);
  }
  return window_end_;
}

// Adds what still fits from the window behind `begin`, the largest first. No sequence is passed by
// more than it allows: each of those added counts for all that it may have passed.
void CutAndFill::Fill(const Bucket& bucket, size_t begin, MonoTime end) {
  by_size_.clear();
  allowance_.resize(window_end_);
  int32_t least = std::numeric_limits<int32_t>::max();
  for (size_t i = begin; i < std::min(begin + kWindow, window_end_) && least > 0; ++i) {
    const WaitingSequence& sequence = *order_[i];
    if (sequence.deadline < end) continue;
    allowance_[i] = least;
    if (HasRoom(bucket, trial_.size, sequence.tokens)) {
      // Of equal ones the earlier comes first in descending order.
      by_size_.push_back(static_cast<uint64_t>(sequence.tokens) << 32 | (UINT32_MAX - i));
    }
    least = std::min(least, max_overtakes_ - sequence.overtaken);
  }
  std::sort(by_size_.begin(), by_size_.end(), std::greater<>());
  auto passing = static_cast<int32_t>(jumped_);
  for (const uint64_t key : by_size_) {
    const size_t i = UINT32_MAX - static_cast<uint32_t>(key);
    if (passing >= allowance_[i] || !HasRoom(bucket, trial_.size, order_[i]->tokens)) continue;
    Add(order_[i]);
    ++passing;
  }
}

void CutAndFill::Add(WaitingSequence* sequence) {
  trial_.members.push_back(sequence);
  trial_.size.tokens += sequence->tokens;
  ++trial_.size.sequences;
  trial_.size.longest = std::max(trial_.size.longest, sequence->tokens);
}

}  // namespace sluice
