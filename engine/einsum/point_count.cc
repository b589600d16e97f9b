#include "engine/einsum/point_count.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sluice::einsum {
namespace {

constexpr double kMaxCombinations = 1 << 20;

// The sum of the terms and the offset is at least 0.
struct Inequality {
  std::map<std::string, int64_t> factors;
  int64_t offset = 0;
};

Inequality NotNegative(const Index& index, const Sizes& size_of) {
  Inequality result{.factors = {}, .offset = index.offset};
  if (!index.end_of.empty()) result.offset += size_of.at(index.end_of);
  for (const Index::Term& term : index.terms) result.factors[term.rank] += term.factor;
  return result;
}

// Returns b - a - gap >= 0.
Inequality Ordered(const Inequality& a, const Inequality& b, int64_t gap) {
  Inequality result = b;
  result.offset -= a.offset + gap;
  for (const auto& [rank, factor] : a.factors) result.factors[rank] -= factor;
  return result;
}

std::vector<Inequality> InequalitiesOf(const Cascade& cascade, const Einsum& einsum,
                                       const Sizes& size_of) {
  std::vector<Inequality> all;
  for (const Condition& each : einsum.where) {
    const Inequality left = NotNegative(each.left, size_of);
    const Inequality right = NotNegative(each.right, size_of);
    all.push_back(Ordered(left, right, each.comparison == Comparison::kLess ? 1 : 0));
    if (each.comparison == Comparison::kEqual) all.push_back(Ordered(right, left, 0));
  }
  for (const Tensor& tensor : cascade.tensors) {
    for (const Access& access : einsum.in) {
      if (access.tensor != tensor.name) continue;
      for (size_t i = 0; i < access.indices.size(); ++i) {
        if (access.indices[i].terms.size() < 2) continue;
        const Inequality index = NotNegative(access.indices[i], size_of);
        all.push_back(index);
        all.push_back(Ordered(index, {.factors = {}, .offset = size_of.at(tensor.ranks[i])}, 1));
      }
    }
  }
  return all;
}

// The points of one rank at which all inequalities hold, with the others at `point`.
class LastRank {
 public:
  LastRank(const std::vector<Inequality>& inequalities, std::string rank, int64_t size)
      : inequalities_(inequalities), rank_(std::move(rank)), size_(size) {}

  int64_t CountAt(const std::map<std::string, int64_t>& point) const {
    int64_t first = 0;
    int64_t last = size_ - 1;
    for (const Inequality& each : inequalities_) {
      int64_t rest = each.offset;
      int64_t factor = 0;
      for (const auto& [rank, of_rank] : each.factors) {
        if (rank == rank_) {
          factor = of_rank;
        } else {
          rest += of_rank * point.at(rank);
        }
      }
      if (factor == 0 && rest < 0) return 0;
      if (factor > 0) first = std::max(first, -FloorDiv(rest, factor));
      if (factor < 0) last = std::min(last, FloorDiv(rest, -factor));
    }
    return std::max<int64_t>(0, last - first + 1);
  }

 private:
  static int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

  const std::vector<Inequality>& inequalities_;
  const std::string rank_;
  const int64_t size_;
};

}  // namespace

double CountPoints(const Cascade& cascade, const Einsum& einsum, const Sizes& size_of) {
  const std::vector<Inequality> inequalities = InequalitiesOf(cascade, einsum, size_of);
  double free_points = 1;
  double all = 1;
  std::vector<std::pair<int64_t, std::string>> bound;  // by size
  for (const std::string& rank : RanksOf(einsum)) {
    const int64_t size = size_of.at(rank);
    all *= static_cast<double>(size);
    const bool is_bound = std::ranges::any_of(
        inequalities, [&](const Inequality& each) { return each.factors.contains(rank); });
    if (is_bound) {
      bound.emplace_back(size, rank);
    } else {
      free_points *= static_cast<double>(size);
    }
  }
  if (inequalities.empty()) return all;
  std::ranges::sort(bound);
  std::pair<int64_t, std::string> largest = {1, ""};
  if (!bound.empty()) {
    largest = bound.back();
    bound.pop_back();
  }
  double combinations = 1;
  std::map<std::string, int64_t> point;
  for (const auto& [size, rank] : bound) {
    combinations *= static_cast<double>(size);
    point[rank] = 0;
  }
  if (combinations > kMaxCombinations) return all;
  const LastRank last(inequalities, largest.second, largest.first);
  double count = 0;
  const auto advance = [&] {
    for (const auto& [size, rank] : bound) {
      if (++point[rank] < size) return true;
      point[rank] = 0;
    }
    return false;
  };
  do {
    count += static_cast<double>(last.CountAt(point));
  } while (advance());
  return count * free_points;
}

}  // namespace sluice::einsum
