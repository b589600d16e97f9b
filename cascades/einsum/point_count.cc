#include "cascades/einsum/point_count.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sluice::einsum {
namespace {

constexpr int64_t kMaxPlaces = int64_t{1} << 20;

// The sum of the terms and the offset is at least 0.
struct Inequality {
  std::vector<int64_t> factors;  // of each rank of the einsum
  int64_t offset = 0;
};

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// The inequalities that hold where an einsum has points.
class Constraints {
 public:
  Constraints(const Cascade& cascade, const Einsum& einsum, const Sizes& size_of)
      : ranks_(RanksOf(einsum)), size_of_(size_of) {
    for (const Condition& each : einsum.where) {
      const Inequality left = At(each.left), right = At(each.right);
      AddOrder(left, right, each.comparison == Comparison::kLess ? 1 : 0);
      if (each.comparison == Comparison::kEqual) AddOrder(right, left, 0);
    }
    for (const Access& access : einsum.in) {
      const auto tensor = std::ranges::find(cascade.tensors, access.tensor, &Tensor::name);
      if (tensor == cascade.tensors.end()) continue;
      for (size_t i = 0; i < access.indices.size(); ++i) {
        if (access.indices[i].terms.size() < 2) continue;
        const Inequality index = At(access.indices[i]);
        all_.push_back(index);
        AddOrder(index, At({.terms = {}, .end_of = tensor->ranks[i]}), 1);
      }
    }
  }

  const std::vector<std::string>& ranks() const { return ranks_; }
  const std::vector<Inequality>& all() const { return all_; }

  bool Name(size_t rank) const {
    return std::ranges::any_of(all_, [&](const auto& each) { return each.factors[rank] != 0; });
  }

 private:
  Inequality At(const Index& index) const {
    Inequality result{std::vector<int64_t>(ranks_.size()), index.offset};
    if (!index.end_of.empty()) result.offset += size_of_.at(index.end_of);
    for (const Index::Term& term : index.terms) {
      result.factors[std::ranges::find(ranks_, term.rank) - ranks_.begin()] += term.factor;
    }
    return result;
  }

  // Adds b - a - gap >= 0.
  void AddOrder(const Inequality& a, Inequality b, int64_t gap) {
    b.offset -= a.offset + gap;
    for (size_t i = 0; i < b.factors.size(); ++i) b.factors[i] -= a.factors[i];
    all_.push_back(std::move(b));
  }

  const std::vector<std::string> ranks_;
  const Sizes& size_of_;
  std::vector<Inequality> all_;
};

// Inequalities over the ranks that they name. The largest rank is the last.
struct System {
  std::vector<int64_t> sizes;
  std::vector<Inequality> inequalities;

  // Returns the places of all ranks but the last, or more than kMaxPlaces.
  int64_t Places() const {
    int64_t places = 1;
    for (size_t i = 0; i + 1 < sizes.size() && places <= kMaxPlaces; ++i) places *= sizes[i];
    return places;
  }

  std::vector<int64_t> Numbers() const {
    std::vector<int64_t> numbers = sizes;
    for (const Inequality& each : inequalities) {
      numbers.insert(numbers.end(), each.factors.begin(), each.factors.end());
      numbers.push_back(each.offset);
    }
    return numbers;
  }

  // Returns the number of points that satisfy all inequalities.
  int64_t Count() const {
    std::vector<int64_t> rests;  // of each inequality, without the last rank
    rests.reserve(inequalities.size());
    for (const Inequality& each : inequalities) rests.push_back(each.offset);
    std::vector<int64_t> point(sizes.size());
    int64_t count = 0;
    do {
      count += CountLast(rests);
    } while (Advance(&point, &rests));
    return count;
  }

 private:
  int64_t CountLast(const std::vector<int64_t>& rests) const {
    int64_t first = 0;
    int64_t last = sizes.back() - 1;
    for (size_t i = 0; i < rests.size(); ++i) {
      const int64_t factor = inequalities[i].factors.back();
      if (factor == 0 && rests[i] < 0) return 0;
      if (factor > 0) first = std::max(first, -FloorDiv(rests[i], factor));
      if (factor < 0) last = std::min(last, FloorDiv(rests[i], -factor));
    }
    return std::max<int64_t>(0, last - first + 1);
  }

  // Moves on along all ranks but the last, and returns false at their end.
  bool Advance(std::vector<int64_t>* point, std::vector<int64_t>* rests) const {
    for (size_t rank = 0; rank + 1 < sizes.size(); ++rank) {
      const bool wraps = ++(*point)[rank] == sizes[rank];
      if (wraps) (*point)[rank] = 0;
      for (size_t i = 0; i < rests->size(); ++i) {
        (*rests)[i] += inequalities[i].factors[rank] * (wraps ? 1 - sizes[rank] : 1);
      }
      if (!wraps) return true;
    }
    return false;
  }
};

}  // namespace

absl::StatusOr<double> PointCounter::Count(const Einsum& einsum) {
  const Constraints constraints(cascade_, einsum, size_of_);
  double free_points = 1;
  std::vector<std::pair<int64_t, size_t>> named;  // by size
  for (size_t i = 0; i < constraints.ranks().size(); ++i) {
    const int64_t size = size_of_.at(constraints.ranks()[i]);
    if (constraints.Name(i)) {
      named.emplace_back(size, i);
    } else {
      free_points *= static_cast<double>(size);
    }
  }
  std::ranges::sort(named);
  if (named.empty()) named.emplace_back(1, 0);  // one point, for conditions that name no rank
  System system;
  for (const auto& [size, rank] : named) system.sizes.push_back(size);
  for (const Inequality& each : constraints.all()) {
    Inequality& inequality = system.inequalities.emplace_back();
    inequality.offset = each.offset;
    for (const auto& [size, rank] : named) {
      inequality.factors.push_back(each.factors.empty() ? 0 : each.factors[rank]);
    }
  }
  const int64_t places = system.Places();
  if (places > kMaxPlaces || system.inequalities.empty()) {
    for (const auto& [size, rank] : named) free_points *= static_cast<double>(size);
    return free_points;
  }
  const auto [known, is_new] = known_.try_emplace(system.Numbers(), 0);
  if (is_new) {
    steps_ += places * std::ssize(system.inequalities);
    if (steps_ > kMaxCountingSteps) {
      return absl::InvalidArgumentError(absl::StrCat(
          "einsum '", einsum.out.tensor, "': counting where the conditions of the cascade hold ",
          "takes more than ", kMaxCountingSteps, " steps"));
    }
    known->second = static_cast<double>(system.Count());
  }
  return known->second * free_points;
}

}  // namespace sluice::einsum
