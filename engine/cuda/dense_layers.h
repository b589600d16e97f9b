// The dense layers of a model that the vendor's library computes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cuda/algorithm_table.h"
#include "engine/cuda/dense_layer.h"
#include "engine/cuda/device.h"

namespace sluice {

// One layer per shape: of the library's candidates the table's, or else the first in the library's own
// order, that passes a DenseTrial on this device. A table only chooses: what it holds is never handed to
// the library.
class DenseLayers {
 public:
  // None is owned; `stream` is used during the calls only. `table` may be null.
  DenseLayers(Device& device, DeviceStream& stream, const AlgorithmTable* table = nullptr)
      : device_(device), stream_(stream), table_(table) {}

  // nullptr: there is no such algorithm, and our kernel computes it. `weight` [k, n] and `bias` are what
  // the layers are tried with. Errors are the device's.
  absl::StatusOr<const DenseLayer*> Find(const DenseShape& shape, const void* weight,
                                         const void* bias);

  // All that pass, up to `most`, the best by the library's own order first.
  absl::StatusOr<std::vector<std::unique_ptr<DenseLayer>>> Passing(const DenseShape& shape,
                                                                   const void* weight,
                                                                   const void* bias, size_t most);

  // A sentence for each of the table's algorithms that was refused.
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  // Puts the table's first, and returns it; nullptr: it names none of them.
  const DenseLayer* PreferTable(const DenseShape& shape,
                                std::vector<std::unique_ptr<DenseLayer>>* candidates);
  void Refuse(const DenseShape& shape, const absl::Status& why);

  Device& device_;
  DeviceStream& stream_;
  const AlgorithmTable* const table_;
  std::map<DenseShape, std::unique_ptr<DenseLayer>> layers_;  // nullptr where there is none
  std::vector<std::string> notices_;
};

}  // namespace sluice
