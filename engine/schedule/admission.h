// Limits for the admission of requests to the queue.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "engine/options.h"
#include "engine/schedule/due_totals.h"
#include "engine/schedule/scheduler.h"
#include "engine/schedule_values.h"

namespace sluice {

// The load that a request adds to the queue, from Submit to its end.
struct RequestLoad {
  int64_t tokens = 0;  // of the prompts, plus each row's max_tokens
  int64_t bytes = 0;
  int64_t candidates = 0;  // to be scored
  int priority = kDefaultPriority;
  std::string caller{};  // empty if callers are not identified
};

// The limits of the queue: waiting and running requests, their tokens and their memory. A request
// of level p is accepted if the total stays within priority_share^(p - 1) of each limit (rounded
// up), so that the rest is reserved for more urgent levels. If no other request waits or runs, a
// request may use each limit completely.
//
// A caller that already has requests may add another one if its load so far is at most s / (1 - s)
// times the room left after the new request, where s = max_caller_share (the dynamic thresholds of
// Choudhury and Hahne, 1998). So a single caller can use s of each limit, n callers share all but
// 1 / (1 + n s / (1 - s)) of it equally, and a caller with no requests finds room. If max_bytes is
// 0, bytes are counted but not limited. Not thread-safe.
class AdmissionBudget {
 public:
  explicit AdmissionBudget(const QueueOptions& options);

  // Adds a load. Returns ResourceExhausted if a limit would be exceeded, or InvalidArgument if the
  // load does not even fit an empty queue. The error names the limit, and nothing is added.
  absl::Status Take(const RequestLoad& load);
  void Return(const RequestLoad& load);
  // Like Take, but the load waits in the backlog until Release. All such loads together use at most
  // a part of each limit, so that they never fill the queue. Until Release, the candidates of the
  // load are not counted, because they are scored only after that. Release must be called before
  // Return.
  absl::Status TakeDeferred(const RequestLoad& load);
  // Returns whether TakeDeferred could succeed if no other load were deferred.
  bool IsDeferrable(const RequestLoad& load) const;
  // Returns whether TakeDeferred refuses every load of this level, because there are too many.
  bool DeferredIsFull(int priority) const {
    return deferred_.requests >= DeferredBoundsOf(priority).requests;
  }
  void Release(const RequestLoad& load);

  // Returns whether the number of requests has reached the limit of this level.
  bool IsFull(int priority) const { return total_.requests >= BoundsOf(priority).requests; }
  int64_t bytes() const { return total_.bytes; }
  int64_t candidates() const { return total_.candidates; }  // of all loads that are not deferred
  // Returns the number of candidates that are scored before candidates of a new load: those of the
  // same or a more urgent level, and at most the caller's own ones once for each caller.
  int64_t CandidatesAhead(const RequestLoad& load) const;
  // Returns the share of each limit that a level may use if the queue is not empty.
  double LevelShare(int priority) const;
  // Returns the share of the longest wait that a request with this load may have: less than 1 if
  // its caller is identified and has other requests.
  double WaitShare(const RequestLoad& load) const {
    const bool has_others = SharesAmongCallers(load) && callers_.contains(load.caller);
    return has_others ? options_.max_caller_share : 1;
  }

 private:
  struct Bounds {
    int64_t requests = 0;
    int64_t tokens = 0;
    int64_t bytes = 0;
    // Not limited, and 0 in deferred loads.
    int64_t candidates = 0;
    std::array<int64_t, kPriorityLevels> of_level{};  // the candidates of each level
  };
  // Return the limits of a level, and their part for deferred loads.
  Bounds BoundsOf(int priority) const;
  Bounds DeferredBoundsOf(int priority) const;
  // CheckRoom returns an error if `load` plus `used` exceeds `most`. CheckTotal compares the total
  // with the level's limits, and CheckDeferred the deferred loads with their part. CheckShare
  // returns an error if the caller, who already has `own`, would have more than its share.
  static absl::Status CheckRoom(const RequestLoad& load, const Bounds& used, const Bounds& most,
                                absl::string_view part, absl::string_view who);
  absl::Status CheckTotal(const RequestLoad& load) const;
  absl::Status CheckDeferred(const RequestLoad& load) const;
  absl::Status CheckShare(const RequestLoad& load, const Bounds& own) const;
  // Adds a load without its candidates.
  static void Add(const RequestLoad& load, int64_t sign, Bounds* total);
  // Adds the candidates of a load to the total and to its caller's bounds.
  void CountCandidates(const RequestLoad& load, int64_t sign);
  // Like Take, but without the candidates.
  absl::Status TakeRoom(const RequestLoad& load);
  bool SharesAmongCallers(const RequestLoad& load) const {
    return options_.max_caller_share < 1 && !load.caller.empty();
  }

  const QueueOptions options_;
  Bounds total_;
  Bounds deferred_;  // the part of total_ that waits in the backlog
  absl::flat_hash_map<std::string, Bounds> callers_;  // callers with requests
};

// Returns the time until the waiting sequences of `ahead` have begun, at the measured costs, while
// `running` other sequences run. It is the time of their prompts in full batches, plus the expected
// steps of the sequences without a free place, in batches of all sequences that can run together.
// In each step, a sequence attends to about `context` positions.
nanoseconds TimeOfQueue(const DueTotals::Total& ahead, int64_t running, int64_t context,
                        const Scheduler& scheduler);

// A request with a deadline that is checked for admission.
struct Due {
  MonoTime deadline{};
  int priority = kDefaultPriority;
  int64_t rows = 1;
  int64_t tokens = 0;   // minimum number of prompt tokens to compute
  int64_t steps = 0;    // expected number of steps of its rows after the prompts
  int64_t context = 0;  // approximate positions that each of those steps attends to
  // The recent number of prompt tokens computed per step of a generating sequence: when a sequence
  // ends, another prompt can begin.
  double prompts_per_step = 0;
};

// Returns the time until the request is done, at the measured costs. First, the queued prompts run
// that are due no later and are not less urgent. Then the request's own steps run. These steps also
// carry those prompts and the `running` sequences, or sequences that replace them, whose prompts
// are computed in between. Other queued sequences have no effect, because urgent sequences run
// first. Returns zero if nothing runs and nothing is ahead, or if nothing was measured.
nanoseconds TimeNeeded(const Due& due, int64_t running, const Scheduler& scheduler);

// Learns the error of such estimates from admitted requests that were nearly refused. Other
// requests give no information about the limit, because later requests may have delayed them; they
// let the factor return to its first value. Under overload, many requests are at the limit, and a
// forecast slightly too low would make all of them miss their deadlines. The margin is therefore
// twice the observed mean deviation, as in the retransmission timeout of TCP (RFC 6298). A missed
// deadline counts as if the request had taken twice the allowed time. Not thread-safe.
class ForecastError {
 public:
  // The factor for estimates, including the margin; in [1/4, 8].
  double factor() const;

  struct Lesson {
    nanoseconds needed{};   // the estimate; zero if there was no estimate
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
