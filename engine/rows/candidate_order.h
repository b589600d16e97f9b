// The order of a row's candidates: by their scores, or with a diversity as they are chosen one
// after another (kernels/diversity.h).
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
  // `ids` and `scores` are those of the row's candidates; -1 stands for none.
  CandidateOrder(std::span<const int32_t> ids, std::span<const float> scores, double diversity);
  CandidateOrder(const CandidateOrder&) = delete;  // choice_ refers to members
  CandidateOrder& operator=(const CandidateOrder&) = delete;

  // Returns the most memory of the order of n candidates.
  static int64_t Bytes(int64_t n, double diversity);

  // Returns the number of choices that are left, which is 0 without a diversity.
  int64_t left() const;
  // Makes one, if any is left: about as many products of vectors as there are candidates.
  void ChooseNext(const ItemHead& items);
  // Writes the indexes of the candidates in their order, then -1 for those that are none. Requires
  // left() == 0.
  void Write(int32_t* order) const;

 private:
  const std::span<const int32_t> ids_;
  std::vector<int32_t> places_;  // of those that are not -1, by descending score
  std::vector<float> scores_;    // of these
  std::vector<double> scratch_;
  std::optional<kernels::DiverseChoice> choice_;  // with a diversity
  std::vector<int32_t> chosen_;                   // indexes into places_
};

}  // namespace sluice
