#include "engine/cuda/relative_tables.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model/relative_bias.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/profile.h"

namespace sluice {
namespace {

absl::Status OnlyOnCpu(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("disentangled attention with ", what,
                   " runs only on a CPU; serve the model with device: cpu"));
}

}  // namespace

absl::StatusOr<kernels::cuda::RelativeTable> DeviceRelativeTables::Make(const AttentionOp& op) {
  if (op.causal) return OnlyOnCpu("causal attention");
  if (op.window > 0) return OnlyOnCpu("a window");
  if (op.soft_cap != 0) return OnlyOnCpu("a soft cap");
  if (op.silu_share != 0) return OnlyOnCpu("SiLU of scores");
  if (op.biased()) return OnlyOnCpu("a relative bias");
  if (op.xsa) return OnlyOnCpu("XSA");
  if (model_.config.head_dim > kernels::cuda::kMaxRelativeHeadDim) {
    return OnlyOnCpu(absl::StrCat("heads of more than ", kernels::cuda::kMaxRelativeHeadDim));
  }
  const RelativeTables& tables = *op.relative;
  const int64_t positions = model_.config.max_positions;
  if (rows_.empty()) {
    SLUICE_RETURN_IF_ERROR(ReadRows(tables));
    SLUICE_ASSIGN_OR_RETURN(
        row_of_, weights_.Put(RelativeRows(tables.span, tables.max_distance, positions)));
  }
  kernels::cuda::RelativeTable made = {.row_of = row_of_,
                                       .positions = static_cast<int32_t>(positions)};
  if (tables.keys) {
    SLUICE_ASSIGN_OR_RETURN(made.keys, Project(*tables.keys));
  }
  if (tables.queries) {
    SLUICE_ASSIGN_OR_RETURN(made.queries, Project(*tables.queries));
  }
  return made;
}

absl::StatusOr<std::vector<float>> DeviceRelativeTables::Floats(const TensorPart& part,
                                                                int64_t count) const {
  std::vector<float> values;
  if (!part.present()) return values;
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, model_.checkpoint.Find(part.name, part.shape));
  values.resize(count);
  kernels::ConvertToFloat(tensor.data, tensor.dtype, part.first, count, values.data());
  return values;
}

absl::Status DeviceRelativeTables::ReadRows(const RelativeTables& tables) {
  const int64_t width = model_.config.hidden_size, rows = 2 * tables.span;
  SLUICE_ASSIGN_OR_RETURN(rows_, Floats(tables.positions, rows * width));
  if (!tables.norm) return absl::OkStatus();
  const NormOp& norm = *tables.norm;
  SLUICE_ASSIGN_OR_RETURN(std::vector<float> weight, Floats(norm.weight, width));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<float> bias, Floats(norm.bias, width));
  for (float& value : weight) value += norm.weight_offset;
  const float* const scale = weight.empty() ? nullptr : weight.data();
  const kernels::Context context{kernels::BestProfile(), &thread_};
  switch (norm.kind) {
    case NormKind::kRms:
      kernels::RmsNorm(context, rows_.data(), scale, norm.eps, rows, width, rows_.data());
      break;
    case NormKind::kLayer:
      kernels::LayerNorm(context, rows_.data(), scale, bias.empty() ? nullptr : bias.data(),
                         norm.eps, rows, width, rows_.data());
      break;
  }
  return absl::OkStatus();
}

absl::StatusOr<const float*> DeviceRelativeTables::Project(const LinearOp& op) {
  if (PrecisionOf(model_, op).stored) return OnlyOnCpu("projections that are stored in int8");
  const int64_t k = model_.config.hidden_size, n = model_.config.heads * model_.config.head_dim;
  const int64_t rows = std::ssize(rows_) / k;
  SLUICE_ASSIGN_OR_RETURN(const std::vector<float> weight, Floats(op.weight, k * n));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<float> bias, Floats(op.bias, n));
  const kernels::Context context{kernels::BestProfile(), &thread_};
  const auto packed =
      kernels::PackedWeights::Pack(context, {.data = weight.data(),
                                             .dtype = kernels::DType::kF32,
                                             .matrices = 1,
                                             .k = k,
                                             .n = n,
                                             .transposed = op.layout == MatrixLayout::kOutIn});
  std::vector<float> projected(rows * n);
  kernels::Gemm(context, packed, rows,
                {.x = rows_.data(),
                 .ldx = k,
                 .bias = bias.empty() ? nullptr : bias.data(),
                 .bias_stride = 0,
                 .out = projected.data(),
                 .ldo = n,
                 .accumulate = false});
  return weights_.Put(projected);
}

}  // namespace sluice
