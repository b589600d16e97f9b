// Loads weights from a checkpoint to a device, in the dtype of the profile. Errors name the tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cuda/device.h"
#include "engine/model/checkpoint.h"
#include "engine/model/graph.h"

namespace sluice {

// The weights of a model on the device.
class DeviceWeights {
 public:
  // The arguments are not owned; `stream` is used during the calls only.
  DeviceWeights(Device& device, DeviceStream& stream) : device_(&device), stream_(&stream) {}

  // Loads `count` values of T unchanged; returns nullptr if the part is absent.
  template <typename T>
  absl::StatusOr<const T*> Load(const Checkpoint& checkpoint, const TensorPart& part,
                                int64_t count);
  // Loads a dense layer that is stored as `layout` says, and arranges it as [in, out], which the
  // projections read.
  template <typename T>
  absl::StatusOr<const T*> LoadDense(const Checkpoint& checkpoint, const TensorPart& part,
                                     MatrixLayout layout, int64_t in, int64_t out);
  template <typename T>
  absl::StatusOr<const T*> Put(const std::vector<T>& values);

  int64_t bytes() const { return bytes_; }
  const DeviceInfo& device_info() const { return device_->info(); }

 private:
  absl::StatusOr<const void*> PutBytes(const void* data, size_t bytes);

  Device* device_;
  DeviceStream* stream_;
  std::vector<DeviceMemory> memory_;
  int64_t bytes_ = 0;
};

}  // namespace sluice
