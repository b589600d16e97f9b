#include "engine/schedule/packed_former.h"

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

// A batch that serves the most urgent sequence in time is preferred to the best batch if its rate
// is at least this share of the best rate.
constexpr double kRescueShare = 0.5;

// Estimates have errors of a few percent. If two batches are about equally good, the larger one is
// taken: if the cost per token is constant, this saves steps.
constexpr double kClearlyBetter = 1.02;

// If empty bucket rows cost nothing, a small batch is taken if its rate is at least this share of
// the best rate, because its sequences end sooner and later arrivals wait for less time.
constexpr double kNearlyBest = 0.95;

// Batches of at most this time are not made smaller. The work between two steps takes some tens of
// microseconds, which the cost of a step does not contain, so smaller ones would have lower rates.
constexpr double kShortStepSeconds = 1e-3;

nanoseconds Duration(double seconds) { return nanoseconds(std::llround(seconds * 1e9)); }

// Returns useful tokens per second, or per step if costs are unknown.
double Rate(double tokens, double seconds) { return seconds > 0 ? tokens / seconds : tokens; }

}  // namespace

BatchDecision PackedFormer::Form(const SequenceQueue& queue, const FormerInputs& inputs,
                                 MonoTime now, std::vector<WaitingSequence*>* batch) {
  batch->clear();
  if (queue.empty()) return {};
  const Bucket& largest = inputs.ladder->largest();
  const MonoTime urgent_until =
      now + 2 * Duration(inputs.costs->EstimateDrain(largest.tokens, largest));
  candidates_.Load(queue, inputs, urgent_until);

  TrialBatch* best = BestBatch(inputs, now, queue.EarliestDeadline() <= urgent_until);
  if (best == nullptr) best = BestBatch(inputs, now, false);
  if (best == nullptr) {  // a running step's sequences hold the needed pages
    queue.Front(1, batch);
    SLUICE_CHECK(candidates_.budget().Fits(*batch->front()));
    batch->clear();
    return {};
  }
  Assemble(queue, best, batch);

  BatchDecision launch{.launch = true, .size = best->size, .bucket = best->bucket};
  const bool full =
      best->size.tokens == largest.tokens || best->size.sequences == largest.sequences;
  if (std::ssize(*batch) < queue.size() || full) {
    launch.trigger = Trigger::kFull;
  } else if (inputs.draining) {
    launch.trigger = Trigger::kDrain;
  } else if (max_delay_ > nanoseconds::zero() && queue.running() == 0) {
    return WaitOrLaunch(launch, queue.OldestArrival() + max_delay_, inputs, now, batch);
  }
  return launch;
}

BatchDecision PackedFormer::WaitOrLaunch(BatchDecision launch, MonoTime due,
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
            .wait_reason = WaitReason::kMoreRequests};
  }
  return launch;
}

// Returns the best batch. Returns nullptr if deadlines count and every sequence would be late, or
// if a running step's sequences hold the pages that all others need.
PackedFormer::TrialBatch* PackedFormer::BestBatch(const FormerInputs& inputs, MonoTime now,
                                                  bool heed_deadlines) {
  best_.rate = 0;
  rescue_.rate = 0;
  const WaitingSequence* const first = heed_deadlines ? MostUrgent(inputs, now) : nullptr;
  const std::span<const Bucket> buckets = inputs.ladder->buckets();
  const bool prefers_small = inputs.costs->rows().batch_only();
  double best_rate = 0;
  const auto least_rate = [&] {
    const bool shortens = prefers_small && best_.size.tokens > kShortStepSeconds * best_.rate;
    return shortens ? kNearlyBest * best_rate : kClearlyBetter * best_.rate;
  };
  int32_t most = inputs.ladder->largest().tokens;
  if (const Bucket* all = inputs.ladder->Choose(SizeOfAll())) most = all->tokens;
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    if (bucket->tokens > most) continue;
    const double useful = bucket->tokens;
    const double bound = Rate(
        useful, inputs.costs->Estimate({.bucket = *bucket, .computed_tokens = bucket->tokens}));
    const bool may_rescue = first != nullptr && bound > rescue_.rate;
    if (bound <= least_rate() && !may_rescue) continue;

    MonoTime end = MonoTime::min();
    if (heed_deadlines) {
      end = now + Duration(inputs.costs->EstimateDrain(bucket->tokens, *bucket));
    }
    if (!Compose(inputs, *bucket, end)) continue;
    // Buckets between the two would hold the same sequences.
    if (!heed_deadlines) most = trial_.bucket.tokens;
    const size_t decodes = candidates_.decodes().size();
    const bool rescues =
        first != nullptr && trial_.members.size() > decodes && trial_.members[decodes] == first;
    if (rescues && trial_.rate > rescue_.rate) rescue_ = trial_;
    best_rate = std::max(best_rate, trial_.rate);
    if (trial_.rate > least_rate()) std::swap(best_, trial_);
  }
  if (rescue_.rate > 0 && rescue_.rate >= kRescueShare * best_.rate) return &rescue_;
  return best_.rate > 0 ? &best_ : nullptr;
}

// Returns the total size of the decodes and all other candidates, limited to one step.
BatchSize PackedFormer::SizeOfAll() const {
  const int32_t decodes = std::ssize(candidates_.decodes());
  const int32_t ordered = std::ssize(candidates_.ordered());
  int64_t tokens = 0;
  for (const WaitingSequence* sequence : candidates_.ordered()) tokens += sequence->tokens;
  tokens = std::min<int64_t>(tokens, candidates_.budget().tokens());
  return {.tokens = decodes + static_cast<int32_t>(tokens),
          .sequences = decodes + ordered,
          .longest = 1};
}

// Returns the first urgent sequence that can still be in time, or nullptr.
const WaitingSequence* PackedFormer::MostUrgent(const FormerInputs& inputs, MonoTime now) const {
  for (WaitingSequence* sequence : candidates_.ordered().first(candidates_.urgent())) {
    WaitingSequence* const alone[] = {sequence};
    const Bucket* bucket = inputs.ladder->Choose(
        {.tokens = sequence->tokens, .sequences = 1, .longest = sequence->tokens});
    const double cost = inputs.costs->Estimate(EstimatedShapeOf(alone, *bucket));
    if (now + Duration(cost) <= sequence->deadline) return sequence;
  }
  return nullptr;
}

// Sets trial_ to the batch for `bucket`: the decodes and the fitting candidates whose deadline is
// not before `end`. Returns false if the batch would be empty, or would contain only decodes
// although candidates wait. Such a batch is so cheap that it would always win.
bool PackedFormer::Compose(const FormerInputs& inputs, const Bucket& bucket, MonoTime end) {
  budget_ = candidates_.BudgetIn(bucket);
  if (!budget_.valid()) return false;
  trial_.members.clear();
  trial_.size = {};
  for (WaitingSequence* sequence : candidates_.decodes()) trial_.Add(sequence);
  const size_t decodes = trial_.members.size();
  const size_t cut = Cut(end);
  if (trial_.members.empty()) return false;
  if (trial_.members.size() == decodes && !candidates_.ordered().empty()) return false;
  if (cut < candidates_.ordered().size() && !budget_.empty()) Fill(cut, end);
  trial_.bucket = *inputs.ladder->Choose(trial_.size);
  trial_.rate = Rate(trial_.size.tokens,
                     inputs.costs->Estimate(EstimatedShapeOf(trial_.members, trial_.bucket)));
  return true;
}

// Adds the longest prefix of the candidates and returns where it ends.
size_t PackedFormer::Cut(MonoTime end) {
  const std::span<WaitingSequence* const> ordered = candidates_.ordered();
  passing_ = candidates_.urgent();
  for (size_t i = 0; i < ordered.size(); ++i) {
    if (ordered[i]->deadline < end) continue;
    if (!budget_.CanTake(*ordered[i]) || passing_ >= candidates_.MayPass(i)) return i;
    Add(i);
    if (i >= candidates_.first_passing()) ++passing_;
  }
  return ordered.size();
}

// Adds candidates after `begin` in the window that still fit, the largest first. Except by running
// sequences, no sequence is overtaken more often than it allows; each added sequence counts as
// overtaking all sequences that it may have overtaken.
void PackedFormer::Fill(size_t begin, MonoTime end) {
  const std::span<WaitingSequence* const> ordered = candidates_.ordered();
  by_size_.clear();
  allowance_.resize(ordered.size());
  int32_t least = std::numeric_limits<int32_t>::max();
  for (size_t i = begin; i < std::min(begin + BatchCandidates::kWindow, ordered.size()); ++i) {
    const WaitingSequence& sequence = *ordered[i];
    if (sequence.deadline < end) continue;
    allowance_[i] =
        sequence.running ? candidates_.MayPass(i) : std::min(least, candidates_.MayPass(i));
    if (budget_.CanTake(sequence) && passing_ < allowance_[i]) {
      // In descending order, the earlier of two equal sequences comes first.
      by_size_.push_back(static_cast<uint64_t>(sequence.tokens) << 32 | (UINT32_MAX - i));
    }
    least = std::min(least, candidates_.Allowance(sequence));
  }
  std::sort(by_size_.begin(), by_size_.end(), std::greater<>());
  for (const uint64_t key : by_size_) {
    const size_t i = UINT32_MAX - static_cast<uint32_t>(key);
    if (passing_ >= allowance_[i] || !budget_.CanTake(*ordered[i])) continue;
    Add(i);
    ++passing_;
  }
}

void PackedFormer::Add(size_t index) {
  WaitingSequence* const sequence = candidates_.ordered()[index];
  trial_.Add(sequence);
  budget_.Take(*sequence);
}

void PackedFormer::TrialBatch::Add(WaitingSequence* sequence) {
  members.push_back(sequence);
  size.Add(sequence->tokens);
}

// Writes the members of `best` to `batch` in the order of the queue.
void PackedFormer::Assemble(const SequenceQueue& queue, TrialBatch* best,
                            std::vector<WaitingSequence*>* batch) {
  const auto before = [&](const auto* a, const auto* b) { return queue.Before(*a, *b); };
  const auto ordered = best->members.begin() + candidates_.decodes().size();
  std::sort(ordered, best->members.end(), before);
  std::merge(best->members.begin(), ordered, ordered, best->members.end(),
             std::back_inserter(*batch), before);
}

}  // namespace sluice
