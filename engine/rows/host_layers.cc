#include "engine/rows/host_layers.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/gemm.h"

namespace sluice {

Floats FloatsOf(const Tensor& tensor) {
  Floats values(tensor.elements());
  kernels::ConvertToFloat(tensor.data, tensor.dtype, 0, tensor.elements(), values.data());
  return values;
}

void Relu(std::span<float> values) {
  for (float& value : values) value = std::max(value, 0.0f);
}

float Sigmoid(float x) { return static_cast<float>(1 / (1 + std::exp(-double{x}))); }

HostLayers::HostLayers(std::optional<kernels::Profile> profile)
    : profile_(profile ? *profile : kernels::BestProfile()),
      thread_(std::make_unique<kernels::ThreadPool>(1)) {}

HostLayers::Layer HostLayers::Pack(const float* data, int64_t out, int64_t in,
                                   std::span<const float> bias) const {
  const kernels::WeightSource source{.data = data,
                                     .dtype = kernels::DType::kF32,
                                     .matrices = 1,
                                     .k = in,
                                     .n = out,
                                     .transposed = true};
  return {.weights = kernels::PackedWeights::Pack({profile_, thread_.get()}, source),
          .bias = Floats(bias.begin(), bias.end())};
}

HostLayers::Layer HostLayers::PackTransposed(const float* data, int64_t in, int64_t out) const {
  const kernels::WeightSource source{.data = data,
                                     .dtype = kernels::DType::kF32,
                                     .matrices = 1,
                                     .k = in,
                                     .n = out,
                                     .transposed = false};
  return {.weights = kernels::PackedWeights::Pack({profile_, thread_.get()}, source), .bias = {}};
}

HostLayers::Layer HostLayers::Pack(const SpanWeights::Linear& linear) const {
  return Pack(FloatsOf(linear.weight).data(), linear.weight.shape[0], linear.weight.shape[1],
              FloatsOf(linear.bias));
}

HostLayers::Projection HostLayers::Pack(const SpanWeights::Projection& projection) const {
  return {.in = Pack(projection.in), .out = Pack(projection.out)};
}

Floats HostLayers::Apply(const Layer& layer, std::span<const float> rows) const {
  const int64_t k = layer.weights.k(), n = layer.weights.n(), count = std::ssize(rows) / k;
  Floats out(count * n);
  if (count == 0) return out;
  kernels::Gemm({profile_, thread_.get()}, layer.weights, count,
                {.x = rows.data(),
                 .ldx = k,
                 .bias = layer.bias.empty() ? nullptr : layer.bias.data(),
                 .bias_stride = 0,
                 .out = out.data(),
                 .ldo = n,
                 .accumulate = false});
  return out;
}

Floats HostLayers::Apply(const Projection& projection, std::span<const float> rows) const {
  Floats inner = Apply(projection.in, rows);
  Relu(inner);
  return Apply(projection.out, inner);
}

void HostLayers::AddTo(const Layer& layer, std::span<const float> row, float* out) const {
  kernels::Gemm({profile_, thread_.get()}, layer.weights, 1,
                {.x = row.data(),
                 .ldx = layer.weights.k(),
                 .bias = nullptr,
                 .bias_stride = 0,
                 .out = out,
                 .ldo = layer.weights.n(),
                 .accumulate = true});
}

}  // namespace sluice
