#include "engine/cuda/device_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/int8.h"
#include "kernels/cuda/pack.h"
#include "kernels/dtype.h"

namespace sluice {
namespace {

using kernels::DType;
using kernels::DTypeBytes;
using kernels::cuda::WeightLayout;

// Transposed pieces have a multiple of this number of rows, so that the rows of the result stay
// aligned, unless a piece is smaller.
constexpr int64_t kRowMultiple = 64;

const void* ElementOf(const void* data, DType dtype, int64_t i) {
  return static_cast<const char*>(data) + i * DTypeBytes(dtype);
}

int64_t CountOf(const std::vector<DeviceWeights::Columns>& columns) {
  int64_t count = 0;
  for (const DeviceWeights::Columns& own : columns) count += own.count;
  return count;
}

}  // namespace

template <typename T>
absl::StatusOr<const T*> DeviceWeights::Load(const Checkpoint& checkpoint, const TensorPart& part,
                                             int64_t count, int64_t padded) {
  if (!part.present()) return nullptr;
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint.Find(part.name, part.shape));
  SLUICE_CHECK(part.run > 0 || part.first + count <= tensor.elements());
  return SendAsIs<T>(SourceOf(tensor, part, count), padded);
}

template <typename T>
absl::StatusOr<const T*> DeviceWeights::LoadDense(const Checkpoint& checkpoint,
                                                  const TensorPart& part, MatrixLayout layout,
                                                  int64_t in, int64_t out, int64_t padded) {
  SLUICE_CHECK(padded <= out || layout == MatrixLayout::kOutIn);
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint.Find(part.name, part.shape));
  if (layout == MatrixLayout::kInOut) {
    return SendAsIs<T>({.data = ElementOf(tensor.data, tensor.dtype, part.first),
                        .dtype = tensor.dtype,
                        .rows = in,
                        .columns = out,
                        .stride = part.shape[1]});
  }
  const int64_t stride = std::max(padded, out);
  SLUICE_ASSIGN_OR_RETURN(T* const values, AllocatePadded<T>(out * in, stride * in));
  SLUICE_RETURN_IF_ERROR(SendColumnsTo<T>(tensor, part, out, in, values, stride));
  return values;
}

template <typename T>
absl::StatusOr<const T*> DeviceWeights::LoadMatrices(const Checkpoint& checkpoint,
                                                     const LinearOp& op, int64_t in, int64_t out) {
  const TensorPart& part = op.weight;
  const int64_t each = in * out, stride = part.run > 0 ? part.stride : each;
  if (op.layout == MatrixLayout::kInOut) {
    SLUICE_CHECK(op.more_matrices.empty());
    return Load<T>(checkpoint, part, op.matrices * each);
  }
  SLUICE_ASSIGN_OR_RETURN(T* const values, Allocate<T>(op.matrices * each));
  T* next = values;
  const auto send = [&](const Tensor& tensor, int64_t first) {
    return SendTransposedTo<T>({.data = ElementOf(tensor.data, tensor.dtype, first),
                                .dtype = tensor.dtype,
                                .rows = out,
                                .columns = in,
                                .stride = in},
                               std::exchange(next, next + each), out);
  };
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint.Find(part.name, part.shape));
  for (int64_t i = 0; i < op.matrices - std::ssize(op.more_matrices); ++i) {
    SLUICE_RETURN_IF_ERROR(send(tensor, part.first + i * stride));
  }
  for (const std::string& name : op.more_matrices) {
    SLUICE_ASSIGN_OR_RETURN(const Tensor more, checkpoint.Find(name, part.shape));
    SLUICE_RETURN_IF_ERROR(send(more, 0));
  }
  return values;
}

template <typename T>
absl::StatusOr<const T*> DeviceWeights::LoadJoined(const Checkpoint& checkpoint,
                                                   const std::vector<Columns>& columns,
                                                   int64_t in) {
  const int64_t all = CountOf(columns);
  SLUICE_ASSIGN_OR_RETURN(T* const values, Allocate<T>(all * in));
  int64_t first = 0;
  for (const auto& [part, count] : columns) {
    SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint.Find(part->name, part->shape));
    SLUICE_RETURN_IF_ERROR(SendColumnsTo<T>(tensor, *part, count, in, values + first, all));
    first += count;
  }
  return values;
}

template <typename T>
absl::StatusOr<const T*> DeviceWeights::LoadJoinedBias(const Checkpoint& checkpoint,
                                                       const std::vector<Columns>& columns) {
  if (!columns.front().part->present()) return nullptr;
  const int64_t all = CountOf(columns);
  SLUICE_ASSIGN_OR_RETURN(T* const values, Allocate<T>(all));
  int64_t first = 0;
  for (const auto& [part, count] : columns) {
    SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint.Find(part->name, part->shape));
    SLUICE_RETURN_IF_ERROR(SendAsIsTo<T>(SourceOf(tensor, *part, count), values + first));
    first += count;
  }
  return values;
}

template <typename T>
absl::StatusOr<const T*> DeviceWeights::Pack(const T* weight, WeightLayout layout, int64_t matrices,
                                             int32_t k, int32_t n) {
  if (layout == WeightLayout::kPlain) return weight;
  SLUICE_ASSIGN_OR_RETURN(T* const packed,
                          Allocate<T>(kernels::cuda::WeightElements<T>(layout, matrices, k, n)));
  kernels::cuda::PackAs<T>(stream_, layout,
                           {.in = weight, .matrices = matrices, .k = k, .n = n, .out = packed});
  SLUICE_RETURN_IF_ERROR(stream_.Synchronize());  // nothing reads the weights any more
  Release(weight, matrices * k * n);
  return packed;
}

absl::StatusOr<Int8Weight> DeviceWeights::Quantize(const float* weight, int64_t matrices, int32_t k,
                                                   int32_t n) {
  SLUICE_ASSIGN_OR_RETURN(float* const scales, Allocate<float>(matrices * n));
  SLUICE_ASSIGN_OR_RETURN(float* const factors, Allocate<float>(matrices * n));
  kernels::cuda::ScaleColumns(
      stream_,
      {.in = weight, .matrices = matrices, .k = k, .n = n, .scales = scales, .factors = factors});
  SLUICE_ASSIGN_OR_RETURN(const int8_t* const values, QuantizeBy(weight, factors, matrices, k, n));
  return Int8Weight{values, scales};
}

absl::StatusOr<Int8Weight> DeviceWeights::LoadStoredInt8(const Checkpoint& checkpoint,
                                                         const std::vector<Columns>& columns,
                                                         int64_t in) {
  const int64_t all = CountOf(columns);
  SLUICE_ASSIGN_OR_RETURN(float* const values, Allocate<float>(all * in));
  std::vector<float> scales(all);
  int64_t first = 0;
  for (const auto& [part, count] : columns) {
    SLUICE_ASSIGN_OR_RETURN(const auto stored, checkpoint.FindInt8(part->name, part->shape));
    SLUICE_RETURN_IF_ERROR(
        SendColumnsTo<float>(stored.values, *part, count, in, values + first, all));
    kernels::ConvertToFloat(stored.scales.data, stored.scales.dtype, part->first / in, count,
                            scales.data() + first);
    first += count;
  }
  SLUICE_ASSIGN_OR_RETURN(
      const int8_t* const columns_in_int8,
      QuantizeBy(values, nullptr, 1, static_cast<int32_t>(in), static_cast<int32_t>(all)));
  SLUICE_ASSIGN_OR_RETURN(const float* const sent, Put(scales));
  return Int8Weight{columns_in_int8, sent};
}

absl::StatusOr<const int8_t*> DeviceWeights::QuantizeBy(const float* weight, const float* factors,
                                                        int64_t matrices, int32_t k, int32_t n) {
  SLUICE_ASSIGN_OR_RETURN(int8_t* const out,
                          Allocate<int8_t>(matrices * n * kernels::cuda::Int8Stride(k)));
  kernels::cuda::QuantizeColumns(
      stream_,
      {.in = weight, .matrices = matrices, .k = k, .n = n, .factors = factors, .out = out});
  SLUICE_RETURN_IF_ERROR(stream_.Synchronize());  // nothing reads the weights any more
  Release(weight, matrices * k * n);
  if (factors != nullptr) Release(factors, matrices * n);
  return out;
}

absl::StatusOr<const float*> DeviceWeights::Put(const std::vector<float>& values) {
  const int64_t count = std::ssize(values);
  return SendAsIs<float>(
      {.data = values.data(), .dtype = DType::kF32, .rows = 1, .columns = count, .stride = count});
}

absl::StatusOr<const int32_t*> DeviceWeights::Put(const std::vector<int32_t>& values) {
  static_assert(sizeof(int32_t) == sizeof(float));  // bytes are sent as they are
  const int64_t count = std::ssize(values);
  SLUICE_ASSIGN_OR_RETURN(const float* const sent, SendAsIs<float>({.data = values.data(),
                                                                    .dtype = DType::kF32,
                                                                    .rows = 1,
                                                                    .columns = count,
                                                                    .stride = count}));
  return reinterpret_cast<const int32_t*>(sent);
}

DeviceWeights::Source DeviceWeights::SourceOf(const Tensor& tensor, const TensorPart& part,
                                              int64_t count) {
  const int64_t run = part.run > 0 ? part.run : count;
  return {.data = ElementOf(tensor.data, tensor.dtype, part.first),
          .dtype = tensor.dtype,
          .rows = count / run,
          .columns = run,
          .stride = part.run > 0 ? part.stride : count,
          .evens_first = part.evens_first};
}

template <typename T>
absl::Status DeviceWeights::SendColumnsTo(const Tensor& tensor, const TensorPart& part,
                                          int64_t columns, int64_t in, T* out, int64_t out_stride) {
  if (part.run == in) {
    return SendTransposedTo<T>(SourceOf(tensor, part, columns * in), out, out_stride);
  }
  const int64_t run = part.run > 0 ? part.run / in : columns;
  for (int64_t first = 0; first < columns; first += run) {
    const int64_t element = part.first + first / run * part.stride;
    SLUICE_RETURN_IF_ERROR(
        SendTransposedTo<T>({.data = ElementOf(tensor.data, tensor.dtype, element),
                             .dtype = tensor.dtype,
                             .rows = run,
                             .columns = in,
                             .stride = in},
                            out + first, out_stride));
  }
  return absl::OkStatus();
}

void DeviceWeights::Gather(const Source& source, int64_t first, int64_t count, void* to) {
  auto* out = static_cast<char*>(to);
  while (count > 0) {
    const int64_t row = RunAt(first / source.columns, source.evens_first);
    const int64_t column = first % source.columns;
    const int64_t run = std::min(count, source.columns - column);
    const int64_t bytes = run * DTypeBytes(source.dtype);
    std::memcpy(out, ElementOf(source.data, source.dtype, row * source.stride + column), bytes);
    out += bytes;
    first += run;
    count -= run;
  }
}

template <typename T>
absl::StatusOr<T*> DeviceWeights::Allocate(int64_t count) {
  SLUICE_ASSIGN_OR_RETURN(DeviceMemory memory, device_.Allocate(count * kSizeOf<T>));
  bytes_ += count * kSizeOf<T>;
  memory_.push_back(std::move(memory));
  return static_cast<T*>(memory_.back().get());
}

template <typename T>
void DeviceWeights::Release(const T* values, int64_t count) {
  const auto found = std::ranges::find(memory_, values, &DeviceMemory::get);
  SLUICE_CHECK(found != memory_.end());
  memory_.erase(found);
  bytes_ -= count * kSizeOf<T>;
}

template <typename T>
absl::StatusOr<T*> DeviceWeights::AllocatePadded(int64_t count, int64_t padded) {
  SLUICE_ASSIGN_OR_RETURN(T* const out, Allocate<T>(std::max(count, padded)));
  if (padded > count) stream_.Fill(out, 0, padded * sizeof(T));
  return out;
}

template <typename T>
absl::StatusOr<const T*> DeviceWeights::SendAsIs(const Source& source, int64_t padded) {
  const int64_t count = source.rows * source.columns;
  SLUICE_ASSIGN_OR_RETURN(T* const out, AllocatePadded<T>(count, padded));
  SLUICE_RETURN_IF_ERROR(SendAsIsTo<T>(source, out));
  return out;
}

template <typename T>
absl::Status DeviceWeights::SendAsIsTo(const Source& source, T* out) {
  const int64_t count = source.rows * source.columns;
  const auto most = static_cast<int64_t>(ring_.most_bytes()) / DTypeBytes(source.dtype);
  for (int64_t first = 0; first < count; first += most) {
    const int64_t now = std::min(most, count - first);
    const size_t bytes = now * DTypeBytes(source.dtype);
    SLUICE_ASSIGN_OR_RETURN(void* const piece, ring_.NextPiece(bytes));
    Gather(source, first, now, piece);
    kernels::cuda::Convert<T>(
        stream_,
        {.in = ring_.Send(bytes), .dtype = source.dtype, .count = now, .out = out + first});
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status DeviceWeights::SendTransposedTo(const Source& source, T* out, int64_t out_stride) {
  // The values of a piece, which is at least one row of some columns.
  const auto most = static_cast<int64_t>(ring_.most_bytes()) / DTypeBytes(source.dtype);
  const int64_t columns = std::min(source.columns, most);
  const int64_t stride = kernels::cuda::TransposeStride(columns, source.dtype);
  int64_t rows = most / stride;
  if (rows > kRowMultiple) rows -= rows % kRowMultiple;
  for (int64_t r = 0; r < source.rows; r += rows) {
    for (int64_t c = 0; c < source.columns; c += columns) {
      const int64_t down = std::min(rows, source.rows - r);
      const int64_t across = std::min(columns, source.columns - c);
      const size_t bytes = down * stride * DTypeBytes(source.dtype);
      SLUICE_ASSIGN_OR_RETURN(void* const piece, ring_.NextPiece(bytes));
      for (int64_t i = 0; i < down; ++i) {
        Gather(source, (r + i) * source.columns + c, across,
               static_cast<char*>(piece) + i * stride * DTypeBytes(source.dtype));
      }
      kernels::cuda::Transpose<T>(stream_, {.in = ring_.Send(bytes),
                                            .dtype = source.dtype,
                                            .rows = down,
                                            .columns = across,
                                            .in_stride = stride,
                                            .out = out + c * out_stride + r,
                                            .out_stride = out_stride});
    }
  }
  return absl::OkStatus();
}

#define SLUICE_INSTANTIATE(T)                                                                     \
  template absl::StatusOr<const T*> DeviceWeights::Load(const Checkpoint&, const TensorPart&,     \
                                                        int64_t, int64_t);                        \
  template absl::StatusOr<const T*> DeviceWeights::LoadDense(                                     \
      const Checkpoint&, const TensorPart&, MatrixLayout, int64_t, int64_t, int64_t);             \
  template absl::StatusOr<const T*> DeviceWeights::LoadMatrices(                                  \
      const Checkpoint&, const LinearOp&, int64_t, int64_t);                                      \
  template absl::StatusOr<const T*> DeviceWeights::LoadJoined(                                    \
      const Checkpoint&, const std::vector<Columns>&, int64_t);                                   \
  template absl::StatusOr<const T*> DeviceWeights::LoadJoinedBias(const Checkpoint&,              \
                                                                  const std::vector<Columns>&);   \
  template absl::StatusOr<const T*> DeviceWeights::Pack(const T*, WeightLayout, int64_t, int32_t, \
                                                        int32_t);

SLUICE_INSTANTIATE(float)
SLUICE_INSTANTIATE(kernels::cuda::BFloat16)
#undef SLUICE_INSTANTIATE
template absl::StatusOr<const int8_t*> DeviceWeights::Pack(const int8_t*, WeightLayout, int64_t,
                                                           int32_t, int32_t);

}  // namespace sluice
