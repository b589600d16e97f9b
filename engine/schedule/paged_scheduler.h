// A Scheduler whose sequences have KV pages: the next step of each follows from its tokens, from
// how many of them are in pages, and from how many pages are available.
//
// A prompt is begun only if there are pages for all of it besides those that prompts in progress
// still need. Generated tokens take pages one by one. When no page is available, the last running
// sequence in the queue's order is preempted, so that the first always continues.
//
// A sequence that begins with a tail (KvCache) holds the tail's page as well until its first step
// has copied it: kv.copied_from.
//
// Like Scheduler it has no clock, lock or thread; the daemon drives it under the runner's lock,
// tests on virtual time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/schedule/kv_cache.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/sequence.h"

namespace sluice {

class PagedScheduler {
 public:
  struct Options {
    // Whether pages are kept from one step of a sequence to the next. Otherwise each step computes
    // the whole history again, in pages that are not accounted for.
    bool keeps_pages = true;
    int32_t pages = 0;       // at least what the longest sequence needs (CHECK)
    int32_t step_pages = 0;  // the pages that new sequences of one step may take; <= pages
    int32_t page_tokens = 0;
    // The most positions that a token attends to, itself included, if that is so in every layer; 0
    // if some layer reads all. Pages that no later step reads are given back.
    int32_t attention_window = 0;
    bool prefix_reuse = true;
  };

  // See Scheduler.
  PagedScheduler(const BatchOptions& batch, const Options& options, nanoseconds half_life,
                 std::shared_ptr<const Ladder> ladder, CostModel costs,
                 SchedulerObserver* observer);

  // Queues a new sequence. Requires that `kv.ids` is empty and has capacity for all its pages.
  void Arrive(PagedSequence* sequence);
  // Ends a sequence that is cancelled or has expired while it waits or is held.
  void Remove(PagedSequence* sequence);

  // Decides what to run now on a free device. If the decision is to launch, `batch` has left the
  // queue and each sequence holds the pages of its next step, [first_position, first_position +
  // tokens). Sequences may be preempted before that: their pages are released and they compute
  // their history again, except for prefixes that are still found. Requires that every sequence was
  // returned or ended after its latest step.
  //
  // With `ahead`, sequences of the running step may still be in it, and the decision is for the
  // time after that step. It is to wait if the pages that those sequences hold might be needed.
  // ReturnAhead puts sequences of that step into the queue for such a decision.
  BatchDecision Decide(MonoTime now, bool draining, std::vector<WaitingSequence*>* batch,
                       bool ahead = false);

  // Queues a sequence for the step after the one that it is in, before that one ends; `draws` says
  // whether that one draws a token. Requires that pages are kept. If the next decision does not
  // take the sequence, Recall must take it back.
  void ReturnAhead(PagedSequence* sequence, bool draws);
  void Recall(PagedSequence* sequence);
  // Undoes ReturnAhead for a sequence that a decision has taken, because its earlier step must run
  // again. Its pages stay. LeaveRewound must follow when the later step has ended or drops it.
  void Rewind(PagedSequence* sequence);
  void LeaveRewound(PagedSequence* sequence);

  // Marks the earlier step of a sequence as successful: full pages are published. Return or End
  // must follow. After a step that failed only End may follow.
  void Computed(PagedSequence* sequence);
  // Queues a sequence for its next step, unless a step started ahead carries it already.
  void Return(PagedSequence* sequence);
  // Ends a sequence after a step: releases its pages, unless another step carries it, whose End
  // releases them.
  void End(PagedSequence* sequence);

  // See Scheduler.
  void Observe(const StepShape& step, double seconds) { scheduler_.Observe(step, seconds); }
  void SetLadder(std::shared_ptr<const Ladder> ladder) { scheduler_.SetLadder(std::move(ladder)); }
  const Scheduler& scheduler() const { return scheduler_; }

  const KvCache& kv() const { return kv_; }
  bool reuses_prefixes() const { return prefix_reuse_; }
  struct Counts {
    int64_t preemptions = 0;
    int64_t prefix_tokens = 0;  // tokens of begun prompts that might have been found
    int64_t reused_tokens = 0;  // of these, those that were found
  };
  const Counts& counts() const { return counts_; }

 private:
  static PagedSequence* Paged(WaitingSequence* sequence) {
    return static_cast<PagedSequence*>(sequence);
  }
  static void Run(std::span<WaitingSequence* const> batch);
  // Returns the next step of a sequence that holds the pages of its first positions (Continue), or
  // of one that would begin with a prefix (Begin).
  NextStep Continue(const PagedSequence& sequence) const;
  NextStep Begin(PagedSequence* sequence) const;
  NextStep StepFrom(int32_t first, const KvCache::Prefix& held,
                    const PagedSequence& sequence) const;

  // The most tokens that one step computes of a prompt.
  int32_t ChunkTokens() const { return generating_ > 0 ? chunk_tokens_ : whole_tokens_; }

  bool MissesPages() const;
  void Preempt();
  void ReviseWaiting();
  void Revise(size_t count);
  void Hold(BatchDecision* decision, std::vector<WaitingSequence*>* batch);
  bool Attach(PagedSequence* sequence);
  void PutBack(PagedSequence* sequence);
  void Restore(PagedSequence* sequence);
  void Close(PagedSequence* sequence);

  const bool keeps_pages_;
  const bool prefix_reuse_;
  const int32_t chunk_tokens_, whole_tokens_;
  const int32_t step_pages_;
  const int32_t attention_window_;
  const size_t window_;  // the length of the queue's front in which prefixes are looked up again
  KvCache kv_;
  Scheduler scheduler_;
  Counts counts_;
  int64_t generating_ = 0;   // the number of running sequences that generate
  uint64_t revised_at_ = 0;  // the version of kv_ at the last ReviseWaiting
  bool recut_ = false;       // whether ChunkTokens has changed since
  std::vector<WaitingSequence*> front_;
};

}  // namespace sluice
