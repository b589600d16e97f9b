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

// One layer per shape: the candidate of the library that the table names or, failing that, the
// first in the library's own order, that passes a DenseCheck on this device. A table only chooses:
// its content is never handed to the library.
class DenseLayers {
 public:
  // The arguments are not owned; `stream` is used during the calls only. `table` may be nullptr.
  DenseLayers(Device& device, DeviceStream& stream, const AlgorithmTable* table = nullptr)
      : device_(device), stream_(stream), table_(table) {}

  // Returns nullptr if there is no such algorithm, in which case our kernel computes the layer.
  // Layers are tried with `weight` and `bias`, as DenseArgs has them. Errors are those of the
  // device.
  absl::StatusOr<const DenseLayer*> Find(const DenseShape& shape, const void* weight,
                                         const void* bias);

  // Returns up to `most` layers that pass, the best by the library's own order first.
  absl::StatusOr<std::vector<std::unique_ptr<DenseLayer>>> Passing(const DenseShape& shape,
                                                                   const void* weight,
                                                                   const void* bias, size_t most);

  // Returns the algorithms in use.
  AlgorithmTable InUse(const std::string& gpu, const std::string& library) const;
  // Returns a sentence for each of the table's algorithms that was refused, for each algorithm of
  // which a call failed, and for each shape that is left to our kernel although there are
  // algorithms for it.
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  // Does as Passing does for some candidates, by a trial that is not prepared.
  template <typename Check>
  absl::StatusOr<std::vector<std::unique_ptr<DenseLayer>>> Try(
      Check check, const DenseShape& shape, std::vector<std::unique_ptr<DenseLayer>> candidates,
      const DenseLayer* of_table, size_t most);
  // Moves the layer that the table names to the front and returns it, or nullptr if it names none
  // of them.
  const DenseLayer* PreferTable(const DenseShape& shape,
                                std::vector<std::unique_ptr<DenseLayer>>* candidates);
  void Refuse(const DenseShape& shape, const absl::Status& why);

  Device& device_;
  DeviceStream& stream_;
  const AlgorithmTable* const table_;
  std::map<DenseShape, std::unique_ptr<DenseLayer>> layers_;  // nullptr if there is none
  std::vector<std::string> notices_;
};

// Queues `layer` for args.rows rows, any number, in slices that it was tried with. Computes
// DenseRows(args.rows) rows, for which x and out have room.
void RunInSlices(const DenseLayer& layer, const DenseShape& shape, const DenseArgs& args,
                 DeviceStream& stream);

// Queues `layer`, which is in int8, for args.rows rows, any number, slice by slice, and behind each
// slice makes numbers of its sums: `scaled`, whose sums, rows.capacity and `first` are not read,
// says of what and where. x has room for Int8DenseRows(args.rows) rows, args.out for
// Int8Sums(args.rows, shape.n) sums.
template <typename T>
void RunInt8InSlices(const DenseLayer& layer, const DenseShape& shape, const DenseArgs& args,
                     kernels::cuda::ScaleSumsArgs<T> scaled, DeviceStream& stream);

}  // namespace sluice
