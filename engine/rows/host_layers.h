// Dense layers that the host computes for one row, such as those of a SpanHead.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/model/span_weights.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/profile.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice {

using Floats = std::vector<float>;

// Returns the values of a tensor as f32.
Floats FloatsOf(const Tensor& tensor);

void Relu(std::span<float> values);
float Sigmoid(float x);

// The profile and the thread of products. Immutable; thread-safe.
class HostLayers {
 public:
  struct Layer {
    kernels::PackedWeights weights;
    Floats bias;  // empty for none
  };
  // Two layers with ReLU between them.
  struct Projection {
    Layer in, out;
  };

  // Without a profile, uses the best f32 profile of the machine.
  explicit HostLayers(std::optional<kernels::Profile> profile);

  // Packs a matrix [out, in] with its bias; `data` is read during the call only.
  Layer Pack(const float* data, int64_t out, int64_t in, std::span<const float> bias) const;
  // Packs the transpose of a matrix [in, out].
  Layer PackTransposed(const float* data, int64_t in, int64_t out) const;
  Layer Pack(const SpanWeights::Linear& linear) const;
  Projection Pack(const SpanWeights::Projection& projection) const;

  // Returns the results for `rows`, [n, in], as [n, out]. A row's results depend on no other row.
  Floats Apply(const Layer& layer, std::span<const float> rows) const;
  Floats Apply(const Projection& projection, std::span<const float> rows) const;
  // Adds the results for one row to `out`. Requires a layer without bias.
  void AddTo(const Layer& layer, std::span<const float> row, float* out) const;

 private:
  const kernels::Profile profile_;
  const std::unique_ptr<kernels::ThreadPool> thread_;  // only the calling thread
};

}  // namespace sluice
