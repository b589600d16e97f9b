// The dense layers of a model that the vendor's library computes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/cuda/dense_layer.h"
#include "engine/cuda/device.h"

namespace sluice {

// One layer per shape: the first of the library's algorithms whose rows have the same bits whatever
// their number and whichever of them they are. What a library promises of that is not enough for our
// promise, so it is tried, over all powers of two up to kMostRows and sizes beside them.
class DenseLayers {
 public:
  static constexpr int32_t kMostRows = 4096;

  // Neither is owned; `stream` is used during the calls only.
  DenseLayers(Device& device, DeviceStream& stream) : device_(device), stream_(stream) {}

  // nullptr: there is no such algorithm, and our kernel computes it. `weight` [k, n] and `bias` are what
  // the layers are tried with. Errors are the device's.
  absl::StatusOr<const DenseLayer*> Find(const DenseShape& shape, const void* weight,
                                         const void* bias);

 private:
  struct Trial;

  absl::Status Choose(const Trial& trial, std::unique_ptr<DenseLayer>* chosen);

  Device& device_;
  DeviceStream& stream_;
  std::map<DenseShape, std::unique_ptr<DenseLayer>> layers_;  // nullptr where there is none
};

}  // namespace sluice
