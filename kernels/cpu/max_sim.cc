#include "kernels/cpu/max_sim.h"

#include <limits>

#include "base/ceil_div.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {

MaxSimQuery::MaxSimQuery(Profile profile, std::span<const float> vectors, int64_t width)
    : profile_(profile),
      vectors_(std::ssize(vectors) / width),
      width_(width),
      stride_(CeilDiv(vectors_, simd::kMaxSimColumns) * simd::kMaxSimColumns),
      by_feature_(width * stride_) {
  for (int64_t vector = 0; vector < vectors_; ++vector) {
    for (int64_t i = 0; i < width; ++i) {
      by_feature_[i * stride_ + vector] = vectors[vector * width + i];
    }
  }
}

double MaxSimQuery::Score(std::span<const float> document) const {
  const int64_t count = std::ssize(document) / width_;
  if (count == 0) return 0;
  std::vector<float> best(stride_, -std::numeric_limits<float>::infinity());
  simd::MaxSimFor(profile_)({.query = by_feature_.data(),
                             .stride = stride_,
                             .width = width_,
                             .documents = document.data(),
                             .count = count,
                             .best = best.data()});
  double sum = 0;
  for (int64_t i = 0; i < vectors_; ++i) sum += best[i];
  return sum;
}

}  // namespace sluice::kernels
