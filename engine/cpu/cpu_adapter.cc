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

absl::StatusOr<CpuAdapter::Layer> CpuAdapter::PackLayer(const Model& model, const Adapter& adapter,
                                                        const AdapterLayer& layer,
                                                        const kernels::Context& context) {
  const StoredQuantization none;
  WeightLoader weights(adapter.tensors(), none, context);
  const MatrixLayout layout = layer.transposed ? MatrixLayout::kInOut : MatrixLayout::kOutIn;
  const GraphOp& op = model.graph.ops[layer.op];
  const int64_t rank = adapter.rank, n = model.graph.buffers[WrittenBuffer(op)].width;
  Layer packed;
  SLUICE_ASSIGN_OR_RETURN(packed.b, weights.Scaled(layer.b, layout, rank, n, adapter.scale));
  if (const auto* const linear = std::get_if<LinearOp>(&op)) {
    const int64_t k = model.graph.buffers[linear->in].width;
    SLUICE_ASSIGN_OR_RETURN(packed.a, weights.Dense(layer.a, layout, k, rank));
    return packed;
  }
  SLUICE_ASSIGN_OR_RETURN(const Tensor a, adapter.tensors().Find(layer.a.name, layer.a.shape));
  const int64_t rows = std::get<EmbedOp>(op).table.shape[0];
  const int64_t element = kernels::DTypeBytes(a.dtype);
  const auto* const begin = static_cast<const std::byte*>(a.data) + layer.a.first * element;
  packed.rows = {.values = {begin, begin + rows * rank * element},
                 .dtype = a.dtype,
                 .row_stride = layer.transposed ? rank : 1,
                 .rank_stride = layer.transposed ? 1 : rows};
  return packed;
}

absl::StatusOr<std::unique_ptr<const CpuAdapter>> CpuAdapter::Pack(
    const Model& model, const Adapter& adapter, const kernels::Context& context) {
  auto packed = std::make_unique<CpuAdapter>();
  packed->layers_.resize(model.graph.ops.size());
  for (const AdapterLayer& layer : adapter.layers) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    SLUICE_ASSIGN_OR_RETURN(Layer own, PackLayer(model, adapter, layer, context));
    packed->bytes_ += own.a.bytes() + own.b.bytes() + std::ssize(own.rows.values);
    packed->layers_[layer.op] = std::make_unique<const Layer>(std::move(own));
  }
  return packed;
}

absl::StatusOr<int64_t> CpuAdapter::MostBytes(const Model& model, const Adapter& adapter,
                                              const kernels::Context& context) {
  int64_t bytes = 0;
  for (const AdapterLayer& layer : adapter.layers) {
    const GraphOp& op = model.graph.ops[layer.op];
    const int64_t n = model.graph.buffers[WrittenBuffer(op)].width;
    SLUICE_ASSIGN_OR_RETURN(const Tensor a, adapter.tensors().Find(layer.a.name, layer.a.shape));
    if (const auto* const linear = std::get_if<LinearOp>(&op)) {
      const int64_t k = model.graph.buffers[linear->in].width;
      bytes += kernels::PackedWeights::BytesOf(context, k, adapter.rank, a.dtype);
    } else {
      const int64_t rows = std::get<EmbedOp>(op).table.shape[0];
      bytes += rows * adapter.rank * kernels::DTypeBytes(a.dtype);
    }
    bytes += kernels::PackedWeights::BytesOf(context, adapter.rank, n, kernels::DType::kF32);
  }
  return bytes;
}

namespace {

// Returns the largest rank of the step's adapters in an op; 0 if none changes it.
int64_t LargestRank(const StepBatch& batch, size_t op) {
  int64_t rank = 0;
  for (int32_t i = 0; i < std::ssize(batch.adapters()); ++i) {
    if (const auto* own = LayerOf(batch, i, op)) rank = std::max(rank, own->rank());
  }
  return rank;
}

// Multiplies the rows of each adapter by its matrix of the op.
void Multiply(const StepRun& run, size_t op, kernels::PackedWeights CpuAdapter::Layer::*matrix,
              const kernels::GemmArgs& args) {
  const auto weights_of = [&](const kernels::RowGroup& group) -> const kernels::PackedWeights* {
    const CpuAdapter::Layer* const own = LayerOf(run.batch, group.matrix, op);
    return own == nullptr ? nullptr : &(own->*matrix);
  };
  kernels::GroupedGemm(run.context, weights_of, run.batch.adapter_groups(), args);
}

// Adds the products of B and rows of `rank` values, which are in `reduced`, to a buffer.
void AddProducts(const StepRun& run, size_t op, const float* reduced, int64_t rank, BufferId out,
                 int64_t n) {
  Multiply(run, op, &CpuAdapter::Layer::b,
           {.x = reduced,
            .ldx = rank,
            .bias = nullptr,
            .bias_stride = 0,
            .out = run.buffer(out),
            .ldo = n,
            .accumulate = true});
}

}  // namespace

void AddAdapters(const StepRun& run, const LinearOp& layer, size_t op, int64_t k, int64_t n) {
  const int64_t rank = LargestRank(run.batch, op);
  if (rank == 0) return;
  float* const reduced = run.at(run.layout.adapted);
  Multiply(run, op, &CpuAdapter::Layer::a,
           {.x = run.buffer(layer.in),
            .ldx = k,
            .bias = nullptr,
            .bias_stride = 0,
            .out = reduced,
            .ldo = rank,
            .accumulate = false});
  AddProducts(run, op, reduced, rank, layer.out, n);
}

void AddAdapters(const StepRun& run, const EmbedOp& embedding, size_t op, const int32_t* ids,
                 int64_t n) {
  const int64_t rank = LargestRank(run.batch, op);
  if (rank == 0) return;
  float* const reduced = run.at(run.layout.adapted);
  const auto gather = [&](int64_t begin, int64_t end, int /*worker*/) {
    for (const kernels::RowGroup& group : run.batch.adapter_groups()) {
      const CpuAdapter::Layer* const own = LayerOf(run.batch, group.matrix, op);
      if (own == nullptr) continue;
      const int64_t first = std::max<int64_t>(begin, group.first_row);
      const int64_t past = std::min<int64_t>(end, group.first_row + group.count);
      for (int64_t row = first; row < past; ++row) {
        const int64_t id = ids == nullptr ? 0 : ids[row];
        for (int64_t i = 0; i < own->rank(); ++i) {
          reduced[row * rank + i] = id < 0 ? 0.0f : own->rows.At(id, i);
        }
      }
    }
  };
  run.context.pool->ParallelFor(run.rows(), 1, run.rows() * rank, gather);
  AddProducts(run, op, reduced, rank, embedding.out, n);
}

}  // namespace sluice
