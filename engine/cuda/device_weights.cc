#include "engine/cuda/device_weights.h"

#include <cstring>
#include <utility>

#include "kernels/cuda/bfloat16.h"
#include "kernels/dtype.h"

namespace sluice {
namespace {

using kernels::cuda::Narrow;

}  // namespace

template <typename T>
absl::StatusOr<const T*> DeviceWeights::Load(const Checkpoint& checkpoint, const std::string& name,
                                             const std::vector<int64_t>& shape) {
  const absl::StatusOr<Tensor> tensor = checkpoint.Find(name, shape);
  if (!tensor.ok()) return tensor.status();
  std::vector<T> values(static_cast<size_t>(tensor->elements()));
  for (int64_t i = 0; i < tensor->elements(); ++i) {
    values[i] = Narrow<T>(kernels::LoadAsFloat(tensor->data, tensor->dtype, i));
  }
  return Put(values);
}

template <typename T>
absl::StatusOr<const T*> DeviceWeights::LoadTransposed(const Checkpoint& checkpoint,
                                                       const std::string& name, int64_t in,
                                                       int64_t out) {
  const absl::StatusOr<Tensor> tensor = checkpoint.Find(name, {out, in});
  if (!tensor.ok()) return tensor.status();
  std::vector<T> values(static_cast<size_t>(in * out));
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

template absl::StatusOr<const float*> DeviceWeights::Load(const Checkpoint&, const std::string&,
                                                          const std::vector<int64_t>&);
template absl::StatusOr<const kernels::cuda::BFloat16*> DeviceWeights::Load(
    const Checkpoint&, const std::string&, const std::vector<int64_t>&);
template absl::StatusOr<const float*> DeviceWeights::LoadTransposed(const Checkpoint&,
                                                                    const std::string&, int64_t,
                                                                    int64_t);
template absl::StatusOr<const kernels::cuda::BFloat16*> DeviceWeights::LoadTransposed(
    const Checkpoint&, const std::string&, int64_t, int64_t);
template absl::StatusOr<const float*> DeviceWeights::Put(const std::vector<float>&);

}  // namespace sluice
