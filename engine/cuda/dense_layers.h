// The dense layers of a model that the vendor's library computes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cuda/algorithm_table.h"
#include "engine/cuda/dense_check.h"
#include "engine/cuda/dense_layer.h"
#include "engine/cuda/device.h"
#include "kernels/cuda/int8.h"

namespace sluice {

// One family of algorithms per shape. Its reference is the first candidate of the largest class of
// rows that passes a DenseCheck on this device. Another class is computed by the first candidate of
// the class whose rows have the reference's bits, if there is one before the reference in the
// library's order. Candidates are in the order of the library, except that the table's algorithms
// come first. A table only chooses: its content is never handed to the library.
class DenseLayers {
 public:
  // The arguments are not owned; `stream` is used during the calls only. `table` may be nullptr.
  DenseLayers(Device& device, DeviceStream& stream, const AlgorithmTable* table = nullptr)
      : device_(device), stream_(stream), table_(table) {}

  // Returns nullptr if there is no such algorithm; our kernel then computes the layer. Layers are
  // tried with `weight` and `bias`, laid out as in DenseArgs. Errors come from the device.
  absl::StatusOr<const DenseFamily*> Find(const DenseShape& shape, const void* weight,
                                          const void* bias);

  // Returns up to `most` layers of the largest class that pass, the best by the library's own order
  // first.
  absl::StatusOr<std::vector<std::unique_ptr<DenseLayer>>> Passing(const DenseShape& shape,
                                                                   const void* weight,
                                                                   const void* bias, size_t most);
  // Returns the layers of each class, by its last number of rows, that give rows the bits of
  // `reference`, which has passed. The largest class is left out.
  absl::StatusOr<std::map<int32_t, std::vector<std::unique_ptr<DenseLayer>>>> Members(
      const DenseShape& shape, const void* weight, const void* bias, const DenseLayer& reference);

  // Returns the algorithms in use.
  AlgorithmTable InUse(const std::string& gpu, const std::string& library) const;
  // Returns a line for each shape, with the algorithm of each class of rows.
  std::vector<std::string> Describe() const;
  // Returns a sentence for each of the table's algorithms that was refused, for each algorithm that
  // failed in a call, and for each shape that our kernel computes although the library has
  // algorithms for it.
  const std::vector<std::string>& notices() const { return notices_; }

 private:
  using LayerList = std::vector<std::unique_ptr<DenseLayer>>;
  // The candidates of each class, the table's one first.
  struct Candidates {
    std::vector<RowClass> classes = {};
    std::vector<LayerList> layers = {};
    std::vector<const DenseLayer*> of_table = {};  // nullptr if the table names none

    size_t workspace_bytes() const;
  };

  Candidates Offered(const DenseShape& shape);
  // Calls f(check) with the check of the shape's type, prepared for the candidates.
  template <typename Function>
  auto WithCheck(const DenseShape& shape, const void* weight, const void* bias,
                 const Candidates& candidates, Function f)
      -> decltype(f(std::declval<DenseCheck&>()));
  // Returns up to `most` candidates of the largest class that pass.
  template <typename Check>
  absl::StatusOr<LayerList> Try(Check& check, const DenseShape& shape, Candidates& candidates,
                                size_t most);
  // Returns up to `most` candidates of class `c` that give rows the bits of `reference`, the last
  // layer that passed. Ends at the reference itself.
  template <typename Check>
  absl::StatusOr<LayerList> TryClass(Check& check, const DenseShape& shape, Candidates& candidates,
                                     size_t c, const DenseLayer& reference, size_t most);
  // Returns OK if the candidate was only refused; notes why.
  absl::Status NoteRefusal(const DenseShape& shape, const std::string& rows,
                           const DenseLayer& layer, bool of_table, const absl::Status& why);
  // Moves the table's layer to the front and returns it, or nullptr if it is not among them.
  const DenseLayer* PreferTable(const DenseShape& shape, const RowClass& rows,
                                LayerList* candidates);
  void Refuse(const std::string& what, const absl::Status& why);

  Device& device_;
  DeviceStream& stream_;
  const AlgorithmTable* const table_;
  std::map<DenseShape, std::unique_ptr<DenseFamily>> families_;  // nullptr if there is none
  std::vector<std::string> notices_;
};

// Queues a layer for args.rows rows, any number, in slices of tried numbers of rows. Computes
// DenseRows(args.rows) rows; x and out have room for them.
void RunInSlices(const DenseFamily& family, const DenseShape& shape, const DenseArgs& args,
                 DeviceStream& stream);

// Queues a layer in int8 for args.rows rows, any number, slice by slice. After each
// slice, converts its sums to numbers as `scaled` states; its fields sums, rows.capacity and
// `first` are not read. x has room for Int8DenseRows(args.rows) rows, args.out for
// Int8Sums(args.rows, shape.n) sums.
template <typename T>
void RunInt8InSlices(const DenseFamily& family, const DenseShape& shape, const DenseArgs& args,
                     kernels::cuda::ScaleSumsArgs<T> scaled, DeviceStream& stream);

}  // namespace sluice
