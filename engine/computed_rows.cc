#include "engine/computed_rows.h"

#include <cmath>
#include <utility>

#include "base/check.h"

namespace sluice {

ComputedRows ComputedRows::OfLayers(std::vector<BucketLayers> layers) {
  double shares = 0;
  for (const BucketLayers& each : layers) {
    SLUICE_CHECK(each.share > 0 && each.least >= 1);
    SLUICE_CHECK(each.slice >= 0 && each.slice <= kMaxDenseRows);
    SLUICE_CHECK(each.slice == 0 || std::has_single_bit(static_cast<uint32_t>(each.slice)));
    SLUICE_CHECK(each.slice == 0 || each.least <= each.slice);
    shares += each.share;
  }
  SLUICE_CHECK(shares <= 1 + 1e-9);
  ComputedRows rows;
  rows.layers_ = std::move(layers);
  return rows;
}

int64_t ComputedRows::Of(int32_t bucket_tokens, int64_t batch_tokens) const {
  double of_batch = 1;
  for (const BucketLayers& each : layers_) of_batch -= each.share;
  return std::llround(OfBucketLayers(bucket_tokens) +
                      std::max(of_batch, 0.0) * static_cast<double>(batch_tokens));
}

int32_t ComputedRows::RoundUp(int32_t tokens) const {
  // Each class of layers is satisfied in turn, until a number of rows satisfies all.
  for (int32_t before = -1; before != tokens;) {
    before = tokens;
    for (const BucketLayers& each : layers_) tokens = RowsOf(each, tokens);
  }
  return tokens;
}

}  // namespace sluice
