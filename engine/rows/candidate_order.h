// The order of a row's candidates: by score or, with a diversity, in the order in which they are
// chosen (kernels/diversity.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/model/output_heads.h"
#include "kernels/choose_diverse.h"

namespace sluice {

class CandidateOrder {
 public:
  // `ids` and `scores` belong to the row's candidates; an id of -1 means no candidate.
  CandidateOrder(std::span<const int32_t> ids, std::span<const float> scores, double diversity);
  CandidateOrder(const CandidateOrder&) = delete;  // choice_ refers to members
  CandidateOrder& operator=(const CandidateOrder&) = delete;

  // Returns the maximum memory for the order of n candidates.
  static int64_t Bytes(int64_t n, double diversity);

  // Returns the number of remaining choices; 0 without a diversity.
  int64_t left() const;
  // Makes one choice, if any is left. Computes about one vector product per candidate.
  void ChooseNext(const ItemHead& items);
  // Writes the indexes of the candidates in their order, then -1 for each id of -1. Requires left()
  // == 0.
  void Write(int32_t* order) const;

 private:
  const std::span<const int32_t> ids_;
  std::vector<int32_t> places_;  // indexes of ids other than -1, by descending score
  std::vector<float> scores_;    // of places_
  std::vector<double> scratch_;
  std::optional<kernels::DiverseChoice> choice_;  // with a diversity
  std::vector<int32_t> chosen_;                   // indexes into places_
};

}  // namespace sluice
