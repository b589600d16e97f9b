// Kubernetes' HorizontalPodAutoscaler on virtual time.
#pragma once

#include <deque>
#include <utility>
#include <vector>

namespace sluice::loadtest {

// What is summed over the replicas.
enum class Signal {
  kDrain,  // sluice_estimated_drain_seconds, averaged over the window
  kBusy,   // share of the time that steps took: rate of the replays' durations over the window
};

struct ScalingTarget {
  Signal signal = Signal::kDrain;
  double per_replica = 0;     // > 0
  double window_seconds = 0;  // that the query looks back
};

struct ScalingPolicy {
  bool percent = false;  // of the replicas at the period's beginning, else replicas
  double value = 0;
  double period_seconds = 0;
};

// A behaviour in one direction; of several policies the one that allows most.
struct ScalingDirection {
  double stabilization_seconds = 0;
  std::vector<ScalingPolicy> policies{};
};

struct AutoscalerRule {
  int min_replicas = 1;
  int max_replicas = 1;
  std::vector<ScalingTarget> targets{};  // of which the one that asks for most counts
  ScalingDirection up{}, down{};
};

// The algorithm as Kubernetes documents it for metrics of the type AverageValue: ceil(sum /
// target), unless the ratio to the present count is within 10 % of one; then the stabilization
// windows, then the policies. Times are seconds that ascend.
class Autoscaler {
 public:
  explicit Autoscaler(AutoscalerRule rule) : rule_(std::move(rule)) {}

  // The count to have from `now` on. `sums` are in the order of the rule's targets.
  int Decide(double now, int replicas, const std::vector<double>& sums);

 private:
  struct Event {
    double at;
    int count;
  };

  int Wanted(int replicas, const std::vector<double>& sums) const;
  int Stabilized(double now, int replicas, int wanted);
  int Limited(double now, int replicas, int wanted) const;
  // Replicas added, less those removed, after `since`.
  int ChangeSince(double since) const;

  const AutoscalerRule rule_;
  std::deque<Event> wanted_;   // as far back as the longer window
  std::deque<Event> changes_;  // as far back as the longest period
};

}  // namespace sluice::loadtest
