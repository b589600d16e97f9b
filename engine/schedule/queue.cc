#include "engine/schedule/queue.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace sluice {

void SequenceQueue::Push(WaitingSequence* sequence) {
  const bool inserted = order_.try_emplace({sequence->priority, sequence->ticket}, sequence).second;
  SLUICE_CHECK(inserted);
  if (sequence->deadline != MonoTime::max()) {
    deadlines_.try_emplace({sequence->deadline, sequence->ticket}, sequence);
  }
  tokens_ += sequence->tokens;
}

void SequenceQueue::Remove(const WaitingSequence* sequence) {
  const size_t erased = order_.erase({sequence->priority, sequence->ticket});
  SLUICE_CHECK(erased == 1);
  deadlines_.erase({sequence->deadline, sequence->ticket});
  tokens_ -= sequence->tokens;
}

void SequenceQueue::Front(size_t count, std::vector<WaitingSequence*>* out) const {
  out->clear();
  for (auto it = order_.begin(); it != order_.end() && out->size() < count; ++it) {
    out->push_back(it->second);
  }
}

MonoTime SequenceQueue::EarliestDeadline() const {
  return deadlines_.empty() ? MonoTime::max() : deadlines_.begin()->first.first;
}

WaitingSequence* SequenceQueue::Expired(MonoTime now) const {
  if (deadlines_.empty() || deadlines_.begin()->first.first > now) return nullptr;
  return deadlines_.begin()->second;
}

MonoTime SequenceQueue::OldestArrival() const {
  // Tickets are given in order of arrival, so the first of each priority is its oldest.
  MonoTime oldest = MonoTime::max();
  for (auto it = order_.begin(); it != order_.end();
       it = order_.upper_bound({it->first.first, std::numeric_limits<uint64_t>::max()})) {
    oldest = std::min(oldest, it->second->queued);
  }
  return oldest;
}

absl::Status AdmissionBudget::Take(int64_t tokens) {
  if (requests_ >= options_.max_requests) {
    return absl::ResourceExhaustedError(
        absl::StrCat("queue.max_requests of ", options_.max_requests, " requests reached"));
  }
  if (tokens > options_.max_tokens - tokens_) {
    return absl::ResourceExhaustedError(absl::StrCat("queue.max_tokens of ", options_.max_tokens,
                                                     " tokens reached: ", tokens_,
                                                     " are queued, the request has ", tokens));
  }
  ++requests_;
  tokens_ += tokens;
  return absl::OkStatus();
}

void AdmissionBudget::Return(int64_t tokens) {
  --requests_;
  tokens_ -= tokens;
  SLUICE_CHECK(requests_ >= 0 && tokens_ >= 0);
}

}  // namespace sluice
