// Weights on their way from a checkpoint to a device, in the profile's dtype. Errors name the tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cuda/device.h"
#include "engine/model/checkpoint.h"
#include "engine/model/graph.h"

namespace sluice {

// What a model keeps on the device.
class DeviceWeights {
 public:
  // Neither is owned; `stream` is used during the calls only.
  DeviceWeights(Device& device, DeviceStream& stream) : device_(&device), stream_(&stream) {}

  // `count` values as they are, of T; nullptr where the part is absent.
  template <typename T>
  absl::StatusOr<const T*> Load(const Checkpoint& checkpoint, const TensorPart& part,
                                int64_t count);
  // A dense layer stored as `layout` says as [in, out], which the projections read.
  template <typename T>
  absl::StatusOr<const T*> LoadDense(const Checkpoint& checkpoint, const TensorPart& part,
                                     MatrixLayout layout, int64_t in, int64_t out);
  template <typename T>
  absl::StatusOr<const T*> Put(const std::vector<T>& values);

  int64_t bytes() const { return bytes_; }

 private:
  absl::StatusOr<const void*> PutBytes(const void* data, size_t bytes);

  Device* device_;
  DeviceStream* stream_;
  std::vector<DeviceMemory> memory_;
  int64_t bytes_ = 0;
};

}  // namespace sluice
