#include "engine/cuda/device_weights.h"

#include <cstring>
#include <utility>

#include "base/check.h"
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
  const absl::StatusOr<Tensor> tensor = checkpoint.Find(part.name, part.shape);
  if (!tensor.ok()) return tensor.status();
  SLUICE_CHECK(part.first + count <= tensor->elements());
  std::vector<T> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[i] = Narrow<T>(kernels::LoadAsFloat(tensor->data, tensor->dtype, part.first + i));
  }
  return Put(values);
}

template <typename T>
absl::StatusOr<const T*> DeviceWeights::LoadDense(const Checkpoint& checkpoint,
                                                  const TensorPart& part, MatrixLayout layout,
                                                  int64_t in, int64_t out) {
  const absl::StatusOr<Tensor> tensor = checkpoint.Find(part.name, part.shape);
  if (!tensor.ok()) return tensor.status();
  std::vector<T> values(static_cast<size_t>(in * out));
  if (layout == MatrixLayout::kInOut) {
    for (int64_t k = 0; k < in; ++k) {
      for (int64_t n = 0; n < out; ++n) {
        const int64_t from = part.first + k * part.shape[1] + n;
        values[k * out + n] = Narrow<T>(kernels::LoadAsFloat(tensor->data, tensor->dtype, from));
      }
    }
    return Put(values);
  }
  std::vector<float> row(static_cast<size_t>(in));
  for (int64_t n = 0; n < out; ++n) {
    kernels::ConvertToFloat(tensor->data, tensor->dtype, n * in, in, row.data());
    for (int64_t k = 0; k < in; ++k) values[k * out + n] = Narrow<T>(row[k]);
  }
  return Put(values);
}

template <typename T>
absl::StatusOr<const T*> DeviceWeights::Put(const std::vector<T>& values) {
  const absl::StatusOr<const void*> data = PutBytes(values.data(), values.size() * sizeof(T));
  if (!data.ok()) return data.status();
  return static_cast<const T*>(*data);
}

absl::StatusOr<const void*> DeviceWeights::PutBytes(const void* data, size_t bytes) {
  absl::StatusOr<DeviceMemory> memory = device_->Allocate(bytes);
  if (!memory.ok()) return memory.status();
  absl::StatusOr<PinnedMemory> staging = device_->AllocatePinned(bytes);
  if (!staging.ok()) return staging.status();
  std::memcpy(staging->get(), data, bytes);
  stream_->CopyToDevice(memory->get(), staging->get(), bytes);
  if (absl::Status status = stream_->Synchronize(); !status.ok()) return status;
  bytes_ += static_cast<int64_t>(bytes);
  memory_.push_back(*std::move(memory));
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
