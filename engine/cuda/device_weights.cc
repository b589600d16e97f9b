#include "engine/cuda/device_weights.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/dtype.h"

namespace sluice {
namespace {

using kernels::cuda::Narrow;

}  // namespace

template <typename T>
absl::StatusOr<const T*> DeviceWeights::Load(const Checkpoint& checkpoint, const TensorPart& part,
                                             int64_t count) {
  if (!part.present()) return nullptr;
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint.Find(part.name, part.shape));
  SLUICE_CHECK(part.first + count <= tensor.elements());
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = Narrow<T>(kernels::LoadAsFloat(tensor.data, tensor.dtype, part.first + i));
  }
  return Put(values);
}

template <typename T>
absl::StatusOr<const T*> DeviceWeights::LoadDense(const Checkpoint& checkpoint,
                                                  const TensorPart& part, MatrixLayout layout,
                                                  int64_t in, int64_t out) {
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint.Find(part.name, part.shape));
  std::vector<T> values(in * out);
  if (layout == MatrixLayout::kInOut) {
    for (int64_t k = 0; k < in; ++k) {
      for (int64_t n = 0; n < out; ++n) {
        const int64_t from = part.first + k * part.shape[1] + n;
        values[k * out + n] = Narrow<T>(kernels::LoadAsFloat(tensor.data, tensor.dtype, from));
      }
    }
    return Put(values);
  }
  std::vector<float> row(in);
  for (int64_t n = 0; n < out; ++n) {
    kernels::ConvertToFloat(tensor.data, tensor.dtype, n * in, in, row.data());
    for (int64_t k = 0; k < in; ++k) values[k * out + n] = Narrow<T>(row[k]);
  }
  return Put(values);
}

template <typename T>
absl::StatusOr<const T*> DeviceWeights::Put(const std::vector<T>& values) {
  SLUICE_ASSIGN_OR_RETURN(const void* data, PutBytes(values.data(), values.size() * sizeof(T)));
  return static_cast<const T*>(data);
}

absl::StatusOr<const void*> DeviceWeights::PutBytes(const void* data, size_t bytes) {
  SLUICE_ASSIGN_OR_RETURN(DeviceMemory memory, device_->Allocate(bytes));
  SLUICE_ASSIGN_OR_RETURN(PinnedMemory staging, device_->AllocatePinned(bytes));
  std::memcpy(staging.get(), data, bytes);
  stream_->CopyToDevice(memory.get(), staging.get(), bytes);
  SLUICE_RETURN_IF_ERROR(stream_->Synchronize());
  bytes_ += bytes;
  memory_.push_back(std::move(memory));
  return memory_.back().get();
}

#define SLUICE_INSTANTIATE(T)                                                                      \
  template absl::StatusOr<const T*> DeviceWeights::Load(const Checkpoint&, const TensorPart&,      \
                                                        int64_t);                                  \
  template absl::StatusOr<const T*> DeviceWeights::LoadDense(const Checkpoint&, const TensorPart&, \
                                                             MatrixLayout, int64_t, int64_t);      \
  template absl::StatusOr<const T*> DeviceWeights::Put(const std::vector<T>&);

SLUICE_INSTANTIATE(float)
SLUICE_INSTANTIATE(kernels::cuda::BFloat16)

}  // namespace sluice
