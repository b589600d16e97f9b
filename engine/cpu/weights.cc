#include "engine/cpu/weights.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/model/kept_channels.h"
#include "engine/model/stored_int4.h"

namespace sluice {

absl::StatusOr<std::vector<float>> WeightLoader::Floats(const TensorPart& part, int64_t count) {
  if (!part.present()) return std::vector<float>();
  SLUICE_ASSIGN_OR_RETURN(auto tensor, checkpoint_.Find(part.name, part.shape));
  SLUICE_CHECK(part.run > 0 || part.first + count <= tensor.elements());
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
                                                           int64_t n,
                                                           const WeightPrecision& precision) {
  if (precision.stored) {
    SLUICE_RETURN_IF_ERROR(CheckStoredLayout(part, layout));
    return Stored(part, n, precision.quantization);
  }
  SLUICE_ASSIGN_OR_RETURN(auto tensor, checkpoint_.Find(part.name, part.shape));
  const int64_t element = kernels::DTypeBytes(tensor.dtype);
  const auto* data = static_cast<const std::byte*>(tensor.data) + part.first * element;
  std::vector<std::byte> columns;  // of one part of a fused tensor
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
               .transposed = layout == MatrixLayout::kOutIn},
              precision);
}

absl::StatusOr<kernels::PackedWeights> WeightLoader::Stored(const TensorPart& part, int64_t n,
                                                            Quantization quantization) {
  if (quantization == Quantization::kInt4) {
    const int64_t in = part.shape[1];
    SLUICE_ASSIGN_OR_RETURN(
        const StoredInt4 stored,
        ReadStoredInt4(checkpoint_, stored_, part.name, part.shape[0], in, part.first / in, n));
    return Counted(kernels::PackedWeights::PackInt4(
        context_, {.k = in,
                   .n = n,
                   .group = stored.group,
                   .codes = stored.codes.data(),
                   .scales = stored.scales.data(),
                   .zeros = stored.zeros.empty() ? nullptr : stored.zeros.data()}));
  }
  SLUICE_ASSIGN_OR_RETURN(const auto stored, checkpoint_.FindInt8(part.name, part.shape));
  SLUICE_ASSIGN_OR_RETURN(const KeptChannels kept, FindKept(checkpoint_, part.name, part.shape));
  const int64_t k = part.shape[1], kept_row = std::ssize(kept.channels);
  std::vector<float> scales(n);
  kernels::ConvertToFloat(stored.scales.data, stored.scales.dtype, part.first / k, n,
                          scales.data());
  return Pack(
      {.data = static_cast<const std::byte*>(stored.values.data) + part.first,
       .dtype = stored.values.dtype,
       .matrices = 1,
       .k = k,
       .n = n,
       .transposed = true,
       .scales = scales.data(),
       .kept = {.channels = kept.channels,
                .weights = static_cast<const std::byte*>(kept.weights.data) +
                           part.first / k * kept_row * kernels::DTypeBytes(kept.weights.dtype),
                .dtype = kept.weights.dtype}},
      {.quantization = Quantization::kInt8});
}

absl::StatusOr<kernels::PackedWeights> WeightLoader::Router(const TensorPart& part, int64_t k,
                                                            int64_t n) {
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint_.Find(part.name, part.shape));
  std::vector<float> values(k * n);
  kernels::ConvertToFloat(tensor.data, tensor.dtype, part.first, k * n, values.data());
  return Pack({.data = values.data(),
               .dtype = kernels::DType::kF32,
               .matrices = 1,
               .k = k,
               .n = n,
               .transposed = true},
              {});
}

absl::StatusOr<kernels::PackedWeights> WeightLoader::Scaled(const TensorPart& part,
                                                            MatrixLayout layout, int64_t k,
                                                            int64_t n, float scale) {
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint_.Find(part.name, part.shape));
  SLUICE_ASSIGN_OR_RETURN(std::vector<float> values, Floats(part, k * n));
  for (float& value : values) value *= scale;
  kernels::WeightSource source = {.data = values.data(),
                                  .dtype = kernels::DType::kF32,
                                  .matrices = 1,
                                  .k = k,
                                  .n = n,
                                  .transposed = layout == MatrixLayout::kOutIn};
  constexpr uint32_t kRest = 0xFFFF;  // the bits that bf16 does not have
  const auto exact = [](float value) { return (std::bit_cast<uint32_t>(value) & kRest) == 0; };
  if (tensor.dtype != kernels::DType::kBF16 || !std::ranges::all_of(values, exact)) {
    return Pack(source, {});
  }
  std::vector<uint16_t> rounded(values.size());
  std::ranges::transform(values, rounded.begin(), kernels::RoundToBF16);
  source.data = rounded.data();
  source.dtype = kernels::DType::kBF16;
  return Pack(source, {});
}

absl::StatusOr<kernels::PackedWeights> WeightLoader::Matrices(const LinearOp& op, int64_t k,
                                                              int64_t n,
                                                              const WeightPrecision& precision) {
  const TensorPart& part = op.weight;
  if (precision.stored) return StoredMatricesError(part);
  SLUICE_ASSIGN_OR_RETURN(auto tensor, checkpoint_.Find(part.name, part.shape));
  const int64_t element = kernels::DTypeBytes(tensor.dtype);
  const int64_t stride = part.run > 0 ? part.stride : k * n;
  std::vector<const void*> matrices;
  matrices.reserve(op.matrices);
  for (int64_t i = 0; i < op.matrices - std::ssize(op.more_matrices); ++i) {
    matrices.push_back(static_cast<const std::byte*>(tensor.data) +
                       (part.first + i * stride) * element);
  }
  for (const std::string& name : op.more_matrices) {
    SLUICE_ASSIGN_OR_RETURN(const Tensor next, checkpoint_.Find(name, part.shape));
    if (next.dtype != tensor.dtype) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors ", part.name, " and ", name,
                       " are matrices of one layer; they must have the same dtype"));
    }
    matrices.push_back(next.data);
  }
  return Pack({.data = nullptr,
               .dtype = tensor.dtype,
               .matrices = op.matrices,
               .k = k,
               .n = n,
               .transposed = op.layout == MatrixLayout::kOutIn,
               .each = matrices},
              precision);
}

std::vector<std::byte> WeightLoader::Collect(const Tensor& tensor, const TensorPart& part,
                                             int64_t count) {
  const int64_t element = kernels::DTypeBytes(tensor.dtype);
  const auto* const data = static_cast<const std::byte*>(tensor.data);
  std::vector<std::byte> values;
  values.reserve(count * element);
  for (int64_t i = 0; i < count / part.run; ++i) {
    const int64_t first = part.FirstOfRun(i);
    values.insert(values.end(), data + first * element, data + (first + part.run) * element);
  }
  return values;
}

kernels::PackedWeights WeightLoader::Pack(const kernels::WeightSource& source,
                                          const WeightPrecision& precision) {
  switch (precision.quantization) {
    case Quantization::kNone:
      break;
    case Quantization::kInt8:
      return Counted(kernels::PackedWeights::PackInt8(context_, source));
    case Quantization::kInt4:
      return Counted(kernels::PackedWeights::PackInt4(context_, source, precision.group));
  }
  return Counted(kernels::PackedWeights::Pack(context_, source));
}

kernels::PackedWeights WeightLoader::Counted(kernels::PackedWeights packed) {
  bytes_ += packed.bytes();
  return packed;
}

}  // namespace sluice
