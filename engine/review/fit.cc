#include "engine/review/fit.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace sluice {
namespace {

// Sizes are numbered from 1; number 0 is before the first size. If a capacity at size j follows a
// capacity at size i, it serves the sizes (i, j].
class Fitter {
 public:
  Fitter(std::span<const TokenWeight> sizes, int32_t maximum,
         const std::function<double(int32_t)>& cost,
         const std::function<double(int32_t)>& fixed_cost) {
    Append(0, 0, 0, 0);
    for (const TokenWeight& size : sizes) {
      SLUICE_CHECK(size.tokens > tokens_.back() && size.tokens <= maximum && size.weight > 0);
      Append(size.tokens, size.weight, cost(size.tokens), fixed_cost(size.tokens));
    }
    if (tokens_.back() < maximum) Append(maximum, 0, cost(maximum), fixed_cost(maximum));
  }

  std::vector<int32_t> Fit(int count) {
    const int32_t n = std::ssize(tokens_) - 1;
    best_.assign(tokens_.size(), std::numeric_limits<double>::infinity());
    best_[0] = 0;
    double least = std::numeric_limits<double>::infinity();
    for (int32_t used = 1; used <= std::min(count, n); ++used) {
      next_.assign(tokens_.size(), std::numeric_limits<double>::infinity());
      before_.emplace_back(tokens_.size());
      Extend(used, n, used - 1, n - 1);
      best_.swap(next_);
      // The minimum cost with exactly `used` capacities is convex in `used`, because the segment
      // cost is Monge.
      if (!(best_[n] < least)) {
        before_.pop_back();
        break;
      }
      least = best_[n];
    }
    return Path(n);
  }

 private:
  void Append(int32_t tokens, double weight, double cost, double fixed_cost) {
    tokens_.push_back(tokens);
    cumulated_.push_back((cumulated_.empty() ? 0 : cumulated_.back()) + weight);
    cost_.push_back(cost);
    fixed_cost_.push_back(fixed_cost);
  }

  // Fills next_ for last capacities within [first, last], if the previous capacity is within [low,
  // high]. As the last capacity grows, the best predecessor never decreases.
  void Extend(int32_t first, int32_t last, int32_t low, int32_t high) {
    if (first > last) return;
    const int32_t middle = first + (last - first) / 2;
    double least = std::numeric_limits<double>::infinity();
    int32_t argument = low;
    for (int32_t i = low; i <= std::min(high, middle - 1); ++i) {
      const double total = best_[i] + (cumulated_[middle] - cumulated_[i]) * cost_[middle];
      if (total < least) {
        least = total;
        argument = i;
      }
    }
    next_[middle] = least + fixed_cost_[middle];
    before_.back()[middle] = argument;
    Extend(first, middle - 1, low, argument);
    Extend(middle + 1, last, argument, high);
  }

  std::vector<int32_t> Path(int32_t last) const {
    std::vector<int32_t> capacities(before_.size());
    for (size_t used = before_.size(); used > 0; --used) {
      capacities[used - 1] = tokens_[last];
      last = before_[used - 1][last];
    }
    return capacities;
  }

  std::vector<int32_t> tokens_;
  std::vector<double> cumulated_;  // by size: total weight of the sizes up to it
  std::vector<double> cost_;
  std::vector<double> fixed_cost_;
  std::vector<double> best_;  // by size: the minimum cost if it is the last capacity
  std::vector<double> next_;
  std::vector<std::vector<int32_t>> before_;  // by number used and size: the previous capacity
};

}  // namespace

std::vector<int32_t> FitCapacities(std::span<const TokenWeight> sizes, int32_t maximum, int count,
                                   const std::function<double(int32_t)>& cost,
                                   const std::function<double(int32_t)>& fixed_cost) {
  SLUICE_CHECK(count >= 1 && maximum >= 1);
  return Fitter(sizes, maximum, cost, fixed_cost).Fit(count);
}

}  // namespace sluice
