// The rows that a device computes for a step.
//
// Some layers compute the rows of the batch. Others compute all rows of the bucket, whether the
// batch fills it or not: then the host's launches do not depend on the batch and can be captured. A
// library supports only some numbers of rows, and computes the next larger one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// The largest number of rows that a library's algorithm computes at a time.
inline constexpr int32_t kMaxDenseRows = 4096;

// Returns the smallest number of rows >= `rows` that a library's algorithms are tried with; they
// never compute another number. Above 32 there are four such numbers in an octave, so the result is
// at most a quarter larger. Requires 1 <= rows <= kMaxDenseRows.
constexpr int32_t TriedRows(int32_t rows) {
  const auto above = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(rows)));
  if (above <= 32) return above;
  const int32_t step = above / 8;
  return (rows + step - 1) / step * step;
}

// The rows that one model's steps compute on one device. Rows that only complete the tile of a
// matrix instruction do not count.
class ComputedRows {
 public:
  // Layers that compute all rows of a bucket, in slices of `slice` rows and one for the remainder.
  struct BucketLayers {
    double share = 1;   // of the multiply-adds of a row in all dense layers; in (0, 1]
    int32_t slice = 0;  // a power of two up to kMaxDenseRows; 0: any number of rows, without slices
    int32_t least = 1;  // the least rows of a slice

    bool operator==(const BucketLayers&) const = default;
  };

  // Every layer computes the rows of the batch only.
  static ComputedRows OfBatch() { return {}; }
  // Every layer computes exactly the rows of the bucket.
  static ComputedRows OfBucket() { return OfLayers({BucketLayers{}}); }
  // Every layer is computed by a library.
  static ComputedRows OfLibrary() { return OfLayers({BucketLayers{.slice = kMaxDenseRows}}); }

  // These layers compute the rows of the bucket, and the others the rows of the batch. Requires
  // shares above 0 with a sum of at most 1, up to rounding.
  static ComputedRows OfLayers(std::vector<BucketLayers> layers);

  std::span<const BucketLayers> layers() const { return layers_; }
  // Whether a bucket's unused rows cost nothing.
  bool batch_only() const { return layers_.empty(); }

  // Returns the rows that the layers of BucketLayers compute in a bucket of `tokens` rows, as the
  // mean over all dense layers by multiply-adds; 0 if there are no such layers.
  double OfBucketLayers(int32_t tokens) const {
    double rows = 0;
    for (const BucketLayers& each : layers_) rows += each.share * RowsOf(each, tokens);
    return rows;
  }
  // Returns the rows that a step computes in a bucket of `bucket_tokens` rows, as the mean over all
  // dense layers by multiply-adds, rounded.
  int64_t Of(int32_t bucket_tokens, int64_t batch_tokens) const;

  // Returns whether a bucket of `tokens` rows is computed without further rows.
  bool Exact(int32_t tokens) const { return RoundUp(tokens) == tokens; }
  // Returns the smallest number of rows >= `tokens` for which Exact holds.
  int32_t RoundUp(int32_t tokens) const;

  bool operator==(const ComputedRows&) const = default;

 private:
  static int32_t RowsOf(const BucketLayers& layers, int32_t tokens) {
    if (layers.slice == 0 || tokens <= 0) return tokens;
    const int32_t rest = tokens % layers.slice;
    return rest == 0 ? tokens : tokens - rest + TriedRows(std::max(rest, layers.least));
  }

  std::vector<BucketLayers> layers_;
};

}  // namespace sluice
