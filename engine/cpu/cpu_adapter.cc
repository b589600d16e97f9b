#include "engine/cpu/cpu_adapter.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>
#include <variant>

#include "base/interruption.h"
#include "base/status_macros.h"
#include "engine/cpu/weights.h"
#include "kernels/cpu/gemm.h"

namespace sluice {
namespace {

const CpuAdapter::Layer* LayerOf(const StepBatch& batch, int32_t adapter, size_t op) {
  return static_cast<const CpuAdapter*>(batch.adapters()[adapter])->Find(op);
}

}  // namespace

absl::StatusOr<std::unique_ptr<const CpuAdapter>> CpuAdapter::Pack(
    const Model& model, const Adapter& adapter, const kernels::Context& context) {
  const StoredQuantization none;
  WeightLoader weights(adapter.checkpoint, none, context);
  auto packed = std::make_unique<CpuAdapter>();
  packed->layers_.resize(model.graph.ops.size());
  for (const AdapterLayer& layer : adapter.layers) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    const auto& op = std::get<LinearOp>(model.graph.ops[layer.op]);
    const int64_t k = model.graph.buffers[op.in].width, n = model.graph.buffers[op.out].width;
    SLUICE_ASSIGN_OR_RETURN(kernels::PackedWeights a,
                            weights.Dense(layer.a, MatrixLayout::kOutIn, k, adapter.rank));
    SLUICE_ASSIGN_OR_RETURN(kernels::PackedWeights b,
                            weights.Scaled(layer.b, adapter.rank, n, adapter.scale));
    packed->bytes_ += a.bytes() + b.bytes();
    packed->layers_[layer.op] = std::make_unique<const Layer>(std::move(a), std::move(b));
  }
  return packed;
}

absl::StatusOr<int64_t> CpuAdapter::MostBytes(const Model& model, const Adapter& adapter,
                                              const kernels::Context& context) {
  int64_t bytes = 0;
  for (const AdapterLayer& layer : adapter.layers) {
    const auto& op = std::get<LinearOp>(model.graph.ops[layer.op]);
    const int64_t k = model.graph.buffers[op.in].width, n = model.graph.buffers[op.out].width;
    SLUICE_ASSIGN_OR_RETURN(const Tensor a, adapter.checkpoint.Find(layer.a.name, layer.a.shape));
    bytes += kernels::PackedWeights::BytesOf(context, k, adapter.rank, a.dtype) +
             kernels::PackedWeights::BytesOf(context, adapter.rank, n, kernels::DType::kF32);
  }
  return bytes;
}

void AddAdapters(const StepRun& run, const LinearOp& layer, size_t op, int64_t k, int64_t n) {
  const std::span<const kernels::RowGroup> groups = run.batch.adapter_groups();
  int64_t rank = 0;  // the largest
  for (int32_t i = 0; i < std::ssize(run.batch.adapters()); ++i) {
    if (const auto* own = LayerOf(run.batch, i, op)) rank = std::max(rank, own->a.n());
  }
  if (rank == 0) return;
  const auto multiply = [&](const float* x, int64_t width,
                            kernels::PackedWeights CpuAdapter::Layer::*matrix, float* out,
                            int64_t stride, bool accumulate) {
    const auto weights_of = [&](const kernels::RowGroup& group) -> const kernels::PackedWeights* {
      const CpuAdapter::Layer* const own = LayerOf(run.batch, group.matrix, op);
      return own == nullptr ? nullptr : &(own->*matrix);
    };
    kernels::GroupedGemm(run.context, weights_of, groups,
                         {.x = x,
                          .ldx = width,
                          .bias = nullptr,
                          .bias_stride = 0,
                          .out = out,
                          .ldo = stride,
                          .accumulate = accumulate});
  };
  float* const reduced = run.at(run.layout.adapted);
  multiply(run.buffer(layer.in), k, &CpuAdapter::Layer::a, reduced, rank, /*accumulate=*/false);
  multiply(reduced, rank, &CpuAdapter::Layer::b, run.buffer(layer.out), n, /*accumulate=*/true);
}

}  // namespace sluice
