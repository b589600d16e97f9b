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
#include "kernels/cuda/int8.h"

namespace sluice {

// One layer per shape. It is the first candidate that passes a DenseCheck on this device: the
// table's algorithm if there is one, then the library's in its own order. A table only chooses: its
// content is never handed to the library.
class DenseLayers {
 public:
  // The arguments are not owned; `stream` is used during the calls only. `table` may be nullptr.
  DenseLayers(Device& device, DeviceStream& stream, const AlgorithmTable* table = nullptr)
      : device_(device), stream_(stream), table_(table) {}

  // Returns nullptr if there is no such algorithm; our kernel then computes the layer. Layers are
  // tried with `weight` and `bias`, laid out as in DenseArgs. Errors come from the device.
  absl::StatusOr<const DenseLayer*> Find(const DenseShape& shape, const void* weight,
                                         const void* bias);

  // Returns up to `most` layers that pass, the best by the library's own order first.
  absl::StatusOr<std::vector<std::unique_ptr<DenseLayer>>> Passing(const DenseShape& shape,
                                                                   const void* weight,
                                                                   const void* bias, size_t most);

  // Returns the algorithms in use.
  AlgorithmTable InUse(const std::string& gpu, const std::string& library) const;
  // Returns a sentence for each of the table's algorithms that was refused, for each algorithm that
  // failed in a call, and for each shape that our kernel computes although the library has
  // algorithms for it.
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  // Implements Passing for some candidates, with a trial that is not prepared.
  template <typename Check>
  absl::StatusOr<std::vector<std::unique_ptr<DenseLayer>>> Try(
      Check check, const DenseShape& shape, std::vector<std::unique_ptr<DenseLayer>> candidates,
      const DenseLayer* of_table, size_t most);
  // Moves the table's layer to the front and returns it, or nullptr if it is not among them.
  const DenseLayer* PreferTable(const DenseShape& shape,
                                std::vector<std::unique_ptr<DenseLayer>>* candidates);
  void Refuse(const DenseShape& shape, const absl::Status& why);

  Device& device_;
  DeviceStream& stream_;
  const AlgorithmTable* const table_;
  std::map<DenseShape, std::unique_ptr<DenseLayer>> layers_;  // nullptr if there is none
  std::vector<std::string> notices_;
};

// Queues `layer` for args.rows rows, any number, in slices of tried numbers of rows. Computes
// DenseRows(args.rows) rows; x and out have room for them.
void RunInSlices(const DenseLayer& layer, const DenseShape& shape, const DenseArgs& args,
                 DeviceStream& stream);

// Queues `layer`, which is in int8, for args.rows rows, any number, slice by slice. After each
// slice, converts its sums to numbers as `scaled` states; its fields sums, rows.capacity and
// `first` are not read. x has room for Int8DenseRows(args.rows) rows, args.out for
// Int8Sums(args.rows, shape.n) sums.
template <typename T>
void RunInt8InSlices(const DenseLayer& layer, const DenseShape& shape, const DenseArgs& args,
                     kernels::cuda::ScaleSumsArgs<T> scaled, DeviceStream& stream);

}  // namespace sluice
