// The admission of requests to the queue.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "engine/options.h"
#include "engine/schedule/scheduler.h"

namespace sluice {

// The share of the queue that a request takes from Submit to its end.
struct RequestLoad {
  int64_t tokens = 0;  // of the prompts, and each row's max_tokens
  int64_t bytes = 0;
  int64_t candidates = 0;  // to be scored
  int priority = kDefaultPriority;
  std::string caller{};  // empty where callers are not told apart
};

// The bounds of the queue: requests that wait or run, their tokens and their memory. A request of
// level p is taken if the total stays at most at priority_share^(p - 1) of each bound (rounded up),
// so that the last part is kept for more urgent levels. A request that has the queue to itself may
// take all of it.
//
// A caller that has requests already gets another one in while it has at most s / (1 - s) times of
// what is then left, s = max_caller_share (the dynamic thresholds of Choudhury and Hahne, 1998). So
// one caller alone fills s of each bound, n callers share all but 1 / (1 + n s / (1 - s)) of it
// equally, and a caller that has none finds room. Where max_bytes is 0, bytes are counted and not
// bounded. Not thread-safe.
class AdmissionBudget {
 public:
  explicit AdmissionBudget(const QueueOptions& options);

  // Takes a load. Returns ResourceExhausted, or InvalidArgument if an empty queue could not take
  // the load either; the error names the bound that would be exceeded, and nothing is taken.
  absl::Status Take(const RequestLoad& load);
  void Return(const RequestLoad& load);

  // Returns whether there are as many requests as there may be of this level.
  bool IsFull(int priority) const { return total_.requests >= BoundsOf(priority).requests; }
  int64_t bytes() const { return total_.bytes; }
  int64_t candidates() const { return total_.candidates; }
  // Returns the share of each bound that a level may fill beside others.
  double LevelShare(int priority) const;
  // Returns the part of all tokens that the caller of `load` has, 0 to 1.
  double PartOf(const RequestLoad& load) const;
  // Returns whether the caller of `load` has more than its share of something of which it has `own`
  // and `rest` is left; never where callers are not told apart.
  bool ExceedsShare(const RequestLoad& load, double own, double rest) const {
    const double share = options_.max_caller_share;
    return SharesAmongCallers(load) && own * (1 - share) > share * rest;
  }

 private:
  struct Bounds {
    int64_t requests = 0;
    int64_t tokens = 0;
    int64_t bytes = 0;
    int64_t candidates = 0;  // not bounded
  };
  // Returns what the requests of a level may fill.
  Bounds BoundsOf(int priority) const;
  // Return an error if `load` on top of all would exceed a bound, or if its caller, who has `own`
  // already, would have more than its share.
  absl::Status CheckTotal(const RequestLoad& load) const;
  absl::Status CheckShare(const RequestLoad& load, const Bounds& own) const;
  static void Add(const RequestLoad& load, int64_t sign, Bounds* total);
  bool SharesAmongCallers(const RequestLoad& load) const {
    return options_.max_caller_share < 1 && !load.caller.empty();
  }

  const QueueOptions options_;
  Bounds total_;
  absl::flat_hash_map<std::string, Bounds> callers_;  // those that have any
};

// Returns the time until the sequences that wait have begun, at the measured costs, while `running`
// others run: their prompts in full batches, and for those for which no place is free the steps
// that they are expected to take, of as many sequences as run together. Each of these attends to
// about `context` positions.
nanoseconds TimeOfQueue(int64_t running, int64_t context, const Scheduler& scheduler);

// A request with a deadline that asks to be admitted.
struct Due {
  MonoTime deadline{};
  int priority = kDefaultPriority;
  int64_t rows = 1;
  int64_t tokens = 0;   // the fewest prompt tokens that must be computed
  int64_t steps = 0;    // the number of steps that its rows probably take after the prompts
  int64_t context = 0;  // about how many positions each of those steps attends to
  // The recent number of prompt tokens computed for each step of a generating sequence: a sequence
  // that ends makes room for another prompt.
  double prompts_per_step = 0;
};

// Returns the time until the request is done, at the measured costs. First come the queued prompts
// that are due no later and are no less urgent. Then the request's own steps run, which also carry
// these prompts and the `running` sequences, or others in their place, whose prompts come between.
// Other queued sequences have no effect, since urgent ones run first. Returns zero if nothing runs
// and nothing is ahead, or if nothing was measured.
nanoseconds TimeNeeded(const Due& due, int64_t running, const Scheduler& scheduler);

// Learns how far off such estimates are, from admitted requests that were nearly refused. Other
// requests say nothing about the bound, since later ones may have delayed them; they let the factor
// return to 1. Under overload many requests are at the bound, and a forecast that is a little too
// low would make all of them miss their deadlines. So there is a margin of twice the observed mean
// deviation, as in the retransmission timeout of TCP (RFC 6298), and a missed deadline counts as if
// the request had taken twice as long. Not thread-safe.
class ForecastError {
 public:
  // The factor to multiply estimates by, margin included; in [1/4, 8].
  double factor() const;

  struct Lesson {
    nanoseconds needed{};   // the estimate; zero if there was none
    nanoseconds allowed{};  // from its arrival to its deadline
    nanoseconds took{};     // from its arrival to its end, at most `allowed`
    bool missed = false;
  };
  void Learn(const Lesson& lesson);

 private:
  static constexpr double kFirstDeviation = 0.1;

  // The decayed mean and mean deviation of the ratio of measured to estimated time.
  double mean_ = 1;
  double deviation_ = kFirstDeviation;
};

}  // namespace sluice
