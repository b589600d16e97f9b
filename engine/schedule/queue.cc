#include "engine/schedule/queue.h"

#include "base/check.h"

namespace sluice {

void SequenceQueue::Push(WaitingSequence* sequence) {
  SLUICE_CHECK(sequence->priority >= 1 && sequence->priority <= kPriorityLevels);
  sequence->overtaken = 0;
  const bool inserted = order_.try_emplace(OrderKey(*sequence), sequence).second;
  SLUICE_CHECK(inserted);
  if (sequence->deadline != MonoTime::max()) {
    deadlines_.try_emplace({sequence->deadline, sequence->ticket}, sequence);
  }
  arrivals_.emplace(sequence->queued, sequence->ticket);
  AddStep(sequence);
}

void SequenceQueue::Remove(const WaitingSequence* sequence) {
  const size_t erased = order_.erase(OrderKey(*sequence));
  SLUICE_CHECK(erased == 1);
  EraseFromIndices(*sequence);
}

void SequenceQueue::Take(std::span<WaitingSequence* const> sequences) {
  size_t taken = 0;
  for (auto it = order_.begin(); taken < sequences.size();) {
    SLUICE_CHECK(it != order_.end());
    if (it->second != sequences[taken]) {
      it->second->overtaken += sequences.size() - taken;
      ++it;
      continue;
    }
    it = order_.erase(it);
    EraseFromIndices(*sequences[taken++]);
  }
}

void SequenceQueue::EraseFromIndices(const WaitingSequence& sequence) {
  if (sequence.deadline != MonoTime::max()) {
    deadlines_.erase({sequence.deadline, sequence.ticket});
  }
  arrivals_.erase({sequence.queued, sequence.ticket});
  EraseStep(sequence);
}

void SequenceQueue::AddStep(WaitingSequence* sequence) {
  tokens_ += sequence->tokens;
  if (!sequence->running) {
    waiting_arrivals_.emplace(sequence->queued, sequence->ticket);
    later_steps_ += sequence->expected_steps - 1;
    fresh_.Insert(OrderKey(*sequence), int64_t{sequence->tokens} + sequence->later_tokens);
    if (sequence->deadline == MonoTime::max()) return;
    due_[sequence->priority - 1].Insert({sequence->deadline, sequence->ticket},
                                        int64_t{sequence->tokens} + sequence->later_tokens);
    return;
  }
  running_.try_emplace(OrderKey(*sequence), sequence);
  running_pages_ += sequence->pages;
}

void SequenceQueue::EraseStep(const WaitingSequence& sequence) {
  tokens_ -= sequence.tokens;
  if (!sequence.running) {
    waiting_arrivals_.erase({sequence.queued, sequence.ticket});
    later_steps_ -= sequence.expected_steps - 1;
    fresh_.Erase(OrderKey(sequence));
    if (sequence.deadline == MonoTime::max()) return;
    due_[sequence.priority - 1].Erase({sequence.deadline, sequence.ticket});
    return;
  }
  running_.erase(OrderKey(sequence));
  running_pages_ -= sequence.pages;
}

void SequenceQueue::Revise(WaitingSequence* sequence, const NextStep& next) {
  const auto it = order_.find(OrderKey(*sequence));
  SLUICE_CHECK(it != order_.end() && it->second == sequence);
  EraseStep(*sequence);
  sequence->SetStep(next);
  AddStep(sequence);
}

void SequenceQueue::Running(std::vector<WaitingSequence*>* out) const {
  out->clear();
  for (const auto& [key, sequence] : running_) out->push_back(sequence);
}

WaitingSequence* SequenceQueue::LastRunning() const {
  return running_.empty() ? nullptr : running_.rbegin()->second;
}

void SequenceQueue::Front(size_t count, std::vector<WaitingSequence*>* out) const {
  out->clear();
  for (auto it = order_.begin(); it != order_.end() && out->size() < count; ++it) {
    out->push_back(it->second);
  }
}

void SequenceQueue::Urgent(MonoTime until, size_t count, std::vector<WaitingSequence*>* out) const {
  out->clear();
  for (auto it = deadlines_.begin();
       it != deadlines_.end() && it->first.first <= until && out->size() < count; ++it) {
    out->push_back(it->second);
  }
}

bool SequenceQueue::Before(const WaitingSequence& a, const WaitingSequence& b) const {
  return OrderKey(a) < OrderKey(b);
}

MonoTime SequenceQueue::EarliestDeadline() const {
  return deadlines_.empty() ? MonoTime::max() : deadlines_.begin()->first.first;
}

WaitingSequence* SequenceQueue::Expired(MonoTime now) const {
  if (EarliestDeadline() > now || deadlines_.empty()) return nullptr;
  return deadlines_.begin()->second;
}

MonoTime SequenceQueue::OldestArrival() const {
  return arrivals_.empty() ? MonoTime::max() : arrivals_.begin()->first;
}

MonoTime SequenceQueue::OldestWaiting() const {
  return waiting_arrivals_.empty() ? MonoTime::max() : waiting_arrivals_.begin()->first;
}

DueTotals::Total SequenceQueue::PromptsDueBy(MonoTime deadline, int priority) const {
  DueTotals::Total prompts;
  for (int level = 1; level <= priority; ++level) {
    const DueTotals::Total due = due_[level - 1].DueBy(deadline);
    prompts.sequences += due.sequences;
    prompts.tokens += due.tokens;
  }
  return prompts;
}

}  // namespace sluice
