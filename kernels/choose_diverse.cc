#include "kernels/choose_diverse.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/diversity.h"

namespace sluice::kernels {
namespace {

// The value of `rest` of a chosen candidate.
constexpr double kChosen = -1;

// Returns the candidate with the largest gain of all that are not chosen, the first of equal ones.
int64_t BestGain(std::span<const float> scores, const double* rest, double diversity) {
  int64_t best = -1;
  float most = 0;
  for (int64_t i = 0; i < std::ssize(scores); ++i) {
    if (rest[i] == kChosen) continue;
    const float gain = DiverseGain(scores[i], rest[i], diversity);
    if (best >= 0 && !(gain > most)) continue;
    best = i;
    most = gain;
  }
  return best;
}

}  // namespace

DiverseChoice::DiverseChoice(std::span<const float> scores, double diversity, double* scratch)
    : scores_(scores),
      diversity_(diversity),
      rest_(scratch),
      length_(scratch + scores.size()),
      factor_(scratch + 2 * scores.size()) {
  std::fill_n(rest_, scores.size(), 1.0);
}

int32_t DiverseChoice::Next(VectorProduct product) {
  if (diversity_ > 0 && latest_ < 0) {
    for (int64_t i = 0; i < std::ssize(scores_); ++i) length_[i] = std::sqrt(product(i, i));
  } else if (diversity_ > 0 && rest_of_latest_ >= kMinRest) {
    AddRow(product);
  }
  latest_ = BestGain(scores_, rest_, diversity_);
  SLUICE_CHECK(latest_ >= 0);
  rest_of_latest_ = rest_[latest_];
  rest_[latest_] = kChosen;
  return static_cast<int32_t>(latest_);
}

void DiverseChoice::AddRow(VectorProduct product) {
  const int64_t n = std::ssize(scores_), j = latest_;
  double* const row = factor_ + rows_ * n;
  for (int64_t i = 0; i < n; ++i) {
    if (rest_[i] == kChosen) continue;
    const double lengths = length_[i] * length_[j];
    double value = (1 + (lengths > 0 ? product(i, j) / lengths : 0)) / 2;
    for (int64_t r = 0; r < rows_; ++r) value -= factor_[r * n + j] * factor_[r * n + i];
    row[i] = value / std::sqrt(rest_of_latest_);
    rest_[i] = std::max(rest_[i] - row[i] * row[i], 0.0);
  }
  ++rows_;
}

void ChooseDiverse(std::span<const float> scores, double diversity, VectorProduct product,
                   std::span<int32_t> chosen, double* scratch) {
  SLUICE_CHECK(chosen.size() <= scores.size());
  DiverseChoice choice(scores, diversity, scratch);
  for (int32_t& place : chosen) place = choice.Next(product);
}

}  // namespace sluice::kernels
