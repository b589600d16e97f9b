// The tables of disentangled attention of a model's layers, computed on the host when the model is
// loaded.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/device_weights.h"
#include "engine/model/model.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/relative_attention.h"

namespace sluice {

class DeviceRelativeTables {
 public:
  // The arguments outlive this.
  DeviceRelativeTables(const Model& model, DeviceWeights& weights)
      : model_(model), weights_(weights) {}

  // Returns the tables of an op, in f32. Requires op.relative. Returns an error if the op has a
  // feature that the kernel lacks, or if the projections are stored in another form than floats.
  absl::StatusOr<kernels::cuda::RelativeTable> Make(const AttentionOp& op);

 private:
  // Reads the rows that all layers project, once.
  absl::Status ReadRows(const RelativeTables& tables);
  // Returns the projected rows on the device.
  absl::StatusOr<const float*> Project(const LinearOp& op);
  // Returns the values from the start of the part, in f32, or none if it is absent.
  absl::StatusOr<std::vector<float>> Floats(const TensorPart& part, int64_t count) const;

  const Model& model_;
  DeviceWeights& weights_;
  kernels::ThreadPool thread_{1};
  std::vector<float> rows_;  // [2 span, hidden]
  const int32_t* row_of_ = nullptr;
};

}  // namespace sluice
