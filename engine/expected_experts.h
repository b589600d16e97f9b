// The number of experts that the rows of a step use.
#pragma once

#include <cmath>
#include <cstdint>

namespace sluice {

// The experts of a model's layers, and how many of them compute a row; 0 without experts.
struct ExpertCounts {
  int64_t experts = 0;
  int64_t chosen = 0;

  bool operator==(const ExpertCounts&) const = default;
};

// Returns the expected number of distinct experts that `rows` rows use if each row chooses its
// experts at random: experts (1 - (1 - chosen / experts)^rows). A step reads the matrices of these
// experts.
inline double ExpectedExperts(const ExpertCounts& counts, int64_t rows) {
  if (counts.experts <= 0) return 0;
  const auto all = static_cast<double>(counts.experts);
  const double others = 1 - static_cast<double>(counts.chosen) / all;
  return all * (1 - std::pow(others, static_cast<double>(rows)));
}

}  // namespace sluice
