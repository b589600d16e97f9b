#include "engine/schedule/paged_scheduler.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/check.h"
#include "engine/schedule/step_budget.h"
#include "engine/schedule/step_shape.h"

namespace sluice {
namespace {

constexpr size_t kMinWindow = 1024;
// The weight of the latest wait in the mean.
constexpr double kWaitWeight = 1.0 / 8;

}  // namespace

PagedScheduler::PagedScheduler(const BatchOptions& batch, const Options& options,
                               nanoseconds half_life, std::shared_ptr<const Ladder> ladder,
                               CostModel costs, SchedulerObserver* observer)
    : keeps_pages_(options.keeps_pages),
      prefix_reuse_(options.keeps_pages && options.prefix_reuse),
      chunk_tokens_(options.keeps_pages ? RunLimitsOf(batch, ladder->largest()).chunk_tokens
                                        : std::numeric_limits<int32_t>::max()),
      whole_tokens_(options.keeps_pages ? ladder->largest().tokens : chunk_tokens_),
      step_pages_(options.step_pages),
      attention_window_(options.keeps_pages ? options.attention_window : 0),
      draft_sequences_(options.keeps_pages ? options.draft_sequences : 0),
      window_(std::max(kMinWindow, size_t{2} * batch.max_batch_sequences)),
      kv_(keeps_pages_ ? options.pages : 0, std::max(options.page_tokens, 1), prefix_reuse_,
          attention_window_ > 0),
      scheduler_(batch, half_life, std::move(ladder), std::move(costs), observer) {
  front_.reserve(window_);
}

void PagedScheduler::Arrive(PagedSequence* sequence) {
  SLUICE_CHECK(sequence->kv.ids.empty() && !(sequence->reuse && sequence->scored));
  sequence->found = {};
  sequence->MoveTo(SequenceState::kQueued);
  if (sequence->generates && generating_++ == 0) recut_ = true;
  sequence->SetStep(Begin(sequence));
  scheduler_.Arrive(sequence);
}

void PagedScheduler::Remove(PagedSequence* sequence) {
  if (sequence->state() == SequenceState::kHeld) return sequence->MoveTo(SequenceState::kDone);
  SLUICE_CHECK(sequence->state() == SequenceState::kQueued);
  scheduler_.Remove(sequence);
  Close(sequence);
}

void PagedScheduler::Close(PagedSequence* sequence) {
  sequence->MoveTo(SequenceState::kDone);
  kv_.Release(&sequence->kv);
  sequence->running = false;
  if (sequence->generates && --generating_ == 0) recut_ = true;
}

void PagedScheduler::Run(std::span<WaitingSequence* const> batch) {
  for (WaitingSequence* sequence : batch) {
    const bool ahead = Paged(sequence)->state() == SequenceState::kQueuedAhead;
    Paged(sequence)->MoveTo(ahead ? SequenceState::kRunningAhead : SequenceState::kRunning);
  }
}

BatchDecision PagedScheduler::Decide(MonoTime now, bool draining,
                                     std::vector<WaitingSequence*>* batch, bool ahead) {
  DecisionTime at{.now = now, .draining = draining, .ahead = ahead};
  if (!keeps_pages_) {
    const BatchDecision decision = scheduler_.Decide(at, batch);
    Run(*batch);
    return decision;
  }
  if (ahead && (MissesPages() || AwaitsDrafts())) {
    batch->clear();
    return {};
  }
  Preempt();
  ReviseWaiting();
  while (true) {
    at.available_pages = kv_.available();
    BatchDecision decision = scheduler_.Decide(at, batch);
    if (!decision.launch) return decision;
    Hold(&decision, batch);
    if (batch->empty()) continue;
    if (!ahead) AddDrafts(&decision, *batch);
    Run(*batch);
    return decision;
  }
}

void PagedScheduler::ObserveWait(double seconds) {
  wait_seconds_ += kWaitWeight * (seconds - wait_seconds_);
}

void PagedScheduler::ReturnAhead(PagedSequence* sequence, bool draws) {
  SLUICE_CHECK(keeps_pages_ && sequence->drafted == 0);
  sequence->MoveTo(SequenceState::kQueuedAhead);
  sequence->in_progress = sequence->step();
  sequence->drawing = draws ? 1 : 0;
  sequence->first_position += sequence->tokens;
  sequence->SetStep(Continue(*sequence));
  scheduler_.Return(sequence);
}

void PagedScheduler::Recall(PagedSequence* sequence) {
  SLUICE_CHECK(sequence->state() == SequenceState::kQueuedAhead);
  scheduler_.Remove(sequence);
  sequence->MoveTo(SequenceState::kRunning);
  Restore(sequence);
}

void PagedScheduler::Rewind(PagedSequence* sequence) {
  sequence->MoveTo(SequenceState::kRewound);
  Restore(sequence);
}

void PagedScheduler::LeaveRewound(PagedSequence* sequence) {
  SLUICE_CHECK(sequence->state() == SequenceState::kRewound);
  sequence->MoveTo(SequenceState::kRunning);
}

// Makes the step in progress the sequence's next step again.
void PagedScheduler::Restore(PagedSequence* sequence) {
  sequence->SetStep(sequence->in_progress);
  sequence->drawing = 0;
}

void PagedScheduler::Computed(PagedSequence* sequence) {
  int32_t computed = sequence->first_position + sequence->tokens;
  if (sequence->state() == SequenceState::kRunningAhead) {
    computed = sequence->in_progress.first_position + sequence->in_progress.tokens;
  } else {
    SLUICE_CHECK(sequence->state() == SequenceState::kRunning);
    SLUICE_CHECK(sequence->rejected >= 0 && sequence->rejected <= sequence->drafted);
    computed -= sequence->rejected;
    sequence->first_position = computed;
    if (sequence->drafted > 0) {
      kv_.ReleaseAfter(computed, &sequence->kv);
      DraftCounts& counts = counts_.drafts[static_cast<int>(sequence->draft_kind)];
      counts.drafted += sequence->drafted;
      counts.accepted += sequence->drafted - sequence->rejected;
    }
    sequence->drafted = 0;
    sequence->rejected = 0;
  }
  kv_.Copied(&sequence->kv);
  if (keeps_pages_ && sequence->reuse) kv_.Publish(sequence->history, computed, &sequence->kv);
  // Later steps begin at `computed`, including steps that are already in progress.
  if (attention_window_ > 0 && computed >= attention_window_) {
    kv_.ReleaseBefore(computed - attention_window_ + 1, &sequence->kv);
  }
}

void PagedScheduler::Return(PagedSequence* sequence) {
  if (sequence->state() == SequenceState::kRunningAhead) {
    sequence->drawing = 0;
    return sequence->MoveTo(SequenceState::kRunning);
  }
  sequence->MoveTo(SequenceState::kQueued);
  sequence->SetStep(keeps_pages_ ? Continue(*sequence) : Begin(sequence));
  scheduler_.Return(sequence);
}

void PagedScheduler::End(PagedSequence* sequence) {
  SLUICE_CHECK(sequence->state() != SequenceState::kQueued);
  if (sequence->state() == SequenceState::kRunningAhead) {
    return sequence->MoveTo(SequenceState::kEnding);
  }
  Close(sequence);
}

// Returns whether a sequence might have to yield its pages, or the head might have to wait, for
// pages that will soon be free.
bool PagedScheduler::MissesPages() const {
  return kv_.available() < step_pages_ || scheduler_.MustYield(kv_.available()) != nullptr;
}

void PagedScheduler::Preempt() {
  while (WaitingSequence* waiting = scheduler_.MustYield(kv_.available())) {
    PagedSequence* const sequence = Paged(waiting);
    kv_.Release(&sequence->kv);
    scheduler_.Revise(sequence, Begin(sequence));
    ++sequence->preemptions;
    ++counts_.preemptions;
  }
}

// Looks up the prefixes of waiting sequences again, for the part of the queue that a batch may use.
// A sequence that moves into this window later has an older estimate. If prompts are now cut
// differently, looks at the whole queue.
void PagedScheduler::ReviseWaiting() {
  if (recut_) {
    Revise(scheduler_.queue().size());
  } else if (revised_at_ != kv_.version()) {
    Revise(window_);
  }
  recut_ = false;
  revised_at_ = kv_.version();
}

void PagedScheduler::Revise(size_t count) {
  scheduler_.queue().Front(count, &front_);
  for (WaitingSequence* waiting : front_) {
    PagedSequence* const sequence = Paged(waiting);
    const NextStep next = waiting->running ? Continue(*sequence) : Begin(sequence);
    if (next.first_position == waiting->first_position && next.pages == waiting->pages &&
        next.tokens == waiting->tokens) {
      continue;
    }
    scheduler_.Revise(waiting, next);
  }
}

// Makes the batch hold its pages. Prefixes are held first, because a page taken for one sequence
// may be part of the prefix of another. Sequences whose step was decided from an old estimate
// return to the queue.
void PagedScheduler::Hold(BatchDecision* decision, std::vector<WaitingSequence*>* batch) {
  size_t kept = 0;
  for (WaitingSequence* sequence : *batch) {
    if (sequence->running || Attach(Paged(sequence))) {
      (*batch)[kept++] = sequence;
    } else {
      PutBack(Paged(sequence));
    }
  }
  if (kept == 0) return batch->clear();
  if (kept < batch->size()) {
    batch->resize(kept);
    decision->size = {};
    for (const WaitingSequence* sequence : *batch) decision->size.Add(sequence->tokens);
    decision->bucket = *scheduler_.ladder()->Choose(decision->size);
  }
  for (WaitingSequence* sequence : *batch) {
    const bool extended =
        kv_.Extend(sequence->first_position + sequence->tokens, &Paged(sequence)->kv);
    SLUICE_CHECK(extended);
  }
}

// Returns whether a step of only these sequences may have drafts.
bool PagedScheduler::MayDraft(std::span<WaitingSequence* const> batch) const {
  return std::ssize(batch) <= draft_sequences_ &&
         std::ranges::all_of(batch, [](const auto* each) { return IsDecode(*each); });
}

// Returns whether only sequences of the running step are queued, and they are expected to gain more
// from drafts after their newest tokens, which are not known yet, than from a step that starts
// ahead. Each is expected to have as many drafted tokens as after its newest known token.
bool PagedScheduler::AwaitsDrafts() {
  const SequenceQueue& queue = scheduler_.queue();
  if (queue.size() > draft_sequences_) return false;
  queue.Front(draft_sequences_, &front_);
  const auto count = static_cast<int32_t>(front_.size());
  const BatchSize size{.tokens = count, .sequences = count, .longest = 1};
  const Bucket* const bucket = scheduler_.ladder()->Choose(size);
  if (bucket == nullptr || !MayDraft(front_)) return false;
  const bool in_progress = std::ranges::all_of(front_, [](WaitingSequence* each) {
    return Paged(each)->state() == SequenceState::kQueuedAhead;
  });
  if (!in_progress) return false;
  const DraftStep step{.size = size,
                       .shape = EstimatedShapeOf(front_, *bucket),
                       .expected_tokens = static_cast<double>(count),
                       .wait_seconds = wait_seconds_};
  return std::ranges::any_of(
      front_, [&](WaitingSequence* each) { return DraftsOf(*Paged(each), step) > 0; });
}

int32_t PagedScheduler::DraftsOf(const PagedSequence& sequence, const DraftStep& step) const {
  const Ladder& ladder = *scheduler_.ladder();
  const int32_t room = ladder.largest().tokens - step.size.tokens;
  return WorthwhileDrafts(step, sequence, std::min(sequence.drafts, room), ladder,
                          scheduler_.costs());
}

void PagedScheduler::AddDrafts(BatchDecision* decision, std::span<WaitingSequence* const> batch) {
  if (!scheduler_.queue().empty() || !MayDraft(batch)) return;
  const Ladder& ladder = *scheduler_.ladder();
  DraftStep step{.size = decision->size,
                 .shape = EstimatedShapeOf(batch, decision->bucket),
                 .expected_tokens = static_cast<double>(batch.size())};
  for (WaitingSequence* waiting : batch) {
    PagedSequence* const sequence = Paged(waiting);
    const int32_t drafted = HoldDrafts(sequence, DraftsOf(*sequence, step));
    if (drafted == 0) continue;
    step = step.With(*sequence, drafted, ladder);
    sequence->drafted = drafted;
    sequence->tokens += drafted;
    sequence->sampled_rows += drafted;
  }
  decision->size = step.size;
  decision->bucket = step.shape.bucket;
}

void PagedScheduler::KeepDrafts(PagedSequence* sequence, int32_t drafted) {
  const int32_t removed = sequence->drafted - drafted;
  SLUICE_CHECK(removed >= 0 && sequence->state() == SequenceState::kRunning);
  sequence->drafted = drafted;
  sequence->tokens -= removed;
  sequence->sampled_rows -= removed;
  kv_.ReleaseAfter(sequence->first_position + sequence->tokens, &sequence->kv);
}

// Makes the sequence hold the pages of up to `wanted` drafted tokens, and returns their number.
int32_t PagedScheduler::HoldDrafts(PagedSequence* sequence, int32_t wanted) {
  const int32_t end = sequence->first_position + 1;
  if (wanted <= 0) return 0;
  if (kv_.Extend(end + wanted, &sequence->kv)) return wanted;
  const int64_t held = std::ssize(sequence->kv.ids) * int64_t{kv_.page_tokens()};
  return static_cast<int32_t>(std::min<int64_t>(wanted, held - end));
}

// Makes the sequence hold its prefix. Returns false if the prefix differs from the prefix used in
// the decision.
bool PagedScheduler::Attach(PagedSequence* sequence) {
  const NextStep next = Begin(sequence);
  if (next.first_position != sequence->first_position || next.pages > sequence->pages) {
    return false;
  }
  if (!sequence->reuse) return true;
  kv_.Attach(sequence->found, &sequence->kv);
  if (sequence->preemptions == 0 && prefix_reuse_) {
    sequence->reused_tokens = next.first_position;
    counts_.prefix_tokens += std::ssize(sequence->history);
    counts_.reused_tokens += next.first_position;
  }
  return true;
}

void PagedScheduler::PutBack(PagedSequence* sequence) {
  const int32_t overtaken = sequence->overtaken;
  sequence->SetStep(Begin(sequence));
  scheduler_.Return(sequence);
  sequence->overtaken = overtaken;
}

NextStep PagedScheduler::Continue(const PagedSequence& sequence) const {
  NextStep next = StepFrom(sequence.first_position,
                           {.pages = static_cast<int32_t>(sequence.kv.ids.size())}, sequence);
  next.running = true;
  return next;
}

// If a sequence may need every page, it cannot hold a tail's page in addition.
NextStep PagedScheduler::Begin(PagedSequence* sequence) const {
  KvCache::Prefix& found = sequence->found;
  const bool has_room = kv_.PagesFor(std::ssize(sequence->history)) < kv_.pages();
  if (sequence->reuse) {
    found =
        kv_.Find(sequence->history, sequence->kv.root, found, has_room ? sequence->kv.shared : 0);
  }
  return StepFrom(kv_.TokensOf(found), found, *sequence);
}

// Returns the step of a sequence whose positions [0, first) are in the pages `held`. It does not
// hold the idle pages among them yet. The step requires the pages of all its tokens, although it
// computes only a chunk: a prompt that begins without them is soon preempted, and most of its work
// is lost.
NextStep PagedScheduler::StepFrom(int32_t first, const KvCache::Prefix& held,
                                  const PagedSequence& sequence) const {
  const int32_t length = std::ssize(sequence.history) + sequence.drawing;
  SLUICE_CHECK(first < length);
  const bool scored = sequence.scored && sequence.drawing == 0;
  const int32_t tokens = std::min(length - first, ChunkTokens());
  const int32_t end = first + tokens;
  NextStep next{.first_position = first,
                .tokens = tokens,
                .later_tokens = length - end,
                .sampled_rows = scored ? tokens : 0,
                .pages = 0,
                .running = false};
  if (end == length && scored != sequence.sampled_end) {
    next.sampled_rows += sequence.sampled_end ? 1 : -1;
  }
  if (keeps_pages_) {
    SLUICE_CHECK(kv_.PagesFor(length) <= kv_.pages());
    next.pages = kv_.PagesFor(length) - held.pages + held.idle;
  }
  return next;
}

}  // namespace sluice
