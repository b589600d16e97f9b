// Loads weights from a checkpoint to a device, in the dtype of the profile. Errors name the tensor.
//
// Values are sent as they are stored; the device converts them and lays them out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/device.h"
#include "engine/cuda/upload_ring.h"
#include "engine/model/checkpoint.h"
#include "engine/model/graph.h"
#include "kernels/cuda/weight_layout.h"

namespace sluice {

// Matrices in int8 on the device.
struct Int8Weight {
  const int8_t* values;  // [matrices, n, Int8Stride(k)] (kernels/cuda/int8.h)
  const float* scales;   // [matrices, n]
};

// The weights of a model on the device.
class DeviceWeights {
 public:
  // The size of a piece of the upload.
  static constexpr size_t kPieceBytes = 16 << 20;

  // The arguments outlive the weights. `piece_bytes` is a multiple of 256.
  DeviceWeights(Device& device, DeviceStream& stream, size_t piece_bytes = kPieceBytes)
      : device_(device), stream_(stream), ring_(device, stream, piece_bytes) {}

  // Each of the following returns memory. Its values are ready for work that is queued later on the
  // stream, and for all work after Finish.

  // Loads `count` values, converted to T; returns nullptr if the part is absent. If `padded` is
  // more than `count`, zeros follow up to it.
  template <typename T>
  absl::StatusOr<const T*> Load(const Checkpoint& checkpoint, const TensorPart& part, int64_t count,
                                int64_t padded = 0);
  // Loads a dense layer that is stored as `layout` states, and arranges it as [in, out] for the
  // projections. If `padded` is more than `out`, arranges it as [in, padded] with zeros at the end
  // of each row; this requires the layout kOutIn.
  template <typename T>
  absl::StatusOr<const T*> LoadDense(const Checkpoint& checkpoint, const TensorPart& part,
                                     MatrixLayout layout, int64_t in, int64_t out,
                                     int64_t padded = 0);
  // Loads the matrices of a layer of experts, and arranges them as [matrices, in, out].
  template <typename T>
  absl::StatusOr<const T*> LoadMatrices(const Checkpoint& checkpoint, const LinearOp& op,
                                        int64_t in, int64_t out);
  // The `count` columns of a joined layer that come from one part, which is stored as kOutIn.
  struct Columns {
    const TensorPart* part;
    int64_t count;
  };
  // Loads several dense layers of `in` inputs as the columns of one. The numbers of columns are
  // multiples of 8.
  template <typename T>
  absl::StatusOr<const T*> LoadJoined(const Checkpoint& checkpoint,
                                      const std::vector<Columns>& columns, int64_t in);
  // Loads the biases of a joined layer, one after another.
  template <typename T>
  absl::StatusOr<const T*> LoadJoinedBias(const Checkpoint& checkpoint,
                                          const std::vector<Columns>& columns);
  // Arranges loaded matrices [matrices, k, n] for a kernel, and releases the originals unless they
  // are used as they are. For int8, the matrices are those in an Int8Weight, and k is their stride.
  template <typename T>
  absl::StatusOr<const T*> Pack(const T* weight, kernels::cuda::WeightLayout layout,
                                int64_t matrices, int32_t k, int32_t n);
  // Quantises loaded matrices [matrices, k, n] by columns (kernels/cuda/int8.h), and releases them.
  absl::StatusOr<Int8Weight> Quantize(const float* weight, int64_t matrices, int32_t k, int32_t n);
  // Loads layers of `in` inputs that are stored in int8 as the columns of one.
  absl::StatusOr<Int8Weight> LoadStoredInt8(const Checkpoint& checkpoint,
                                            const std::vector<Columns>& columns, int64_t in);
  absl::StatusOr<const float*> Put(const std::vector<float>& values);
  absl::StatusOr<const int32_t*> Put(const std::vector<int32_t>& values);

  // Waits until all values have arrived, and releases the memory that loading used.
  absl::Status Finish() { return ring_.Finish(); }

  int64_t bytes() const { return bytes_; }
  const DeviceInfo& device_info() const { return device_.info(); }

 private:
  // Values in host memory: rows of `columns`, `stride` apart, which need not be aligned. The order
  // of rows is that of TensorPart::evens_first.
  struct Source {
    const void* data;
    kernels::DType dtype;
    int64_t rows, columns, stride;
    int64_t evens_first = 0;
  };
  // Returns the `count` values of a part in the order of its tensor.
  static Source SourceOf(const Tensor& tensor, const TensorPart& part, int64_t count);
  // Writes the columns [out, in] of a part that is stored as kOutIn to `out`.
  template <typename T>
  absl::Status SendColumnsTo(const Tensor& tensor, const TensorPart& part, int64_t columns,
                             int64_t in, T* out, int64_t out_stride);
  // Copies `count` values from value `first` on. Skips values between the rows, which do not count.
  static void Gather(const Source& source, int64_t first, int64_t count, void* to);

  // Quantises the columns times `factors`, and releases both.
  absl::StatusOr<const int8_t*> QuantizeBy(const float* weight, const float* factors,
                                           int64_t matrices, int32_t k, int32_t n);
  template <typename T>
  absl::StatusOr<T*> Allocate(int64_t count);
  // Releases `count` values that no queued work uses.
  template <typename T>
  void Release(const T* values, int64_t count);
  // Returns memory for `padded` values, all of them zero if they are more than `count`.
  template <typename T>
  absl::StatusOr<T*> AllocatePadded(int64_t count, int64_t padded);
  template <typename T>
  absl::StatusOr<const T*> SendAsIs(const Source& source, int64_t padded = 0);
  // These write to `out`, the second one in rows that are `out_stride` apart.
  template <typename T>
  absl::Status SendAsIsTo(const Source& source, T* out);
  template <typename T>
  absl::Status SendTransposedTo(const Source& source, T* out, int64_t out_stride);

  Device& device_;
  DeviceStream& stream_;
  std::vector<DeviceMemory> memory_;
  int64_t bytes_ = 0;
  UploadRing ring_;  // ends first, since its work writes to memory_
};

}  // namespace sluice
