// Runs Kubernetes' HorizontalPodAutoscaler on virtual time.
#pragma once

#include <deque>
#include <utility>
#include <vector>

namespace sluice::loadtest {

// The signal that is summed over the replicas.
enum class Signal {
  kDrain,  // sluice_estimated_drain_seconds, averaged over the window
  kBusy,   // the share of time in steps: rate of the replays' durations over the window
};

struct ScalingTarget {
  Signal signal = Signal::kDrain;
  double per_replica = 0;     // > 0
  double window_seconds = 0;  // the window of the query
};

struct ScalingPolicy {
  bool percent = false;  // percent of the replicas at the period's start, or a count
  double value = 0;
  double period_seconds = 0;
};

// The behaviour in one direction. If there are several policies, the one that allows the largest
// change counts.
struct ScalingDirection {
  double stabilization_seconds = 0;
  std::vector<ScalingPolicy> policies{};
};

struct AutoscalerRule {
  int min_replicas = 1;
  int max_replicas = 1;
  std::vector<ScalingTarget> targets{};  // the target with the highest count decides
  ScalingDirection up{}, down{};
};

// The algorithm that Kubernetes documents for metrics of the type AverageValue. The count is
// ceil(sum / target), unless the ratio to the present count is within 10 % of one. Stabilization
// windows and then policies limit it. Times are in seconds and ascend.
class Autoscaler {
 public:
  explicit Autoscaler(AutoscalerRule rule) : rule_(std::move(rule)) {}

  // Returns the number of replicas to have from `now` on. `sums` has the order of the rule's
  // targets.
  int Decide(double now, int replicas, const std::vector<double>& sums);

 private:
  struct Event {
    double at;
    int count;
  };

  int Wanted(int replicas, const std::vector<double>& sums) const;
  int Stabilized(double now, int replicas, int wanted);
  int Limited(double now, int replicas, int wanted) const;
  // Returns the number of added replicas minus the number of removed replicas after `since`.
  int ChangeSince(double since) const;

  const AutoscalerRule rule_;
  std::deque<Event> wanted_;   // covers the longer window
  std::deque<Event> changes_;  // covers the longest period
};

}  // namespace sluice::loadtest
