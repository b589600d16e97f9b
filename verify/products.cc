#include "verify/products.h"

#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/quantized_rows.h"
#include "verify/int8_rows.h"

namespace sluice::verify {
namespace {

kernels::WeightSource SourceOf(const void* w, kernels::DType dtype, int64_t columns,
                               int64_t width) {
  return {.data = w, .dtype = dtype, .matrices = 1, .k = width, .n = columns, .transposed = true};
}

std::vector<float> Multiply(const kernels::Context& context, const kernels::PackedWeights& weights,
                            std::span<const float> x, const kernels::QuantizedRows& quantized) {
  const int64_t rows = std::ssize(x) / weights.k();
  std::vector<float> out(static_cast<size_t>(rows * weights.n()));
  kernels::Gemm(context, weights, rows,
                {.x = x.data(),
                 .ldx = weights.k(),
                 .bias = nullptr,
                 .bias_stride = 0,
                 .out = out.data(),
                 .ldo = weights.n(),
                 .accumulate = false,
                 .quantized = quantized});
  return out;
}

}  // namespace

Squares SquaresOf(std::span<const float> exact, std::span<const float> found) {
  Squares squares;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double error = static_cast<double>(found[i]) - exact[i];
    squares.output += static_cast<double>(exact[i]) * exact[i];
    squares.error += error * error;
  }
  return squares;
}

std::vector<float> Products::InF32(std::span<const float> x, std::span<const float> w,
                                   int64_t width) const {
  const auto source = SourceOf(w.data(), kernels::DType::kF32, std::ssize(w) / width, width);
  return Multiply(context_, kernels::PackedWeights::Pack(context_, source), x, {});
}

std::vector<float> Products::InInt8(std::span<const float> x, std::span<const float> w,
                                    int64_t width, std::span<const int32_t> kept) const {
  const int64_t rows = std::ssize(x) / width, columns = std::ssize(w) / width;
  const int64_t bytes = kernels::QuantizedRows::Bytes(context_.profile, rows, width, false);
  const std::unique_ptr<void, decltype(&std::free)> memory(kernels::AllocateMemory(bytes),
                                                           &std::free);
  SLUICE_CHECK(memory != nullptr);
  kernels::QuantizedRows quantized(context_.profile, rows, width, false,
                                   static_cast<std::byte*>(memory.get()));
  std::vector<float> factors(static_cast<size_t>(width), 1.0f), weights;
  for (const int32_t channel : kept) factors[channel] = 0;
  for (int64_t c = 0; c < columns; ++c) {
    for (const int32_t channel : kept) weights.push_back(w[c * width + channel]);
  }
  if (!kept.empty()) quantized.MultiplyBy(factors.data());
  kernels::QuantizeRows(context_, x.data(), width, rows, quantized);
  const Int8Rows stored = QuantizeRows(w, width, kept);
  kernels::WeightSource source =
      SourceOf(stored.values.data(), kernels::DType::kI8, columns, width);
  source.scales = stored.scales.data();
  source.kept = {.channels = kept, .weights = weights.data(), .dtype = kernels::DType::kF32};
  return Multiply(context_, kernels::PackedWeights::PackInt8(context_, source), x, quantized);
}

}  // namespace sluice::verify
