// Counts by key that halve with time.
#pragma once

#include <chrono>
#include <cmath>

#include "absl/container/btree_map.h"
#include "base/clock.h"

namespace sluice {

// Instead of shrinking every count at each Add, what is added grows: by a factor of two per half-life
// since `origin_`. Every kRescaleHalfLives all are scaled back, and counts that have decayed below
// kNothing are forgotten, which bounds the memory to the keys of the last few half-lives. Not
// thread-safe.
template <typename Key>
class DecayedCounts {
 public:
  explicit DecayedCounts(nanoseconds half_life) : half_life_(half_life) {}

  // A `now` before the latest counts as the latest.
  void Add(const Key& key, MonoTime now) {
    if (scaled_.empty()) origin_ = latest_ = now;
    latest_ = std::max(latest_, now);
    if (Age(latest_) > kRescaleHalfLives) Rescale();
    const double grown = std::exp2(Age(latest_));
    scaled_[key] += grown;
    scaled_total_ += grown;
  }

  // As of the latest Add; so are the counts that `visit(key, count)` sees, in ascending order.
  double Count(const Key& key) const {
    const auto it = scaled_.find(key);
    return it == scaled_.end() ? 0 : it->second * Shrink();
  }
  double total() const { return scaled_total_ * Shrink(); }
  size_t size() const { return scaled_.size(); }
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [key, count] : scaled_) visit(key, count * Shrink());
  }

 private:
  static constexpr double kRescaleHalfLives = 8;
  static constexpr double kNothing = 1.0 / 1024;

  // Half-lives from the origin.
  double Age(MonoTime time) const {
    return std::chrono::duration<double>(time - origin_) /
           std::chrono::duration<double>(half_life_);
  }
  double Shrink() const { return std::exp2(-Age(latest_)); }

  void Rescale() {
    const double shrink = Shrink();
    scaled_total_ = 0;
    for (auto it = scaled_.begin(); it != scaled_.end();) {
      it->second *= shrink;
      scaled_total_ += it->second;
      if (it->second >= kNothing) {
        ++it;
        continue;
      }
      scaled_total_ -= it->second;
      it = scaled_.erase(it);
    }
    origin_ = latest_;
  }

  nanoseconds half_life_;
  absl::btree_map<Key, double> scaled_;  // counts times two to the half-lives since origin_
  double scaled_total_ = 0;
  MonoTime origin_{};
  MonoTime latest_{};
};

}  // namespace sluice
