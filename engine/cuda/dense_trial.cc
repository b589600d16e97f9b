#include "engine/cuda/dense_trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/cuda/bfloat16.h"

namespace sluice {
namespace {

using kernels::cuda::BFloat16;
using kernels::cuda::Narrow;
using kernels::cuda::Widen;

constexpr int32_t kComparedRows = 6;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
// The compared rows with a value that is not finite; the others show that it stays in its row.
constexpr std::pair<int32_t, float> kBroken[] = {
    {1, std::numeric_limits<float>::quiet_NaN()}, {3, kInfinity}, {4, -kInfinity}};

// The initial content of an accumulating layer's output: as a number these bytes are nearly the
// same in both types.
constexpr uint8_t kKeptByte = 0x3F;
constexpr uint8_t kNaNByte = 0xFF;

// Returns the numbers of rows to try, ascending.
std::vector<int32_t> RowCounts(int32_t most) {
  std::vector<int32_t> counts;
  for (int32_t rows = 1; rows <= most; rows = counts.back() + 1) counts.push_back(TriedRows(rows));
  return counts;
}

// The number of random rows; the others repeat them.
constexpr int64_t kRandomRows = 64;

double ValueAt(const void* values, size_t i, bool half) {
  return half ? double{Widen(static_cast<const BFloat16*>(values)[i])}
              : double{static_cast<const float*>(values)[i]};
}

double ValueOfBytes(uint8_t byte, bool half) {
  alignas(float) uint8_t bytes[sizeof(float)];
  std::memset(bytes, byte, sizeof(bytes));
  return ValueAt(bytes, 0, half);
}

// The functions of kernels/activation_kind.h.
double Apply(DenseActivation activation, double x) {
  switch (activation) {
    case DenseActivation::kNone:
      break;
    case DenseActivation::kRelu:
      return x < 0 ? 0 : x;
    case DenseActivation::kGeluTanh: {
      constexpr double kTwoOverPi = 0.63661977236758134308;
      return x * (1 + std::tanh(std::sqrt(kTwoOverPi) * (x + 0.044715 * x * x * x))) / 2;
    }
  }
  return x;
}

}  // namespace

size_t DenseTrial::element_bytes() const { return shape_.half ? sizeof(BFloat16) : sizeof(float); }
size_t DenseTrial::out_bytes() const {
  return shape_.half_out() ? sizeof(BFloat16) : sizeof(float);
}

absl::Status DenseTrial::Prepare(Device& device, DeviceStream& stream, size_t workspace_bytes) {
  workspace_bytes_ = workspace_bytes;
  absl::Status status = Allocate(device);
  if (status.ok()) status = FillX(device, stream);
  if (status.ok()) status = SumUp(device, stream);
  return status;
}

absl::Status DenseTrial::Allocate(Device& device) {
  const int32_t rows = MostRows(shape_);
  const std::pair<DeviceMemory*, size_t> wanted[] = {{&x_, rows * x_row_bytes()},
                                                     {&out_, rows * out_row_bytes()},
                                                     {&workspace_, workspace_bytes_}};
  for (const auto& [memory, bytes] : wanted) {
    if (bytes == 0) continue;
    SLUICE_ASSIGN_OR_RETURN(*memory, device.Allocate(bytes));
  }
  for (PinnedMemory* fetched : {&whole_, &part_}) {
    SLUICE_ASSIGN_OR_RETURN(*fetched, device.AllocatePinned(rows * out_row_bytes()));
  }
  return absl::OkStatus();
}

absl::Status DenseTrial::FillX(Device& device, DeviceStream& stream) {
  const int64_t k = shape_.k;
  const int64_t values = MostRows(shape_) * k;
  SLUICE_ASSIGN_OR_RETURN(auto staging, device.AllocatePinned(values * element_bytes()));
  const auto put = [&](int64_t i, float value) {
    if (shape_.half) {
      static_cast<BFloat16*>(staging.get())[i] = Narrow<BFloat16>(value);
    } else {
      static_cast<float*>(staging.get())[i] = value;
    }
  };
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const int64_t drawn = std::min(values, kRandomRows * k);
  for (int64_t i = 0; i < drawn; ++i) put(i, uniform(random));
  for (const auto& [row, value] : kBroken) put(row * k + k / 2, value);
  const size_t drawn_bytes = drawn * element_bytes(), all_bytes = values * element_bytes();
  for (size_t done = drawn_bytes; done < all_bytes; done += drawn_bytes) {
    std::memcpy(static_cast<char*>(staging.get()) + done, staging.get(),
                std::min(drawn_bytes, all_bytes - done));
  }
  first_x_.resize(kComparedRows * k);
  for (size_t i = 0; i < first_x_.size(); ++i) {
    first_x_[i] = static_cast<float>(ValueAt(staging.get(), i, shape_.half));
  }
  stream.CopyToDevice(x_.get(), staging.get(), values * element_bytes());
  return stream.Synchronize();
}

// The weight is copied a few rows at a time, since it may be large.
absl::Status DenseTrial::SumUp(Device& device, DeviceStream& stream) {
  constexpr size_t kStagingBytes = 4 << 20;
  const int64_t n = shape_.n;
  const size_t row_bytes = n * element_bytes();
  const int32_t most = std::max<size_t>(1, kStagingBytes / row_bytes);
  SLUICE_ASSIGN_OR_RETURN(auto staging, device.AllocatePinned(most * row_bytes));
  const auto fetch = [&](const void* from, int32_t rows) {
    stream.CopyToHost(staging.get(), from, rows * row_bytes);
    return stream.Synchronize();
  };
  absolute_.assign(n, 0);
  sums_.assign(kComparedRows * n,
               shape_.accumulate ? ValueOfBytes(kKeptByte, shape_.half_out()) : 0);
  for (int32_t first = 0; first < shape_.k; first += most) {
    const int32_t rows = std::min(most, shape_.k - first);
    const auto* const from = static_cast<const char*>(weight_) + first * row_bytes;
    SLUICE_RETURN_IF_ERROR(fetch(from, rows));
    for (int32_t i = 0; i < rows; ++i) {
      AddProducts(first + i, static_cast<const char*>(staging.get()) + i * row_bytes);
    }
  }
  if (!shape_.bias) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(fetch(bias_, 1));
  for (size_t i = 0; i < sums_.size(); ++i) {
    sums_[i] += ValueAt(staging.get(), i % n, shape_.half);
  }
  return absl::OkStatus();
}

void DenseTrial::AddProducts(int32_t k, const void* weights) {
  const int64_t n = shape_.n;
  std::vector<double> row(n);
  for (int64_t i = 0; i < n; ++i) {
    row[i] = ValueAt(weights, i, shape_.half);
    absolute_[i] += std::abs(row[i]);
  }
  for (int32_t r = 0; r < kComparedRows; ++r) {
    const double x = first_x_[r * shape_.k + k];
    double* const sums = sums_.data() + r * n;
    for (int64_t i = 0; i < n; ++i) sums[i] += x * row[i];
  }
}

absl::Status DenseTrial::Run(const DenseLayer& layer, int32_t first, int32_t rows, uint8_t garbage,
                             void* result, DeviceStream& stream) const {
  const size_t bytes = rows * out_row_bytes();
  stream.Fill(out_.get(), shape_.accumulate ? kKeptByte : kNaNByte, bytes);
  if (workspace_bytes_ > 0) stream.Fill(workspace_.get(), garbage, workspace_bytes_);
  layer.Run({.x = static_cast<const char*>(x_.get()) + first * x_row_bytes(),
             .weight = weight_,
             .bias = bias_,
             .rows = rows,
             .out = out_.get(),
             .workspace = workspace_.get()},
            stream);
  stream.CopyToHost(result, out_.get(), bytes);
  return stream.Synchronize();
}

absl::Status DenseTrial::CheckValues() const {
  const int64_t n = shape_.n;
  const double rounding = shape_.half_out() ? 0x1p-7 : 0x1p-16;
  for (int64_t i = 0; i < std::ssize(sums_); ++i) {
    const double expected = Apply(shape_.activation, sums_[i]);
    const double value = ValueAt(whole_.get(), i, shape_.half_out());
    if (!std::isfinite(expected)) {
      if (!std::isfinite(value)) continue;
      return absl::FailedPreconditionError("a value that is not finite is lost");
    }
    const double most = shape_.k * 0x1p-24 * absolute_[i % n] + rounding * std::abs(sums_[i]);
    if (std::abs(value - expected) <= most) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("row ", i / n, " has ", value, " in place of ", expected));
  }
  return absl::OkStatus();
}

absl::Status DenseTrial::Check(const DenseLayer& layer, DeviceStream& stream) const {
  constexpr size_t kAlignment = 256;
  const int32_t aligned = kAlignment / std::gcd(kAlignment, x_row_bytes());
  const int32_t most = MostRows(shape_);
  SLUICE_RETURN_IF_ERROR(Run(layer, 0, most, kNaNByte, whole_.get(), stream));
  SLUICE_RETURN_IF_ERROR(CheckValues());
  for (const int32_t rows : RowCounts(most)) {
    // These are the last rows, so that each is at another place than in the run of all rows.
    const int32_t first = (most - rows) / aligned * aligned;
    SLUICE_RETURN_IF_ERROR(Run(layer, first, rows, /*garbage=*/0, part_.get(), stream));
    const char* const expected = static_cast<const char*>(whole_.get()) + first * out_row_bytes();
    const bool same = std::memcmp(part_.get(), expected, rows * out_row_bytes()) == 0;
    if (!same) return absl::FailedPreconditionError("rows depend on their number");
  }
  return absl::OkStatus();
}

}  // namespace sluice
