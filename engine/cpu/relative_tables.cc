#include "engine/cpu/relative_tables.h"

#include <cstddef>
#include <optional>

#include "base/ceil_div.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "engine/cpu/float_buffer.h"
#include "engine/cpu/weights.h"
#include "engine/model/relative_bias.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/norm.h"

namespace sluice {

absl::StatusOr<std::shared_ptr<const kernels::RelativePositions>> RelativeTableMaker::Make(
    const RelativeTables& tables) {
  const ModelConfig& config = model_.config;
  if (rows_.empty()) SLUICE_RETURN_IF_ERROR(ReadRows(tables));
  std::vector<float> keys, queries;
  if (tables.keys) {
    SLUICE_ASSIGN_OR_RETURN(keys, Project(*tables.keys));
  }
  if (tables.queries) {
    SLUICE_ASSIGN_OR_RETURN(queries, Project(*tables.queries));
  }
  auto made = std::make_shared<kernels::RelativePositions>(
      context_, static_cast<int32_t>(config.heads), static_cast<int32_t>(config.head_dim), keys,
      queries, RelativeRows(tables.span, tables.max_distance, config.max_positions));
  bytes_ += made->bytes();
  return made;
}

absl::Status RelativeTableMaker::ReadRows(const RelativeTables& tables) {
  WeightLoader loader(model_.checkpoint, model_.config.stored_quantization, context_);
  const int64_t width = model_.config.hidden_size, rows = 2 * tables.span;
  SLUICE_ASSIGN_OR_RETURN(rows_, loader.Floats(tables.positions, rows * width));
  if (!tables.norm) return absl::OkStatus();
  const NormOp& norm = *tables.norm;
  SLUICE_ASSIGN_OR_RETURN(std::vector<float> weight, loader.Floats(norm.weight, width));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<float> bias, loader.Floats(norm.bias, width));
  for (float& value : weight) value += norm.weight_offset;
  const float* const scale = weight.empty() ? nullptr : weight.data();
  switch (norm.kind) {
    case NormKind::kRms:
      kernels::RmsNorm(context_, rows_.data(), scale, norm.eps, rows, width, rows_.data());
      break;
    case NormKind::kLayer:
      kernels::LayerNorm(context_, rows_.data(), scale, bias.empty() ? nullptr : bias.data(),
                         norm.eps, rows, width, rows_.data());
      break;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> RelativeTableMaker::Project(const LinearOp& op) {
  const ModelConfig& config = model_.config;
  const int64_t k = config.hidden_size, n = config.heads * config.head_dim;
  const int64_t rows = std::ssize(rows_) / k;
  WeightLoader loader(model_.checkpoint, config.stored_quantization, context_);
  const WeightPrecision wanted = PrecisionOf(model_, op);
  SLUICE_ASSIGN_OR_RETURN(
      const kernels::PackedWeights weights,
      loader.Dense(op.weight, op.layout, k, n, wanted.stored ? wanted : WeightPrecision{}));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<float> bias, loader.Floats(op.bias, n));
  std::vector<float> projected(rows * n);
  kernels::GemmArgs args = {.x = rows_.data(),
                            .ldx = k,
                            .bias = bias.empty() ? nullptr : bias.data(),
                            .bias_stride = 0,
                            .out = projected.data(),
                            .ldo = n,
                            .accumulate = false};
  std::optional<FloatBuffer> memory;
  std::vector<float> factors(k, 1.0f);
  if (weights.quantized()) {
    const bool sums = weights.format() == kernels::WeightFormat::kInt4;
    const int64_t bytes = kernels::QuantizedRows::Bytes(context_.profile, rows, k, sums);
    SLUICE_ASSIGN_OR_RETURN(
        memory, FloatBuffer::Allocate(CeilDiv(bytes, kSizeOf<float>), "relative positions"));
    args.quantized = {context_.profile, rows, k, sums,
                      reinterpret_cast<std::byte*>(memory->data())};
    for (const int32_t channel : weights.kept_channels()) factors[channel] = 0;
    if (!weights.kept_channels().empty()) args.quantized.MultiplyBy(factors.data());
    kernels::QuantizeRows(context_, args.x, k, rows, args.quantized);
  }
  kernels::Gemm(context_, weights, rows, args);
  return projected;
}

}  // namespace sluice
