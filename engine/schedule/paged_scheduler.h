// A Scheduler for sequences with KV pages. It derives the next step of each sequence from its
// tokens, the number of them in pages, and the number of available pages.
//
// A prompt begins only if there are pages for all of it, in addition to the pages that prompts in
// progress still need. Generated tokens take pages one by one. If no page is available, the last
// running sequence in queue order is preempted, so that the first sequence always continues.
//
// A sequence that begins with a tail (KvCache) also holds the tail's page until its first step has
// copied it (kv.copied_from).
//
// A step of decodes may compute drafted tokens after the last token of a sequence. The decision is
// made without them, so they take no place, no token and no page of another sequence. They are
// added if no sequence is left waiting and the step has at most `draft_sequences` sequences, each
// of them a decode. The pages of the tokens that were not accepted are released.
//
// Tokens are drafted after the last token of a sequence, so a step that is decided ahead has no
// drafts. If drafts are expected to gain more than the step ahead, and the step could have them,
// the decision ahead is to wait for the end of the running step.
//
// Like Scheduler, it has no clock, lock or thread. The daemon calls it under the runner's lock;
// tests call it on virtual time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/schedule/draft_gain.h"
#include "engine/schedule/kv_cache.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule/sequence.h"

namespace sluice {

class PagedScheduler {
 public:
  struct Options {
    // Whether pages are kept between the steps of a sequence. Otherwise each step computes the
    // whole history again, in pages that are not counted.
    bool keeps_pages = true;
    int32_t pages = 0;       // at least the pages of the longest sequence (CHECK)
    int32_t step_pages = 0;  // maximum pages for new sequences of one step; <= pages
    int32_t page_tokens = 0;
    // The maximum number of positions that a token attends to, including itself, if every layer has
    // a window; 0 if some layer reads all positions. Pages that no later step reads are released.
    int32_t attention_window = 0;
    bool prefix_reuse = true;
    int32_t draft_sequences = 0;  // the most sequences of a step with drafted tokens; 0: no drafts
  };

  // See Scheduler.
  PagedScheduler(const BatchOptions& batch, const Options& options, nanoseconds half_life,
                 std::shared_ptr<const Ladder> ladder, CostModel costs,
                 SchedulerObserver* observer);

  // Queues a new sequence. Requires that `kv.ids` is empty and has capacity for all of its pages.
  void Arrive(PagedSequence* sequence);
  // Ends a waiting or held sequence that is cancelled or has expired.
  void Remove(PagedSequence* sequence);

  // Decides what to run now on a free device. If it decides to launch, the sequences in `batch`
  // have left the queue, and each holds the pages of its next step, [first_position, first_position
  // + tokens); the last `drafted` of them are drafts. Before that, sequences may be preempted:
  // their pages are released, and they compute their history again, except for prefixes that are
  // still cached. Requires that every sequence was returned or ended after its latest step.
  //
  // With `ahead`, the running step may still be in progress, and the decision is for the time after
  // it. The decision is to wait if the pages that the step's sequences hold might be needed, or if
  // drafts are expected to gain more. ReturnAhead queues sequences of that step for such a
  // decision.
  BatchDecision Decide(MonoTime now, bool draining, std::vector<WaitingSequence*>* batch,
                       bool ahead = false);

  // Queues a sequence for the step after its current step, before the current step ends; `draws` is
  // whether the current step draws a token. Requires that pages are kept. If the next decision does
  // not take the sequence, Recall must remove it from the queue.
  void ReturnAhead(PagedSequence* sequence, bool draws);
  void Recall(PagedSequence* sequence);
  // Undoes ReturnAhead for a sequence that a decision has taken, because its earlier step must run
  // again. The sequence keeps its pages. LeaveRewound must follow when the later step has ended or
  // drops the sequence.
  void Rewind(PagedSequence* sequence);
  void LeaveRewound(PagedSequence* sequence);

  // Removes all but the first `drafted` of the drafted tokens of a sequence from its step, before
  // the step begins.
  void KeepDrafts(PagedSequence* sequence, int32_t drafted);
  // Marks the earlier step of a sequence as successful, up to the drafted tokens that were not
  // accepted, and publishes full pages. Return or End must follow. After a failed step, only End
  // may follow.
  void Computed(PagedSequence* sequence);
  // Queues a sequence for its next step, unless a step started ahead already carries it.
  void Return(PagedSequence* sequence);
  // Ends a sequence after a step and releases its pages. If another step carries the sequence, the
  // End after that step releases them.
  void End(PagedSequence* sequence);

  // See Scheduler.
  void Observe(const StepShape& step, double seconds) { scheduler_.Observe(step, seconds); }
  // Learns the time that the device would have waited for the host if the step had not been started
  // ahead.
  void ObserveWait(double seconds);
  void SetLadder(std::shared_ptr<const Ladder> ladder) { scheduler_.SetLadder(std::move(ladder)); }
  const Scheduler& scheduler() const { return scheduler_; }

  const KvCache& kv() const { return kv_; }
  bool reuses_prefixes() const { return prefix_reuse_; }
  struct DraftCounts {
    int64_t drafted = 0;   // drafted tokens of successful steps
    int64_t accepted = 0;  // of these, the tokens that were kept
  };
  struct Counts {
    int64_t preemptions = 0;
    int64_t prefix_tokens = 0;  // tokens of begun prompts that may reuse pages
    int64_t reused_tokens = 0;  // of these, the tokens found in published pages
    std::array<DraftCounts, kDraftKinds> drafts{};
  };
  const Counts& counts() const { return counts_; }

 private:
  static PagedSequence* Paged(WaitingSequence* sequence) {
    return static_cast<PagedSequence*>(sequence);
  }
  static void Run(std::span<WaitingSequence* const> batch);
  // Return the next step of a sequence that holds the pages of its first positions (Continue), or
  // of a sequence that would begin with a prefix (Begin).
  NextStep Continue(const PagedSequence& sequence) const;
  NextStep Begin(PagedSequence* sequence) const;
  NextStep StepFrom(int32_t first, const KvCache::Prefix& held,
                    const PagedSequence& sequence) const;

  // The maximum number of prompt tokens that one step computes of a sequence.
  int32_t ChunkTokens() const { return generating_ > 0 ? chunk_tokens_ : whole_tokens_; }

  bool MissesPages() const;
  void Preempt();
  void ReviseWaiting();
  void Revise(size_t count);
  void Hold(BatchDecision* decision, std::vector<WaitingSequence*>* batch);
  bool MayDraft(std::span<WaitingSequence* const> batch) const;
  bool AwaitsDrafts();
  int32_t DraftsOf(const PagedSequence& sequence, const DraftStep& step) const;
  void AddDrafts(BatchDecision* decision, std::span<WaitingSequence* const> batch);
  int32_t HoldDrafts(PagedSequence* sequence, int32_t wanted);
  bool Attach(PagedSequence* sequence);
  void PutBack(PagedSequence* sequence);
  void Restore(PagedSequence* sequence);
  void Close(PagedSequence* sequence);

  const bool keeps_pages_;
  const bool prefix_reuse_;
  const int32_t chunk_tokens_, whole_tokens_;
  const int32_t step_pages_;
  const int32_t attention_window_;
  const int32_t draft_sequences_;
  const size_t window_;  // length of the front of the queue where prefixes are looked up again
  KvCache kv_;
  Scheduler scheduler_;
  Counts counts_;
  int64_t generating_ = 0;   // the number of running sequences that generate
  double wait_seconds_ = 0;  // the mean of ObserveWait
  uint64_t revised_at_ = 0;  // the version of kv_ at the last ReviseWaiting
  bool recut_ = false;       // whether ChunkTokens has changed since then
  std::vector<WaitingSequence*> front_;
};

}  // namespace sluice
