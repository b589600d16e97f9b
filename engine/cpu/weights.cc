#include "engine/cpu/weights.h"

namespace sluice {

absl::StatusOr<std::vector<float>> WeightLoader::Floats(const std::string& name,
                                                        const std::vector<int64_t>& shape) {
  auto tensor = checkpoint_.Find(name, shape);
  if (!tensor.ok()) return tensor.status();
  std::vector<float> values(tensor->elements());
  kernels::ConvertToFloat(tensor->data, tensor->dtype, 0, tensor->elements(), values.data());
  bytes_ += static_cast<int64_t>(values.size() * sizeof(float));
  return values;
}

absl::StatusOr<StoredTensor> WeightLoader::AsStored(const std::string& name,
                                                    const std::vector<int64_t>& shape) {
  auto tensor = checkpoint_.Find(name, shape);
  if (!tensor.ok()) return tensor.status();
  const auto* begin = static_cast<const std::byte*>(tensor->data);
  const auto size = tensor->elements() * static_cast<int64_t>(kernels::DTypeBytes(tensor->dtype));
  bytes_ += size;
  return StoredTensor{.bytes = {begin, begin + size}, .dtype = tensor->dtype};
}

absl::StatusOr<std::unique_ptr<kernels::Dense>> WeightLoader::DenseLayer(const std::string& name,
                                                                         int64_t k, int64_t n) {
  auto tensor = checkpoint_.Find(name, {n, k});
  if (!tensor.ok()) return tensor.status();
  auto dense = kernels::Dense::Create(context_, {.data = tensor->data,
                                                 .dtype = tensor->dtype,
                                                 .matrices = 1,
                                                 .k = k,
                                                 .n = n,
                                                 .transposed = true});
  bytes_ += dense->bytes();
  return dense;
}

absl::StatusOr<kernels::PackedWeights> WeightLoader::PositionWise(const std::string& name,
                                                                  int64_t positions, int64_t k,
                                                                  int64_t n) {
  auto tensor = checkpoint_.Find(name, {positions, k, n});
  if (!tensor.ok()) return tensor.status();
  kernels::PackedWeights packed = kernels::PackedWeights::Pack(context_, {.data = tensor->data,
                                                                          .dtype = tensor->dtype,
                                                                          .matrices = positions,
                                                                          .k = k,
                                                                          .n = n,
                                                                          .transposed = false});
  bytes_ += packed.bytes();
  return packed;
}

}  // namespace sluice
