// A sequence and its states: the list of tokens that the scheduler queues, batches and ends.
//
// A sequence is a row of a request: its prompt and its generated tokens. A step computes the next
// tokens, and the sequence returns until none are left.
//
// SequenceState is the state of a sequence. PagedScheduler performs every transition, in the method
// named in the list, and PagedSequence::MoveTo checks it. In the runner, StepPipeline decides which
// method to call when a step begins or ends, and RequestTable does when a request ends.
//
//   1. kHeld: the sequence exists, but is not in the scheduler. It stays held while another
//      sequence of its request computes the shared prefix.
//   2. Arrive, kHeld -> kQueued: it waits in the queue for its next step. It may be preempted
//      there; it then loses its pages but keeps its state.
//   3. Decide, kQueued -> kRunning: it holds the pages of a step that carries it.
//   4. Return, kRunning -> kQueued: the step succeeded and more tokens must be computed.
//   5. End, kRunning -> kDone: the step succeeded and was the last one, or the request failed.
//   6. Remove, kHeld or kQueued -> kDone: the request was cancelled, has expired or failed, or it
//      needs no step.
//
// A step may be started before the previous one has ended. Then two steps can carry a sequence:
//
//   7. ReturnAhead, kRunning -> kQueuedAhead: it is queued for the next step while one carries it.
//   8. Recall, kQueuedAhead -> kRunning: the decision did not take it into a step.
//   9. Decide, kQueuedAhead -> kRunningAhead: two steps carry it.
//  10. Return, kRunningAhead -> kRunning: the earlier step succeeded. The later one carries it.
//  11. End, kRunningAhead -> kEnding: the sequence ended with one of the two steps. Its result in
//      the other one is dropped.
//  12. End, kEnding -> kDone: the other step has ended.
//  13. Rewind, kRunningAhead -> kRewound: the earlier step must run again. The result of the
//      sequence in the later one is dropped.
//  14. LeaveRewound, kRewound -> kRunning: the later step has ended, or no longer carries it.
#pragma once

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "engine/model/speculation.h"
#include "engine/schedule/attention_reach.h"
#include "engine/schedule/kv_cache.h"
#include "engine/schedule_values.h"

namespace sluice {

enum class SequenceState : uint8_t {
  kHeld,
  kQueued,
  kRunning,
  kQueuedAhead,
  kRunningAhead,
  kEnding,
  kRewound,
  kDone,
};

// Returns whether a sequence in state `from` may move to state `to`.
bool MayMove(SequenceState from, SequenceState to);

// A step of a sequence: the fields of WaitingSequence of the same names.
struct NextStep {
  int32_t first_position = 0;
  int32_t tokens = 0;
  int32_t later_tokens = 0;
  int32_t sampled_rows = 1;
  int32_t pages = 0;
  bool running = false;
};

// A sequence as seen by policies and SequenceQueue. While it is queued, only the queue changes its
// fields.
struct WaitingSequence {
  uint64_t ticket = 0;  // unique number of its arrival; kept when it returns for another step
  int priority = kDefaultPriority;
  uint32_t caller = 0;          // hash of Request::turn_owner; 0 if callers are not identified
  uint64_t adapter = 0;         // the number of its low-rank adapter; 0: none
  int32_t first_position = 0;   // the first position that its next step computes
  int32_t position_offset = 0;  // added to a position to select position-wise weights
  AttentionReach reach = {};    // of its model
  int32_t tokens = 0;           // the number of tokens that its next step computes
  int32_t later_tokens = 0;     // prompt tokens left for steps after the next one
  int32_t sampled_rows = 1;     // in its next step
  int32_t pages = 0;            // available KV pages needed by its tokens and later tokens
  // Whether it holds KV pages from an earlier step, so that others wait for them until it ends.
  bool running = false;
  bool generates = false;  // whether it returns after its prompt, for one step per token
  // The number of step batches that it may be part of; its prompt counts as one. For reviews of the
  // ladder.
  int32_t expected_steps = 1;
  MonoTime queued{};  // arrival
  // Added to its arrival for the queue's order; see FairOrder. May be negative.
  nanoseconds deferred{0};
  MonoTime deadline = MonoTime::max();
  // The number of sequences after it that were taken since its last Push. Kept by the queue.
  int32_t overtaken = 0;

  void SetStep(const NextStep& next) {
    first_position = next.first_position;
    tokens = next.tokens;
    later_tokens = next.later_tokens;
    sampled_rows = next.sampled_rows;
    pages = next.pages;
    running = next.running;
  }
  NextStep step() const {
    return {first_position, tokens, later_tokens, sampled_rows, pages, running};
  }
};

// A sequence with KV pages and a state. Its owner sets the fields of WaitingSequence that do not
// describe the next step, and the fields below up to `kv`. It must exist while it is in the
// scheduler.
struct PagedSequence : WaitingSequence {
  PagedSequence() = default;
  PagedSequence(const PagedSequence&) = delete;  // the scheduler points to it
  PagedSequence& operator=(const PagedSequence&) = delete;

  // All of its tokens, prompt and generated. When a generating sequence returns, all but the last
  // are computed. The owner updates it between the end of a step and Return.
  std::span<const int32_t> history;
  bool reuse = true;  // whether it may share pages with others
  // Whether the logits of every position are needed, so that no position may be skipped; excludes
  // `reuse`. The owner clears this after the step with the last of them, before Return.
  bool scored = false;
  bool sampled_end = true;  // whether the logits of its last position are needed
  // The number of drafted tokens that may follow its history in its next step, and the estimated
  // probability that one is accepted if the drafted tokens before it are.
  int32_t drafts = 0;
  double acceptance = 0;
  DraftKind draft_kind = DraftKind::kNgram;
  // The estimated seconds that drafting takes before the step: for each drafted token, and once.
  double draft_seconds = 0, first_draft_seconds = 0;
  // The drafted tokens of its step that were not accepted. The owner sets it before Computed.
  int32_t rejected = 0;

  // PagedScheduler sets the following fields, except kv.root and kv.shared, and the fields of the
  // next step.
  SequencePages kv;
  // The step that carries it, while the fields of the next step describe the step after that. Valid
  // from ReturnAhead until that step has ended or the sequence is rewound.
  NextStep in_progress;
  int32_t drafted = 0;        // the drafted tokens at the end of its step; Computed sets it to 0
  int32_t drawing = 0;        // tokens after `history` that the step in progress draws: 0 or 1
  KvCache::Prefix found;      // the cached prefix, as last looked up
  int32_t reused_tokens = 0;  // length of the cached prefix when it first began
  int32_t preemptions = 0;

  SequenceState state() const { return state_; }
  // Requires MayMove (CHECK).
  void MoveTo(SequenceState to);
  // Whether its result in the step that carries it is dropped.
  bool is_void() const {
    return state_ == SequenceState::kEnding || state_ == SequenceState::kRewound;
  }

 private:
  SequenceState state_ = SequenceState::kHeld;
};

}  // namespace sluice
