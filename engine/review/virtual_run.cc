#include "engine/review/virtual_run.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/schedule/draft_gain.h"

namespace sluice {
namespace {

class VirtualRun {
 public:
  VirtualRun(std::span<const Arrival> arrivals, const VirtualRunOptions& options,
             Scheduler* scheduler)
      : arrivals_(arrivals),
        options_(options),
        scheduler_(*scheduler),
        admission_(options.admission),
        live_(arrivals.size()) {
    const bool generates = std::any_of(arrivals.begin(), arrivals.end(),
                                       [](const Arrival& arrival) { return arrival.steps > 1; });
    if (options.recompute) return;
    chunk_tokens_ = generates && options.chunk_tokens > 0 ? options.chunk_tokens
                                                          : scheduler->ladder()->largest().tokens;
  }

  VirtualResult Run() {
    if (arrivals_.empty()) return result_;
    now_ = arrivals_.front().at;
    if (options_.on_timer) timer_ = now_;
    AdvanceTo(now_);
    while (Busy()) Step();
    result_.span_seconds = Seconds(last_end_ - arrivals_.front().at);
    return result_;
  }

 private:
  struct Live {
    WaitingSequence sequence;
    int32_t steps_left = 0;
    int32_t drafted = 0;         // tokens of the step in progress
    double expected_tokens = 0;  // drafted tokens that are right, not yet counted as accepted
    RequestLoad load{};          // these two are used if there is an admission control
    Admission admission{};
  };

  bool Busy() const {
    return next_ < arrivals_.size() || !scheduler_.queue().empty() || Deferring();
  }
  bool Deferring() const { return admission_ != nullptr && !admission_->backlog().empty(); }
  MonoTime EarliestDeadline() const {
    const MonoTime queued = scheduler_.queue().EarliestDeadline();
    return Deferring() ? std::min(queued, admission_->backlog().EarliestDeadline()) : queued;
  }

  MonoTime NextArrival() const {
    return next_ < arrivals_.size() ? arrivals_[next_].at : MonoTime::max();
  }

  // Processes every event up to `time`, in order of time.
  void AdvanceTo(MonoTime time) {
    while (std::min(NextArrival(), timer_) <= time) {
      if (timer_ < NextArrival()) {
        const MonoTime next = options_.on_timer(timer_, &scheduler_);
        SLUICE_CHECK(next > timer_);
        timer_ = next;
      } else {
        Arrive();
      }
    }
    now_ = time;
  }

  void Arrive() {
    const Arrival& arrival = arrivals_[next_];
    SLUICE_CHECK(next_ == 0 || arrivals_[next_ - 1].at <= arrival.at);
    live_[next_] = {.sequence = {.ticket = next_,
                                 .priority = arrival.priority,
                                 .caller = arrival.caller,
                                 .adapter = arrival.adapter,
                                 .generates = arrival.steps > 1 && !options_.recompute,
                                 .expected_steps = arrival.steps,
                                 .queued = arrival.at,
                                 .deadline = arrival.deadline},
                    .steps_left = arrival.steps};
    WaitingSequence* const sequence = &live_[next_++].sequence;
    SetNextChunk(arrival.tokens, sequence);
    if (Admit(arrival, *sequence)) scheduler_.Arrive(sequence);
  }

  // Returns whether the arrival enters the queue now.
  bool Admit(const Arrival& arrival, const WaitingSequence& sequence) {
    if (admission_ == nullptr) return true;
    const Applicant applicant{
        .load = {.tokens = int64_t{arrival.tokens} + arrival.steps - 1,
                 .priority = arrival.priority,
                 .caller = arrival.caller == 0 ? "" : std::to_string(arrival.caller)},
        .caller = arrival.caller,
        .deadline = arrival.deadline,
        .prompt_tokens = arrival.tokens,
        .max_tokens = arrival.steps};
    const Admission decision =
        admission_->Reserve(applicant, scheduler_, scheduler_.queue().running(), arrival.at);
    if (decision.gives_place) QueueNext(arrival.at);
    if (!decision.refusal.ok()) {
      ++result_.refused;
      if (options_.on_refused) options_.on_refused(sequence.ticket);
      return false;
    }
    live_[sequence.ticket].load = applicant.load;
    live_[sequence.ticket].admission = decision;
    if (decision.deferred) {
      admission_->Defer(sequence.ticket, applicant, scheduler_, decision, arrival.at);
    }
    return !decision.deferred;
  }

  void QueueNext(MonoTime now) {
    while (Deferring()) {
      const AdmissionControl::Taken next =
          admission_->TakeNext(scheduler_, scheduler_.queue().running(), now);
      WaitingSequence* const sequence = &live_[next.id].sequence;
      if (next.reachable) {
        sequence->queued = now;
        return scheduler_.Arrive(sequence);
      }
      Expire(*sequence);
    }
  }

  // Records the end of a sequence for the admission of others.
  void Return(const WaitingSequence& sequence, bool ran) {
    if (admission_ == nullptr) return;
    const Live& live = live_[sequence.ticket];
    admission_->Return(live.load);
    admission_->Learn(AdmissionControl::Outcome{.queued = arrivals_[sequence.ticket].at,
                                                .ended = now_,
                                                .deadline = sequence.deadline,
                                                .admission = live.admission,
                                                .status = ran && now_ <= sequence.deadline
                                                              ? absl::OkStatus()
                                                              : absl::DeadlineExceededError("")});
  }

  void Step() {
    while (const WaitingSequence* expired = scheduler_.queue().Expired(now_)) {
      scheduler_.Remove(expired);
      Expire(*expired);
    }
    while (Deferring() && admission_->backlog().EarliestDeadline() <= now_) {
      const uint64_t id = admission_->backlog().Earliest().id;
      admission_->Leave(id);
      Expire(live_[id].sequence);
    }
    if (admission_ != nullptr) {
      while (admission_->HasRoomForNext(scheduler_, scheduler_.queue().running(), now_)) {
        QueueNext(now_);
      }
    }
    const BatchDecision decision = scheduler_.Decide({.now = now_}, &batch_);
    if (decision.launch) {
      RunBatch(decision);
    } else if (Busy()) {
      const bool idle = scheduler_.queue().empty();
      AdvanceTo(std::min({decision.wait_until, NextArrival(), timer_, EarliestDeadline()}));
      if (idle && !scheduler_.queue().empty()) AdvanceTo(EndOf(options_.host.Wake()));
    }
  }

  // Adds drafted tokens to a step of decodes, as PagedScheduler does, and drafts them. If a
  // sequence arrives in this time, the step has none.
  void Draft(BatchDecision* decision, StepShape* shape) {
    const VirtualDrafts& drafts = options_.drafts;
    const bool decodes = std::ranges::all_of(batch_, [&](const WaitingSequence* sequence) {
      return sequence->running && sequence->tokens == 1 && sequence->later_tokens == 0;
    });
    const bool few = std::ssize(batch_) <= drafts.sequences && scheduler_.queue().empty();
    if (drafts.tokens == 0 || options_.recompute || !decodes || !few) return;
    const Ladder& ladder = *scheduler_.ladder();
    DraftStep step{.size = decision->size,
                   .shape = *shape,
                   .expected_tokens = static_cast<double>(batch_.size())};
    for (const WaitingSequence* sequence : batch_) {
      Live& live = live_[sequence->ticket];
      PagedSequence drafting;
      drafting.first_position = sequence->first_position;
      drafting.reach = sequence->reach;
      drafting.acceptance = drafts.acceptance;
      drafting.draft_seconds = drafts.seconds;
      const int32_t room = ladder.largest().tokens - step.size.tokens;
      const int32_t most = std::min({drafts.tokens, live.steps_left - 1, room});
      live.drafted = WorthwhileDrafts(step, drafting, most, ladder, scheduler_.costs());
      step = step.With(drafting, live.drafted, ladder);
      for (int32_t i = 0; i < live.drafted && scheduler_.queue().empty(); ++i) {
        AdvanceTo(EndOf(nanoseconds(std::llround(drafts.seconds * 1e9))));
      }
      if (scheduler_.queue().empty()) continue;
      for (const WaitingSequence* each : batch_) live_[each->ticket].drafted = 0;
      return;
    }
    decision->size = step.size;
    decision->bucket = step.shape.bucket;
    *shape = step.shape;
  }

  // Returns the number of drafted tokens of the sequence's step that are right.
  int32_t Accept(Live* live) {
    const int32_t drafted = std::exchange(live->drafted, 0);
    live->expected_tokens += ExpectedTokens(options_.drafts.acceptance, drafted) - 1;
    const auto accepted =
        std::min(drafted, static_cast<int32_t>(std::floor(live->expected_tokens)));
    live->expected_tokens -= accepted;
    result_.drafted += drafted;
    result_.accepted += accepted;
    return accepted;
  }

  void RunBatch(BatchDecision decision) {
    StepShape shape = ShapeOf(batch_, decision.bucket);
    const MonoTime decided = now_;
    Draft(&decision, &shape);
    const MonoTime start = now_;
    const nanoseconds cost(std::llround(options_.cost(shape) * 1e9));
    const MonoTime end = WorkUntil(std::max(EndOf(cost), start + nanoseconds(1)));
    ++result_.batches;
    result_.useful_tokens += decision.size.tokens;
    result_.bucket_tokens += decision.bucket.tokens;
    result_.computed_tokens += options_.rows.Of(decision.bucket.tokens, shape.computed_tokens);
    result_.busy_seconds += Seconds(end - decided);
    if (options_.on_batch) {
      options_.on_batch({.start = start, .end = end, .decision = decision, .sequences = batch_});
    }
    scheduler_.Observe(shape, Seconds(end - start));
    for (WaitingSequence* sequence : batch_) EndStep(sequence);
    last_end_ = end;
    WorkUntil(EndOf(options_.host.Turnaround(batch_.size())));
  }

  // Returns the end of work that begins now.
  MonoTime EndOf(nanoseconds work) const {
    return now_ + (options_.stretch ? options_.stretch(now_, work) : work);
  }

  // Processes events until the host has worked until `end`. Arrivals delay the end. Returns the
  // actual end.
  MonoTime WorkUntil(MonoTime end) {
    for (;;) {
      const size_t arrived = next_;
      AdvanceTo(end);
      if (next_ == arrived) return end;
      end += options_.host.Arrivals(next_ - arrived);
    }
  }

  // Sets the tokens of the next chunk. `left` is the number of prompt tokens left.
  void SetNextChunk(int32_t left, WaitingSequence* sequence) const {
    sequence->tokens = chunk_tokens_ == 0 ? left : std::min(left, chunk_tokens_);
    sequence->later_tokens = left - sequence->tokens;
    sequence->sampled_rows = sequence->later_tokens > 0 ? 0 : 1;
  }

  void EndStep(WaitingSequence* sequence) {
    Live& live = live_[sequence->ticket];
    const int32_t accepted = Accept(&live);
    live.steps_left -= accepted;
    if (sequence->later_tokens == 0 && --live.steps_left == 0) {
      ++result_.sequences;
      Return(*sequence, /*ran=*/true);
      result_.latency_sum_seconds += Seconds(now_ - arrivals_[sequence->ticket].at);
      if (options_.on_done) options_.on_done(sequence->ticket, now_, true);
    } else if (sequence->deadline <= now_) {
      Expire(*sequence);
    } else {
      SetNextStep(accepted, sequence);
      scheduler_.Return(sequence);
    }
  }

  void SetNextStep(int32_t accepted, WaitingSequence* sequence) const {
    const int32_t computed = sequence->first_position + sequence->tokens + accepted;
    sequence->running = !options_.recompute;
    sequence->first_position = options_.recompute ? 0 : computed;
    if (sequence->later_tokens > 0) {
      SetNextChunk(sequence->later_tokens, sequence);
    } else {
      sequence->tokens = options_.recompute ? computed + 1 : 1;
    }
  }

  void Expire(const WaitingSequence& sequence) {
    ++result_.expired;
    Return(sequence, /*ran=*/false);
    if (options_.on_done) options_.on_done(sequence.ticket, now_, false);
  }

  const std::span<const Arrival> arrivals_;
  const VirtualRunOptions& options_;
  Scheduler& scheduler_;
  AdmissionControl* const admission_;
  int32_t chunk_tokens_ = 0;  // prompt tokens per step; 0: all
  std::vector<Live> live_;    // by ticket (the index of the arrival)
  size_t next_ = 0;           // the index of the next arrival
  MonoTime now_{};
  MonoTime timer_ = MonoTime::max();
  MonoTime last_end_{};
  std::vector<WaitingSequence*> batch_;
  VirtualResult result_;
};

}  // namespace

double VirtualResult::bucket_fill() const {
  return bucket_tokens == 0
             ? 0
             : static_cast<double>(useful_tokens) / static_cast<double>(bucket_tokens);
}

VirtualResult RunVirtually(std::span<const Arrival> arrivals, const VirtualRunOptions& options,
                           Scheduler* scheduler) {
  SLUICE_CHECK(scheduler->queue().empty());
  return VirtualRun(arrivals, options, scheduler).Run();
}

}  // namespace sluice
