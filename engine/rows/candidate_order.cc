#include "engine/rows/candidate_order.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/size_of.h"

namespace sluice {

CandidateOrder::CandidateOrder(std::span<const int32_t> ids, std::span<const float> scores,
                               double diversity)
    : ids_(ids) {
  for (int32_t i = 0; i < std::ssize(ids); ++i) {
    if (ids[i] >= 0) places_.push_back(i);
  }
  std::stable_sort(places_.begin(), places_.end(),
                   [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  if (diversity == 0) {
    chosen_.resize(places_.size());
    std::iota(chosen_.begin(), chosen_.end(), 0);
    return;
  }
  for (const int32_t place : places_) scores_.push_back(scores[place]);
  const auto n = std::ssize(places_);
  scratch_.resize(kernels::DiverseScratch(n, n));
  choice_.emplace(scores_, diversity, scratch_.data());
}

int64_t CandidateOrder::Bytes(int64_t n, double diversity) {
  const int64_t plain = 2 * n * kSizeOf<int32_t>;
  if (diversity == 0) return plain;
  return plain + n * kSizeOf<float> + kernels::DiverseScratch(n, n) * kSizeOf<double>;
}

int64_t CandidateOrder::left() const { return std::ssize(places_) - std::ssize(chosen_); }

void CandidateOrder::ChooseNext(const ItemHead& items) {
  if (left() == 0) return;
  chosen_.push_back(choice_->Next(
      [&](int64_t i, int64_t j) { return items.Product(ids_[places_[i]], ids_[places_[j]]); }));
}

void CandidateOrder::Write(int32_t* order) const {
  SLUICE_CHECK(left() == 0);
  std::fill_n(order, ids_.size(), -1);
  for (size_t i = 0; i < chosen_.size(); ++i) order[i] = places_[chosen_[i]];
}

}  // namespace sluice
