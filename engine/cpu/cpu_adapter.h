// An adapter whose matrices are packed for the CPU's kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/cpu/cpu_op.h"
#include "engine/model/model.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/packed_weights.h"

namespace sluice {

class CpuAdapter final : public LoadedAdapter {
 public:
  // The matrices keep the type of the checkpoint. B is multiplied by the scale: in f32, unless that
  // is exact in bf16.
  static absl::StatusOr<std::unique_ptr<const CpuAdapter>> Pack(const Model& model,
                                                                const Adapter& adapter,
                                                                const kernels::Context& context);

  // Returns the most bytes that Pack takes: B counts in f32.
  static absl::StatusOr<int64_t> MostBytes(const Model& model, const Adapter& adapter,
                                           const kernels::Context& context);

  int64_t bytes() const override { return bytes_; }

  // A of an embedding, as stored: the value `rank` of row `row`.
  struct Rows {
    std::vector<std::byte> values = {};
    kernels::DType dtype = kernels::DType::kF32;
    int64_t row_stride = 0, rank_stride = 0;

    float At(int64_t row, int64_t rank) const {
      return kernels::LoadAsFloat(values.data(), dtype, row * row_stride + rank * rank_stride);
    }
  };
  // The matrices of an op of the graph: A [in -> rank], and scale * B [rank -> out].
  struct Layer {
    kernels::PackedWeights b;
    kernels::PackedWeights a = {};  // of a dense layer
    Rows rows = {};                 // A of an embedding

    int64_t rank() const { return b.k(); }
  };
  // Returns nullptr if the adapter does not change the op.
  const Layer* Find(size_t op) const { return layers_[op].get(); }

 private:
  static absl::StatusOr<Layer> PackLayer(const Model& model, const Adapter& adapter,
                                         const AdapterLayer& layer,
                                         const kernels::Context& context);

  std::vector<std::unique_ptr<const Layer>> layers_;  // by op
  int64_t bytes_ = 0;
};

// Adds the products of the step's adapters to the output of a dense layer, which is op `op`: one
// grouped product with the matrices A, and one with the matrices B.
void AddAdapters(const StepRun& run, const LinearOp& layer, size_t op, int64_t k, int64_t n);

// Does the same for an embedding, whose rows of A are those of `ids`; nullptr: all ids are 0. Adds
// nothing to rows with a negative id.
void AddAdapters(const StepRun& run, const EmbedOp& embedding, size_t op, const int32_t* ids,
                 int64_t n);

}  // namespace sluice
