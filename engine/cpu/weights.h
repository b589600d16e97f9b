// Loads weights from a checkpoint and packs them for the kernels. Errors name the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/graph.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/gemm.h"

namespace sluice {

// A tensor in the dtype of the checkpoint.
struct StoredTensor {
  std::vector<std::byte> bytes;
  kernels::DType dtype;
};

class WeightLoader {
 public:
  // The arguments are not owned.
  WeightLoader(const Checkpoint& checkpoint, const StoredQuantization& stored,
               const kernels::Context& context)
      : checkpoint_(checkpoint), stored_(stored), context_(context) {}

  // Returns `count` values, widened to f32; empty if the part is absent.
  absl::StatusOr<std::vector<float>> Floats(const TensorPart& part, int64_t count);
  // Returns all values from the start of the part.
  absl::StatusOr<StoredTensor> AsStored(const TensorPart& part);
  // Returns [k -> n], stored as the layout states (kOutIn or kInOut), in the precision of its
  // product.
  absl::StatusOr<kernels::PackedWeights> Dense(const TensorPart& part, MatrixLayout layout,
                                               int64_t k, int64_t n,
                                               const WeightPrecision& precision = {});
  // Returns [k -> n], stored as the layout states, multiplied by `scale`: in bf16 if the tensor is
  // in bf16 and the products are exact, else in f32.
  absl::StatusOr<kernels::PackedWeights> Scaled(const TensorPart& part, MatrixLayout layout,
                                                int64_t k, int64_t n, float scale);
  // Returns [k -> n], stored as [out, in], in f32. Profiles that multiply in bf16 round the rows of
  // weights in bf16, and would choose other experts.
  absl::StatusOr<kernels::PackedWeights> Router(const TensorPart& part, int64_t k, int64_t n);
  // Returns the matrices [k -> n] of a layer that has several.
  absl::StatusOr<kernels::PackedWeights> Matrices(const LinearOp& op, int64_t k, int64_t n,
                                                  const WeightPrecision& precision = {});

  // Returns the packed size of everything loaded so far.
  int64_t bytes() const { return bytes_; }

 private:
  // Returns [k -> n] of a tensor that is stored quantised.
  absl::StatusOr<kernels::PackedWeights> Stored(const TensorPart& part, int64_t n,
                                                Quantization quantization);
  kernels::PackedWeights Pack(const kernels::WeightSource& source,
                              const WeightPrecision& precision);
  kernels::PackedWeights Counted(kernels::PackedWeights packed);
  // Returns the `count` values of a part. The part consists of consecutive runs of a tensor.
  static std::vector<std::byte> Collect(const Tensor& tensor, const TensorPart& part,
                                        int64_t count);

  const Checkpoint& checkpoint_;
  const StoredQuantization& stored_;
  const kernels::Context& context_;
  int64_t bytes_ = 0;
};

}  // namespace sluice
