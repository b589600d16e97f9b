#include "engine/schedule/cut_and_fill.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

#include "base/check.h"
#include "engine/schedule/step_shape.h"
#include "engine/schedule/waiting.h"

namespace sluice {
namespace {

// A step in time for the most urgent is preferred to a better one down to this share of its rate.
constexpr double kRescueShare = 0.5;

// Estimates err by some percent. Of batches that are as good as each other the larger is taken: where
// tokens cost the same in any number, it spares steps.
constexpr double kClearlyBetter = 1.02;

nanoseconds Duration(double seconds) { return nanoseconds(std::llround(seconds * 1e9)); }

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
  lineup_.Load(queue, inputs, urgent_until);

  Candidate* best = Best(inputs, now, queue.EarliestDeadline() <= urgent_until);
  if (best == nullptr) best = Best(inputs, now, false);
  SLUICE_CHECK(best != nullptr);
  Assemble(queue, best, batch);

  BatchDecision launch{.launch = true, .size = best->size, .bucket = best->bucket};
  const bool full =
      best->size.tokens == largest.tokens || best->size.sequences == largest.sequences;
  if (batch->size() < queue.size() || full) {
    launch.trigger = Trigger::kFull;
  } else if (inputs.draining) {
    launch.trigger = Trigger::kDrain;
  } else if (max_delay_ > nanoseconds::zero() && queue.running() == 0) {
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

// The best candidate; nullptr when every sequence would be late and deadlines are heeded.
CutAndFill::Candidate* CutAndFill::Best(const FormerInputs& inputs, MonoTime now,
                                        bool heed_deadlines) {
  best_.rate = 0;
  rescue_.rate = 0;
  const WaitingSequence* const first = heed_deadlines ? MostUrgent(inputs, now) : nullptr;
  const std::span<const Bucket> buckets = inputs.ladder->buckets();
  int32_t most = inputs.ladder->largest().tokens;
  if (const Bucket* all = inputs.ladder->Choose(SizeOfAll())) most = all->tokens;
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
    if (!Compose(inputs, *bucket, end)) continue;
    // Those in between hold the same.
    if (!heed_deadlines) most = trial_.bucket.tokens;
    const size_t decodes = lineup_.decodes().size();
    const bool rescues =
        first != nullptr && trial_.members.size() > decodes && trial_.members[decodes] == first;
    if (rescues && trial_.rate > rescue_.rate) rescue_ = trial_;
    if (trial_.rate > kClearlyBetter * best_.rate) std::swap(best_, trial_);
  }
  if (rescue_.rate > 0 && rescue_.rate >= kRescueShare * best_.rate) return &rescue_;
  return best_.rate > 0 ? &best_ : nullptr;
}

// Of the decodes and all riders, as far as one step may take them.
BatchSize CutAndFill::SizeOfAll() const {
  const auto decodes = static_cast<int32_t>(lineup_.decodes().size());
  const auto riders = static_cast<int32_t>(lineup_.riders().size());
  int64_t tokens = 0;
  for (const WaitingSequence* sequence : lineup_.riders()) tokens += sequence->tokens;
  tokens = std::min<int64_t>(tokens, lineup_.room().tokens());
  return {.tokens = decodes + static_cast<int32_t>(tokens),
          .sequences = decodes + riders,
          .longest = 1};
}

// The first urgent one that can still be in time; nullptr when there is none.
const WaitingSequence* CutAndFill::MostUrgent(const FormerInputs& inputs, MonoTime now) const {
  for (WaitingSequence* sequence : lineup_.riders().first(lineup_.urgent())) {
    WaitingSequence* const alone[] = {sequence};
    const Bucket* bucket = inputs.ladder->Choose(
        {.tokens = sequence->tokens, .sequences = 1, .longest = sequence->tokens});
    const double cost = inputs.costs->Estimate(EstimatedShapeOf(alone, *bucket));
    if (now + Duration(cost) <= sequence->deadline) return sequence;
  }
  return nullptr;
}

// Makes trial_ the candidate of `bucket`: the decodes and, of the riders whose deadline is not before
// `end`, as many as fit. False when there is nobody, when riders wait and all would be late, or when the
// first of those in time does not fit: decodes alone, cheap as they are, would always win.
bool CutAndFill::Compose(const FormerInputs& inputs, const Bucket& bucket, MonoTime end) {
  room_ = lineup_.RoomIn(bucket);
  if (!room_.valid()) return false;
  trial_.members.clear();
  trial_.size = {};
  for (WaitingSequence* sequence : lineup_.decodes()) trial_.Add(sequence);
  const size_t decodes = trial_.members.size();
  const size_t cut = Cut(end);
  if (trial_.members.empty()) return false;
  if (trial_.members.size() == decodes && !lineup_.riders().empty()) return false;
  if (cut < lineup_.riders().size() && !room_.empty()) Fill(cut, end);
  trial_.bucket = *inputs.ladder->Choose(trial_.size);
  trial_.rate = Rate(trial_.size.tokens,
                     inputs.costs->Estimate(EstimatedShapeOf(trial_.members, trial_.bucket)));
  return true;
}

// Adds the longest prefix of the riders and returns where it ends.
size_t CutAndFill::Cut(MonoTime end) {
  const std::span<WaitingSequence* const> riders = lineup_.riders();
  passing_ = static_cast<int32_t>(lineup_.urgent());
  for (size_t i = 0; i < riders.size(); ++i) {
    if (riders[i]->deadline < end) continue;
    if (!room_.Holds(*riders[i]) || passing_ >= lineup_.MayPass(i)) return i;
    Add(i);
    if (i >= lineup_.first_passing()) ++passing_;
  }
  return riders.size();
}

// Adds what still fits from the window behind `begin`, the largest first. No sequence is passed by
// more than it allows, but by running ones: each of those added counts for all that it may have passed.
void CutAndFill::Fill(size_t begin, MonoTime end) {
  const std::span<WaitingSequence* const> riders = lineup_.riders();
  by_size_.clear();
  allowance_.resize(riders.size());
  int32_t least = std::numeric_limits<int32_t>::max();
  for (size_t i = begin; i < std::min(begin + Lineup::kWindow, riders.size()); ++i) {
    const WaitingSequence& sequence = *riders[i];
    if (sequence.deadline < end) continue;
    allowance_[i] = sequence.running ? lineup_.MayPass(i) : std::min(least, lineup_.MayPass(i));
    if (room_.Holds(sequence) && passing_ < allowance_[i]) {
      // Of equal ones the earlier comes first in descending order.
      by_size_.push_back(static_cast<uint64_t>(sequence.tokens) << 32 | (UINT32_MAX - i));
    }
    least = std::min(least, lineup_.Allowance(sequence));
  }
  std::sort(by_size_.begin(), by_size_.end(), std::greater<>());
  for (const uint64_t key : by_size_) {
    const size_t i = UINT32_MAX - static_cast<uint32_t>(key);
    if (passing_ >= allowance_[i] || !room_.Holds(*riders[i])) continue;
    Add(i);
    ++passing_;
  }
}

void CutAndFill::Add(size_t rider) {
  WaitingSequence* const sequence = lineup_.riders()[rider];
  trial_.Add(sequence);
  room_.Take(*sequence);
}

void CutAndFill::Candidate::Add(WaitingSequence* sequence) {
  members.push_back(sequence);
  size.tokens += sequence->tokens;
  ++size.sequences;
  size.longest = std::max(size.longest, sequence->tokens);
}

// The members of `best` in the order of the queue.
void CutAndFill::Assemble(const SequenceQueue& queue, Candidate* best,
                          std::vector<WaitingSequence*>* batch) {
  const auto before = [&](const auto* a, const auto* b) { return queue.Before(*a, *b); };
  const auto riders = best->members.begin() + static_cast<std::ptrdiff_t>(lineup_.decodes().size());
  std::sort(riders, best->members.end(), before);
  std::merge(best->members.begin(), riders, riders, best->members.end(), std::back_inserter(*batch),
             before);
}

}  // namespace sluice
