#include "loadtest/scale/autoscaler.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace sluice::loadtest {
namespace {

constexpr double kTolerance = 0.1;  // the default of kube-controller-manager

double LongestPeriod(const AutoscalerRule& rule) {
  double longest = 0;
  for (const ScalingDirection* direction : {&rule.up, &rule.down}) {
    for (const ScalingPolicy& policy : direction->policies) {
      longest = std::max(longest, policy.period_seconds);
    }
  }
  return longest;
}

}  // namespace

int Autoscaler::Decide(double now, int replicas, const std::vector<double>& sums) {
  SLUICE_CHECK(sums.size() == rule_.targets.size());
  const int wanted = Stabilized(now, replicas, Wanted(replicas, sums));
  const int count =
      std::clamp(Limited(now, replicas, wanted), rule_.min_replicas, rule_.max_replicas);
  if (count != replicas) changes_.push_back({now, count - replicas});
  while (!changes_.empty() && changes_.front().at <= now - LongestPeriod(rule_)) {
    changes_.pop_front();
  }
  return count;
}

int Autoscaler::Wanted(int replicas, const std::vector<double>& sums) const {
  int most = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    const double wanted = sums[i] / rule_.targets[i].per_replica;
    const bool close = std::abs(wanted / replicas - 1) <= kTolerance;
    const double bounded = std::min(std::ceil(wanted), double{1 << 20});
    most = std::max(most, close ? replicas : static_cast<int>(bounded));
  }
  return std::clamp(most, rule_.min_replicas, rule_.max_replicas);
}

// Scales up at most to the smallest count that was recommended in the window for up, and down no
// further than to the largest count in the window for down.
int Autoscaler::Stabilized(double now, int replicas, int wanted) {
  if (wanted_.empty()) wanted_.push_back({now, replicas});  // the first count also counts
  wanted_.push_back({now, wanted});
  int least = wanted, most = wanted;
  for (const Event& event : wanted_) {
    if (event.at > now - rule_.up.stabilization_seconds) least = std::min(least, event.count);
    if (event.at > now - rule_.down.stabilization_seconds) most = std::max(most, event.count);
  }
  const double longer = std::max(rule_.up.stabilization_seconds, rule_.down.stabilization_seconds);
  while (wanted_.front().at < now - longer) wanted_.pop_front();
  return std::min(std::max(replicas, least), most);
}

int Autoscaler::Limited(double now, int replicas, int wanted) const {
  if (wanted == replicas) return replicas;
  const bool up = wanted > replicas;
  double furthest = replicas;
  for (const ScalingPolicy& policy : (up ? rule_.up : rule_.down).policies) {
    const int before = replicas - ChangeSince(now - policy.period_seconds);
    const double step = policy.percent ? before * policy.value / 100 : policy.value;
    furthest = up ? std::max(furthest, std::ceil(before + step))
                  : std::min(furthest, std::floor(before - step));
  }
  const int limit = static_cast<int>(furthest);
  return up ? std::min(wanted, limit) : std::max(wanted, limit);
}

int Autoscaler::ChangeSince(double since) const {
  int change = 0;
  for (const Event& event : changes_) {
    if (event.at > since) change += event.count;
  }
  return change;
}

}  // namespace sluice::loadtest
