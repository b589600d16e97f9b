#include "engine/journal/recorded.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/error_at.h"
#include "base/read_file.h"
#include "base/status_macros.h"
#include "base/trace_file.h"
#include "engine/journal/journal_reader.h"

namespace sluice {
namespace {

nanoseconds Nanoseconds(double seconds) { return nanoseconds(std::llround(seconds * 1e9)); }

// Has one overload for each kind of line.
class Recorder {
 public:
  void operator()(const JournalStart& start) {
    Keep();
    run_ = {};
    run_.batch = start.batch;
    run_.half_life = start.half_life;
    run_.first_costs.Restore(start.costs);
    run_.costs.Restore(start.costs);
    index_.clear();
    running_.clear();
    end_.reset();
    pushes_ = 0;
    host_ = {};
    steps_.clear();
  }
  void operator()(const JournalLadder& line) {
    run_.ladder = line.ladder;
    run_.max_tokens = line.ladder.largest().tokens;
  }
  void operator()(const JournalPush& push) {
    const WaitingSequence& sequence = push.sequence;
    if (push.arrival) {
      ++pushes_;
      index_[sequence.ticket] = run_.arrivals.size();
      run_.arrivals.push_back({.at = sequence.queued,
                               .tokens = sequence.tokens + sequence.later_tokens,
                               .priority = sequence.priority,
                               .adapter = sequence.adapter,
                               .deadline = sequence.deadline});
      run_.ends.push_back(MonoTime::max());
    } else if (const auto it = index_.find(sequence.ticket); it != index_.end()) {
      Arrival& arrival = run_.arrivals[it->second];
      // The chunks of a prompt count as one step.
      if (sequence.running && sequence.first_position < arrival.tokens) return;
      ++arrival.steps;
      run_.recompute |= !sequence.running;
    }
  }
  void operator()(const JournalObserve& observe) {
    run_.costs.Observe(observe.step, observe.seconds);
    ++run_.steps;
    run_.step_seconds += observe.seconds;
    steps_.push_back({observe, woken_, begun_, running_.size()});
    pushes_ = 0;
    end_ = begun_ + Nanoseconds(observe.seconds);
    for (uint64_t ticket : running_) {
      if (const auto it = index_.find(ticket); it != index_.end()) run_.ends[it->second] = *end_;
    }
  }
  void operator()(const JournalRemove&) {}
  void operator()(const JournalRevise&) {}
  void operator()(const JournalDecide& decide) {
    const std::optional<MonoTime> end = std::exchange(end_, std::nullopt);
    if (!decide.decision.launch) return;
    begun_ = decide.at.now;
    woken_ = begun_;
    running_ = decide.tickets;
    if (end.has_value() && !decide.at.ahead) AddHostTime(*end);
  }
  void operator()(const JournalDropped&) {}

  RecordedRun Finish() {
    Keep();
    Sort();
    return std::move(kept_);
  }

 private:
  // A step, including the host's work before and after it.
  struct Step {
    JournalObserve observed;
    // If the host was idle, `woken` is the arrival that woke it. Otherwise the two are equal.
    MonoTime woken, begun;
    size_t sequences;
    // From its end until the next step, if the next step waited for the host; otherwise unknown.
    std::optional<double> turnaround_seconds{};
    int64_t turnaround_arrivals = 0;
  };

  void Keep() {
    if (run_.arrivals.empty()) return;
    CorrectByAll();
    FitHostAndPace();
    run_.runs = kept_.runs + 1;
    kept_ = std::move(run_);
  }

  // Corrects the costs of each bucket, using all of its steps.
  void CorrectByAll() {
    absl::btree_map<Bucket, std::pair<double, double>> sums;  // measured and expected seconds
    for (const Step& step : steps_) {
      auto& [took, expected] = sums[step.observed.step.bucket];
      took += step.observed.seconds;
      expected += run_.costs.Estimate(step.observed.step);
    }
    CostState costs = run_.costs.state();
    // A bucket of an older ladder that ran no step has only the correction of an older run.
    std::erase_if(costs.buckets, [&](const BucketCost& cost) {
      return run_.ladder.has_value() && !run_.ladder->Contains(cost.bucket) &&
             !sums.contains(cost.bucket);
    });
    for (BucketCost& bucket : costs.buckets) {
      const auto& [took, expected] = sums[bucket.bucket];
      if (took > 0 && expected > 0) bucket.correction *= took / expected;
    }
    run_.costs.Restore(costs);
  }

  // Fits the host times and the pace, using the arrivals during each step.
  void FitHostAndPace() {
    std::vector<MonoTime> times;
    times.reserve(run_.arrivals.size());
    for (const Arrival& arrival : run_.arrivals) times.push_back(arrival.at);
    std::ranges::sort(times);
    const auto arrivals = [&](MonoTime begin, double seconds) {
      return std::ranges::lower_bound(times, begin + Nanoseconds(seconds)) -
             std::ranges::lower_bound(times, begin);
    };
    for (const Step& step : steps_) {
      const double expected = run_.costs.Estimate(step.observed.step), took = step.observed.seconds;
      host_.AddStep(expected, took, arrivals(step.begun, took), arrivals(step.begun, expected));
    }
    const HostTimes host = run_.host = host_.times();
    std::vector<WorkSpan> spans;
    spans.reserve(steps_.size());
    for (const Step& step : steps_) {
      const double ran = step.observed.seconds;
      double seconds = Seconds(step.begun - step.woken) + ran + step.turnaround_seconds.value_or(0);
      const nanoseconds begin = step.woken - times.front();
      const nanoseconds end = begin + Nanoseconds(seconds);
      seconds -= host.arrival_seconds *
                 static_cast<double>(arrivals(step.begun, ran) + step.turnaround_arrivals);
      double expected = run_.costs.Estimate(step.observed.step);
      if (step.woken < step.begun) expected += host.wake_seconds;
      if (step.turnaround_seconds.has_value()) {
        expected += Seconds(host.Turnaround(step.sequences));
      }
      spans.push_back({begin, end, seconds, expected});
    }
    run_.pace = MachinePace(std::move(spans));
  }

  // Records the time from the end of the last step until the step that has just begun.
  void AddHostTime(MonoTime end) {
    Step& last = steps_.back();
    MonoTime oldest = MonoTime::max();
    for (uint64_t ticket : running_) {
      if (const auto it = index_.find(ticket); it != index_.end()) {
        oldest = std::min(oldest, run_.arrivals[it->second].at);
      }
    }
    if (oldest <= end) {
      last.turnaround_seconds = Seconds(begun_ - end);
      last.turnaround_arrivals = pushes_;
      host_.AddTurnaround(last.sequences, pushes_, *last.turnaround_seconds);
    } else if (oldest >= end + host_.times().Turnaround(last.sequences) && oldest <= begun_) {
      woken_ = oldest;
      host_.AddWake(Seconds(begun_ - oldest));
    }
  }

  // Sorts by time. Arrivals are recorded in the order of the scheduler's lock, which may differ.
  void Sort() {
    std::vector<size_t> order(kept_.arrivals.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return kept_.arrivals[i].at; });
    std::vector<Arrival> arrivals;
    std::vector<MonoTime> ends;
    for (size_t i : order) {
      arrivals.push_back(kept_.arrivals[i]);
      ends.push_back(kept_.ends[i]);
    }
    kept_.arrivals = std::move(arrivals);
    kept_.ends = std::move(ends);
  }

  RecordedRun run_, kept_;
  MonoTime woken_{}, begun_{};     // times of the last step
  std::vector<uint64_t> running_;  // its tickets
  std::optional<MonoTime> end_;    // its end, until the next decision
  int64_t pushes_ = 0;             // arrivals since the last step ended
  HostTimesFit host_;
  std::vector<Step> steps_;
  absl::flat_hash_map<uint64_t, size_t> index_;  // the indices of the arrivals, by ticket
};

}  // namespace

absl::StatusOr<std::vector<Arrival>> ReadTraceArrivals(const std::string& path, int32_t cap,
                                                       bool generate) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const absl::StatusOr<std::vector<TraceRow>> rows = ParseTrace(text);
  if (!rows.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", rows.status().message()));
  }
  std::vector<Arrival> arrivals;
  arrivals.reserve(rows->size());
  for (const TraceRow& row : *rows) {
    const int32_t tokens = std::clamp(row.input_tokens, 1, cap);
    const int32_t steps = generate ? std::clamp(row.output_tokens, 1, cap - tokens + 1) : 1;
    arrivals.push_back({.at = MonoTime(nanoseconds(std::llround(row.arrival_s * 1e9))),
                        .tokens = tokens,
                        .steps = steps});
  }
  return arrivals;
}

absl::StatusOr<RecordedRun> ReadJournalRun(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(JournalReader journal, JournalReader::Open(path));
  Recorder recorder;
  for (;;) {
    const absl::StatusOr<std::optional<JournalEntry>> entry = journal.Next();
    if (!entry.ok()) return ErrorAt(path, entry.status());
    if (!entry->has_value()) break;
    std::visit(recorder, **entry);
  }
  RecordedRun run = recorder.Finish();
  if (run.arrivals.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has no arrivals"));
  }
  return run;
}

}  // namespace sluice
