// A Scheduler whose sequences have KV pages: what they compute next follows from their tokens, what of
// these is in pages, and how many pages are left.
//
// A prompt is begun only when there are pages for all of it, and those of prompts in progress are left
// to them. What is generated after it takes pages as it goes; when these run out the last one in the
// queue's order is preempted, so that the first one always goes on.
//
// Pure, as Scheduler is; the daemon drives it under the runner's lock, tests on virtual time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/schedule/kv_cache.h"
#include "engine/schedule/scheduler.h"

namespace sluice {

// Belongs to its owner, who sets what is not said to be the scheduler's and outlives its stay.
struct PagedSequence : WaitingSequence {
  // All its tokens, the prompt and those generated; all but the last were computed when a generating
  // one returns. The owner keeps it up to date between the end of a step and Return.
  std::span<const int32_t> history;
  bool reuse = true;  // may begin with pages of others and leave its own to others
  // The logits of every position are wanted, and so none may be skipped: not together with `reuse`.
  // Its owner ends this, after a step and before Return, once it has them.
  bool scored = false;
  bool sampled_end = true;  // those of the last one are

  // The scheduler's, as the fields of its next step are, but for kv.root.
  SequencePages kv;
  KvCache::Prefix found;      // that it could begin with, when last looked up
  int32_t reused_tokens = 0;  // positions that it began with when it ran first
  int32_t preemptions = 0;
};

class PagedScheduler {
 public:
  struct Options {
    // Pages are kept from one step of a sequence to the next. Else each step computes the whole
    // history again, in pages that nobody accounts for.
    bool keeps_pages = true;
    int32_t pages = 0;       // at least what the longest sequence takes (CHECK)
    int32_t step_pages = 0;  // the most that fresh sequences of one step take; of these, at least
    int32_t page_tokens = 0;
    bool prefix_reuse = true;
  };

  // See Scheduler.
  PagedScheduler(const BatchOptions& batch, const Options& options, nanoseconds half_life,
                 std::shared_ptr<const Ladder> ladder, CostModel costs,
                 SchedulerObserver* observer);

  // A new sequence: queued; `kv.ids` is empty and has room for all its pages.
  void Arrive(PagedSequence* sequence);
  // Cancelled or expired while it waits; lets go of its pages at once.
  void Remove(PagedSequence* sequence);

  // What to run now on a free device. When launching, `batch` has left the queue and each holds the
  // pages of its next step, [first_position, first_position + tokens). Sequences may be preempted
  // before: their pages are gone and they will compute all of their history again, but what of it is
  // still found. No sequence is between a step and its Return, but those of a step that a decision runs
  // `ahead` of: it is made only where the pages that these still hold are not missed.
  BatchDecision Decide(MonoTime now, bool draining, std::vector<WaitingSequence*>* batch,
                       bool ahead = false);

  // Its step ended well, and what it wrote may be used: first_position moves behind it. Publishes full
  // pages. Any other step is followed by End alone.
  void Computed(PagedSequence* sequence);
  // Back for its next step, after Computed.
  void Return(PagedSequence* sequence);
  // It will not run again, after any step: lets go of its pages.
  void End(PagedSequence* sequence);

  // As Scheduler's.
  void Observe(const StepShape& step, double seconds) { scheduler_.Observe(step, seconds); }
  void SetLadder(std::shared_ptr<const Ladder> ladder) { scheduler_.SetLadder(std::move(ladder)); }
  const Scheduler& scheduler() const { return scheduler_; }

  const KvCache& kv() const { return kv_; }
  struct Counts {
    int64_t preemptions = 0;
    int64_t prefix_tokens = 0;  // of prompts that ran first, and might be found
    int64_t reused_tokens = 0;  // of these, that were
  };
  const Counts& counts() const { return counts_; }

 private:
  using NextStep = SequenceQueue::NextStep;

  // The step of a sequence that holds the pages of its first positions, or of one that would begin
  // with a prefix.
  NextStep Continue(const PagedSequence& sequence) const;
  NextStep Begin(PagedSequence* sequence) const;
  NextStep StepFrom(int32_t first, const KvCache::Prefix& held,
                    const PagedSequence& sequence) const;
  static void Set(const NextStep& next, PagedSequence* sequence);

  // That one step computes of a prompt.
  int32_t ChunkTokens() const { return generating_ > 0 ? chunk_tokens_ : whole_tokens_; }

  bool MissesPages() const;
  void Preempt();
  void ReviseWaiting();
  void Revise(size_t count);
  void Hold(BatchDecision* decision, std::vector<WaitingSequence*>* batch);
  bool Attach(PagedSequence* sequence);
  void PutBack(PagedSequence* sequence);

  const bool keeps_pages_;
  const bool prefix_reuse_;
  const int32_t chunk_tokens_, whole_tokens_;
  const int32_t step_pages_;
  const size_t window_;  // from the front of the queue, in which what is found is looked up again
  KvCache kv_;
  Scheduler scheduler_;
  Counts counts_;
  int64_t generating_ = 0;   // sequences in progress that do
  uint64_t revised_at_ = 0;  // version of kv_
  bool recut_ = false;       // ChunkTokens changed since, were it for a moment
  std::vector<WaitingSequence*> front_;
};

}  // namespace sluice
