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
#include "base/read_file.h"
#include "base/status_macros.h"
#include "base/trace_file.h"
#include "engine/journal/journal_reader.h"

namespace sluice {
namespace {

// Has one overload for each kind of line.
class Recorder {
 public:
  void operator()(const JournalStart& start) {
    Keep();
    run_ = {};
    run_.batch = start.batch;
    run_.half_life = start.half_life;
    run_.costs.Restore(start.costs);
    index_.clear();
    running_.clear();
    end_.reset();
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
      index_[sequence.ticket] = run_.arrivals.size();
      run_.arrivals.push_back({.at = sequence.queued,
                               .tokens = sequence.tokens + sequence.later_tokens,
                               .priority = sequence.priority,
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
    steps_[observe.step.bucket].push_back(observe);
    end_ = begun_ + nanoseconds(std::llround(observe.seconds * 1e9));
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
    const size_t sequences = std::exchange(running_, decide.tickets).size();
    if (end.has_value() && !decide.at.ahead) AddHostTime(*end, sequences);
  }
  void operator()(const JournalDropped&) {}

  RecordedRun Finish() {
    Keep();
    Sort();
    return std::move(kept_);
  }

 private:
  void Keep() {
    if (run_.arrivals.empty()) return;
    run_.host = host_.times();
    CostState costs = run_.costs.state();
    for (BucketCost& bucket : costs.buckets) CorrectByAll(&bucket);
    run_.costs.Restore(costs);
    kept_ = std::move(run_);
  }

  // Corrects the costs of a bucket by all of its steps, and says how these vary around them.
  void CorrectByAll(BucketCost* bucket) {
    const std::vector<JournalObserve>& steps = steps_[bucket->bucket];
    double took = 0, expected = 0;
    for (const JournalObserve& each : steps) {
      took += each.seconds;
      expected += run_.costs.Estimate(each.step);
    }
    if (took <= 0 || expected <= 0) return;
    const double correction = took / expected;
    std::vector<float>& factors = run_.variation[bucket->bucket];
    for (const JournalObserve& each : steps) {
      const double estimate = run_.costs.Estimate(each.step) * correction;
      factors.push_back(estimate > 0 ? static_cast<float>(each.seconds / estimate) : 1);
    }
    bucket->correction *= correction;
  }

  // Takes the time from the end of a step of `sequences` until the one that has begun.
  void AddHostTime(MonoTime end, size_t sequences) {
    MonoTime oldest = MonoTime::max();
    for (uint64_t ticket : running_) {
      if (const auto it = index_.find(ticket); it != index_.end()) {
        oldest = std::min(oldest, run_.arrivals[it->second].at);
      }
    }
    if (oldest <= end) {
      host_.AddTurnaround(sequences, Seconds(begun_ - end));
    } else if (oldest >= end + host_.times().Turnaround(sequences) && oldest <= begun_) {
      host_.AddWake(Seconds(begun_ - oldest));
    }
  }

  // Arrivals are recorded in the order of the scheduler's lock, which may differ from their times'.
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
  MonoTime begun_{};               // the last step, by
  std::vector<uint64_t> running_;  // these tickets
  std::optional<MonoTime> end_;    // its end, until the next decision
  HostTimesFit host_;
  absl::btree_map<Bucket, std::vector<JournalObserve>> steps_;
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
    SLUICE_ASSIGN_OR_RETURN(const std::optional<JournalEntry> entry, journal.Next());
    if (!entry.has_value()) break;
    std::visit(recorder, *entry);
  }
  RecordedRun run = recorder.Finish();
  if (run.arrivals.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has no arrivals"));
  }
  return run;
}

}  // namespace sluice
