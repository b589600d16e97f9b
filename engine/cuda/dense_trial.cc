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

// The number of random rows; the others repeat them.
constexpr int64_t kRandomRows = 64;

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

// x begins at a multiple of 256 bytes.
std::vector<std::vector<int32_t>> DenseBatches(const DenseShape& shape) {
  constexpr int64_t kAlignment = 256;
  const int64_t aligned = kAlignment / std::gcd(kAlignment, shape.k * shape.operand_bytes());
  const int32_t most = MostRows(shape);
  std::vector<std::vector<int32_t>> batches;
  const auto add = [&](int64_t first, int32_t rows) {
    std::vector<int32_t>& batch = batches.emplace_back(rows);
    std::iota(batch.begin(), batch.end(), static_cast<int32_t>(first));
  };
  add(0, most);
  for (int32_t rows = TriedRows(shape, 1);; rows = TriedRows(shape, rows + 1)) {
    add((most - rows) / aligned * aligned, rows);
    if (rows == most) return batches;
  }
}

absl::Status DenseTrial::Prepare(Device& device, DeviceStream& stream, size_t workspace_bytes) {
  workspace_bytes_ = workspace_bytes;
  SLUICE_ASSIGN_OR_RETURN(x_, device.Allocate(MostRows(shape_) * x_row_bytes()));
  if (workspace_bytes > 0) {
    SLUICE_ASSIGN_OR_RETURN(workspace_, device.Allocate(workspace_bytes));
  }
  SLUICE_RETURN_IF_ERROR(FillX(device, stream));
  SLUICE_RETURN_IF_ERROR(SumUp(device, stream));
  SLUICE_ASSIGN_OR_RETURN(trial_, RowTrial::Make(Plan(), device));
  return absl::OkStatus();
}

absl::Status DenseTrial::FillX(Device& device, DeviceStream& stream) {
  const int64_t k = shape_.k;
  const int64_t values = MostRows(shape_) * k;
  SLUICE_ASSIGN_OR_RETURN(auto staging, device.AllocatePinned(values * shape_.operand_bytes()));
  const auto put = [&](int64_t i, float value) {
    if (shape_.half()) {
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
  const size_t drawn_bytes = drawn * shape_.operand_bytes(),
               all_bytes = values * shape_.operand_bytes();
  for (size_t done = drawn_bytes; done < all_bytes; done += drawn_bytes) {
    std::memcpy(static_cast<char*>(staging.get()) + done, staging.get(),
                std::min(drawn_bytes, all_bytes - done));
  }
  first_x_.resize(kComparedRows * k);
  for (size_t i = 0; i < first_x_.size(); ++i) {
    first_x_[i] = static_cast<float>(TrialValue(staging.get(), i, shape_.half()));
  }
  stream.CopyToDevice(x_.get(), staging.get(), values * shape_.operand_bytes());
  return stream.Synchronize();
}

// The weight is copied a few rows at a time, since it may be large.
absl::Status DenseTrial::SumUp(Device& device, DeviceStream& stream) {
  constexpr size_t kStagingBytes = 4 << 20;
  const int64_t n = shape_.n;
  const size_t row_bytes = n * shape_.operand_bytes();
  const int32_t most = std::max<size_t>(1, kStagingBytes / row_bytes);
  SLUICE_ASSIGN_OR_RETURN(auto staging, device.AllocatePinned(most * row_bytes));
  const auto fetch = [&](const void* from, int32_t rows) {
    stream.CopyToHost(staging.get(), from, rows * row_bytes);
    return stream.Synchronize();
  };
  absolute_.assign(n, 0);
  sums_.assign(kComparedRows * n,
               shape_.accumulate ? RowTrialPlan{.half = shape_.half_out()}.kept() : 0);
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
    sums_[i] += TrialValue(staging.get(), i % n, shape_.half());
  }
  return absl::OkStatus();
}

void DenseTrial::AddProducts(int32_t k, const void* weights) {
  const int64_t n = shape_.n;
  std::vector<double> row(n);
  for (int64_t i = 0; i < n; ++i) {
    row[i] = TrialValue(weights, i, shape_.half());
    absolute_[i] += std::abs(row[i]);
  }
  for (int32_t r = 0; r < kComparedRows; ++r) {
    const double x = first_x_[r * shape_.k + k];
    double* const sums = sums_.data() + r * n;
    for (int64_t i = 0; i < n; ++i) sums[i] += x * row[i];
  }
}

RowTrialPlan DenseTrial::Plan() const {
  RowTrialPlan plan = {.width = shape_.n,
                       .half = shape_.half_out(),
                       .initial_byte = shape_.accumulate ? RowTrialPlan::kKept : uint8_t{0xFF},
                       .batches = DenseBatches(shape_)};
  const double rounding = plan.half ? 0x1p-7 : 0x1p-16;
  for (int32_t row = 0; row < kComparedRows; ++row) {
    RowTrialPlan::Expected& expected = plan.expected.emplace_back();
    expected.row = row;
    for (int64_t i = 0; i < plan.width; ++i) {
      const double sum = sums_[row * plan.width + i];
      expected.values.push_back(Apply(shape_.activation, sum));
      expected.bounds.push_back(shape_.k * 0x1p-24 * absolute_[i] + rounding * std::abs(sum));
    }
  }
  return plan;
}

absl::Status DenseTrial::Check(const DenseLayer& layer, DeviceStream& stream) const {
  return trial_->Check(
      [&](size_t batch, void* out, DeviceStream& to) {
        const std::vector<int32_t>& rows = trial_->plan().batches[batch];
        // What the workspace holds must not matter.
        const uint8_t garbage = batch == 0 ? 0xFF : 0;
        if (workspace_bytes_ > 0) to.Fill(workspace_.get(), garbage, workspace_bytes_);
        layer.Run({.x = static_cast<const char*>(x_.get()) + rows.front() * x_row_bytes(),
                   .weight = weight_,
                   .bias = bias_,
                   .rows = static_cast<int32_t>(rows.size()),
                   .out = out,
                   .workspace = workspace_.get()},
                  to);
      },
      stream);
}

}  // namespace sluice
