// MaxSim, the score of late interaction (ColBERT, arXiv 2004.12832):
//   score = sum over the vectors q of a query of max over the vectors d of a document of q . d
//
// A product is one sum over ascending features, by fused multiply-adds in f32. The maxima are
// summed in double, in the order of the query's vectors. A score therefore has the same bits with
// every instruction set, and depends on no other document.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/profile.h"

namespace sluice::kernels {

// The vectors of a query, laid out for products with documents.
class MaxSimQuery {
 public:
  // `vectors` is [n, width]. `profile` selects the instructions and must be supported.
  MaxSimQuery(Profile profile, std::span<const float> vectors, int64_t width);

  // Returns the most bytes of a query in addition to twice its vectors.
  static int64_t ExtraBytes(int64_t width) {
    return static_cast<int64_t>(sizeof(MaxSimQuery)) + 32 * width * 4;
  }

  int64_t vectors() const { return vectors_; }
  // Returns the score of a document, [m, width]. Returns 0 if the query or the document has no
  // vector. All values must be finite.
  double Score(std::span<const float> document) const;

 private:
  Profile profile_;
  int64_t vectors_, width_;
  int64_t stride_;                 // vectors_, rounded up to whole blocks of columns
  std::vector<float> by_feature_;  // [width, stride]
};

}  // namespace sluice::kernels
