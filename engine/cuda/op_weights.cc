#include "engine/cuda/op_weights.h"

#include <cmath>
#include <functional>
#include <numeric>

#include "base/status_macros.h"
#include "engine/model/relative_bias.h"
#include "engine/model/rope.h"
#include "kernels/cuda/bfloat16.h"

namespace sluice {
namespace {

// Returns whether a layer consists of tensors of its own. Neighbouring columns of one tensor are
// loaded like one layer.
bool IsOfSeveral(const LinearOp& op) {
  return !op.more.empty() && op.layout != MatrixLayout::kInOut;
}

}  // namespace

int64_t ElementsOf(const TensorPart& part) {
  return std::accumulate(part.shape.begin(), part.shape.end(), int64_t{1}, std::multiplies<>()) -
         part.first;
}

template <typename T>
absl::StatusOr<const T*> OpWeights::Weight(const LinearOp& op) {
  const Checkpoint& source = model_.checkpoint;
  if (op.position_wise()) return weights_.Load<T>(source, op.weight, ElementsOf(op.weight));
  if (!op.one_matrix()) return weights_.LoadMatrices<T>(source, op, In(op), Out(op));
  if (IsOfSeveral(op)) {
    return weights_.LoadJoined<T>(source, ColumnsOf(op, &LinearOp::weight), In(op));
  }
  return weights_.LoadDense<T>(source, op.weight, op.layout, In(op), Out(op));
}

template <typename T>
absl::StatusOr<const T*> OpWeights::Bias(const LinearOp& op) {
  const Checkpoint& source = model_.checkpoint;
  if (IsOfSeveral(op)) {
    return weights_.LoadJoinedBias<T>(source, ColumnsOf(op, &LinearOp::bias));
  }
  return weights_.Load<T>(source, op.bias, op.bias_each ? ElementsOf(op.bias) : Out(op));
}

absl::StatusOr<Int8Weight> OpWeights::Int8(const LinearOp& op) {
  if (!PrecisionOf(model_, op).stored) {
    SLUICE_ASSIGN_OR_RETURN(const float* const weight, Weight<float>(op));
    return weights_.Quantize(weight, op.matrices, static_cast<int32_t>(In(op)),
                             static_cast<int32_t>(Out(op)));
  }
  if (!op.one_matrix()) return StoredMatricesError(op.weight);
  const std::vector<DeviceWeights::Columns> columns = ColumnsOf(op, &LinearOp::weight);
  for (const DeviceWeights::Columns& own : columns) {
    SLUICE_RETURN_IF_ERROR(CheckStoredLayout(*own.part, op.layout));
  }
  return weights_.LoadStoredInt8(model_.checkpoint, columns, In(op));
}

std::vector<DeviceWeights::Columns> OpWeights::ColumnsOf(const LinearOp& op,
                                                         TensorPart LinearOp::*first) const {
  const bool weights = first == &LinearOp::weight;
  std::vector<DeviceWeights::Columns> columns = {{&(op.*first), Out(op)}};
  for (const LinearOp::JoinedLayer& part : op.more) {
    columns.push_back({weights ? &part.weight : &part.bias, part.width});
    columns.front().count -= part.width;
  }
  return columns;
}

absl::StatusOr<const float*> OpWeights::Gates(const AttentionOp& op) {
  if (op.xsa_gate.empty()) return nullptr;
  const int64_t heads = model_.config.heads;
  SLUICE_ASSIGN_OR_RETURN(const Tensor alpha, model_.checkpoint.Find(op.xsa_gate, {heads}));
  std::vector<float> gates;
  for (int64_t h = 0; h < heads; ++h) {
    const double value = kernels::LoadAsFloat(alpha.data, alpha.dtype, h);
    gates.push_back(static_cast<float>(std::tanh(value)));
  }
  return weights_.Put(gates);
}

absl::StatusOr<const float*> OpWeights::RelativeBias(const AttentionOp& op) {
  if (!op.biased() || bias_ != nullptr) return bias_;
  if (op.alibi) {
    SLUICE_ASSIGN_OR_RETURN(
        bias_, weights_.Put(AlibiByDistance(model_.config.heads, model_.config.max_positions)));
    return bias_;
  }
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor,
                          model_.checkpoint.Find(op.relative_bias.name, op.relative_bias.shape));
  std::vector<float> table(tensor.elements());
  kernels::ConvertToFloat(tensor.data, tensor.dtype, 0, tensor.elements(), table.data());
  SLUICE_ASSIGN_OR_RETURN(
      bias_, weights_.Put(BiasByDistance(table, model_.config.heads, op.relative_distance,
                                         model_.config.max_positions)));
  return bias_;
}

absl::StatusOr<DeviceRope> OpWeights::Rope(const RopeStoreOp& op) {
  DeviceRope& tables = rope_[static_cast<size_t>(op.rope)];
  const RopeOf rope = FindRope(op, model_.config);
  if (tables.cos != nullptr || rope.dims == 0) return tables;
  const RopeTable values = MakeRopeTable(*rope.rope, rope.dims, model_.config.max_positions);
  tables.dims = rope.dims;
  SLUICE_ASSIGN_OR_RETURN(tables.cos, weights_.Put(values.cos));
  SLUICE_ASSIGN_OR_RETURN(tables.sin, weights_.Put(values.sin));
  return tables;
}

template absl::StatusOr<const float*> OpWeights::Weight(const LinearOp&);
template absl::StatusOr<const kernels::cuda::BFloat16*> OpWeights::Weight(const LinearOp&);
template absl::StatusOr<const float*> OpWeights::Bias(const LinearOp&);
template absl::StatusOr<const kernels::cuda::BFloat16*> OpWeights::Bias(const LinearOp&);

}  // namespace sluice
