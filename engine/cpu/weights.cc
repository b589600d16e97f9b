#include "engine/cpu/weights.h"

#include <cstring>

#include "base/check.h"
#include "base/status_macros.h"

namespace sluice {

absl::StatusOr<std::vector<float>> WeightLoader::Floats(const TensorPart& part, int64_t count) {
  if (!part.present()) return std::vector<float>();
  SLUICE_ASSIGN_OR_RETURN(auto tensor, checkpoint_.Find(part.name, part.shape));
  SLUICE_CHECK(part.first + count <= tensor.elements());
  std::vector<float> values(count);
  if (part.run > 0) {
    kernels::ConvertToFloat(Collect(tensor, part, count).data(), tensor.dtype, 0, count,
                            values.data());
  } else {
    kernels::ConvertToFloat(tensor.data, tensor.dtype, part.first, count, values.data());
  }
  bytes_ += values.size() * sizeof(float);
  return values;
}

absl::StatusOr<StoredTensor> WeightLoader::AsStored(const TensorPart& part) {
  SLUICE_ASSIGN_OR_RETURN(auto tensor, checkpoint_.Find(part.name, part.shape));
  const int64_t element = kernels::DTypeBytes(tensor.dtype);
  const auto* begin = static_cast<const std::byte*>(tensor.data);
  StoredTensor stored{.bytes = {begin + part.first * element, begin + tensor.elements() * element},
                      .dtype = tensor.dtype};
  bytes_ += std::ssize(stored.bytes);
  return stored;
}

absl::StatusOr<kernels::PackedWeights> WeightLoader::Dense(const TensorPart& part,
                                                           MatrixLayout layout, int64_t k,
                                                           int64_t n) {
  SLUICE_ASSIGN_OR_RETURN(auto tensor, checkpoint_.Find(part.name, part.shape));
  const int64_t element = kernels::DTypeBytes(tensor.dtype);
  const auto* data = static_cast<const std::byte*>(tensor.data) + part.first * element;
  std::vector<std::byte> columns;  // those of one part of a fused tensor
  if (part.run > 0) {
    columns = Collect(tensor, part, k * n);
    data = columns.data();
  }
  if (layout == MatrixLayout::kInOut && part.shape[1] != n) {
    columns.resize(k * n * element);
    for (int64_t row = 0; row < k; ++row) {
      std::memcpy(columns.data() + row * n * element, data + row * part.shape[1] * element,
                  n * element);
    }
    data = columns.data();
  }
  return Pack({.data = data,
               .dtype = tensor.dtype,
               .matrices = 1,
               .k = k,
               .n = n,
               .transposed = layout == MatrixLayout::kOutIn});
}

absl::StatusOr<kernels::PackedWeights> WeightLoader::PositionWise(const TensorPart& part) {
  SLUICE_ASSIGN_OR_RETURN(auto tensor, checkpoint_.Find(part.name, part.shape));
  return Pack({.data = tensor.data,
               .dtype = tensor.dtype,
               .matrices = part.shape[0],
               .k = part.shape[1],
               .n = part.shape[2],
               .transposed = false});
}

std::vector<std::byte> WeightLoader::Collect(const Tensor& tensor, const TensorPart& part,
                                             int64_t count) {
  const int64_t element = kernels::DTypeBytes(tensor.dtype);
  const auto* const data = static_cast<const std::byte*>(tensor.data);
  std::vector<std::byte> values;
  values.reserve(count * element);
  for (int64_t first = part.first; count > 0; first += part.stride, count -= part.run) {
    values.insert(values.end(), data + first * element, data + (first + part.run) * element);
  }
  return values;
}

kernels::PackedWeights WeightLoader::Pack(const kernels::WeightSource& source) {
  kernels::PackedWeights packed = kernels::PackedWeights::Pack(context_, source);
  bytes_ += packed.bytes();
  return packed;
}

}  // namespace sluice
