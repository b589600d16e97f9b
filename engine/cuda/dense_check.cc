#include "engine/cuda/dense_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "base/status_macros.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/reference/activation.h"

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

double Apply(DenseActivation activation, double x) {
  switch (activation) {
    case DenseActivation::kNone:
      break;
    case DenseActivation::kRelu:
      return kernels::reference::Activate(kernels::Activation::kRelu, x);
    case DenseActivation::kGeluTanh:
      return kernels::reference::Activate(kernels::Activation::kGeluTanh, x);
  }
  return x;
}

// Returns the rows of x, [most rows, k].
template <typename T>
std::vector<T> DrawX(const DenseShape& shape) {
  const int64_t k = shape.k, values = MaxRows(shape) * k;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<T> x(std::min(values, kRandomRows * k));
  for (T& value : x) value = Narrow<T>(uniform(random));
  for (const auto& [row, value] : kBroken) x[row * k + k / 2] = Narrow<T>(value);
  const int64_t drawn = std::ssize(x);
  x.resize(values);
  for (int64_t i = drawn; i < values; ++i) x[i] = x[i - drawn];
  return x;
}

}  // namespace

// x begins at a multiple of 256 bytes.
std::vector<std::vector<int32_t>> DenseBatches(const DenseShape& shape) {
  constexpr int64_t kAlignment = 256;
  const int64_t aligned = kAlignment / std::gcd(kAlignment, shape.k * shape.operand_bytes());
  const int32_t most = MaxRows(shape);
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

std::vector<size_t> BatchesOfClass(const std::vector<std::vector<int32_t>>& batches,
                                   const RowClass& rows) {
  std::vector<size_t> chosen;
  for (size_t i = 1; i < batches.size(); ++i) {
    const bool before = i + 1 < batches.size() && std::ssize(batches[i]) < rows.first &&
                        std::ssize(batches[i + 1]) >= rows.first;
    const bool after =
        std::ssize(batches[i]) > rows.last && std::ssize(batches[i - 1]) <= rows.last;
    const bool within = std::ssize(batches[i]) >= rows.first && std::ssize(batches[i]) <= rows.last;
    if (before || after || within) chosen.push_back(i);
  }
  return chosen;
}

absl::Status DenseCheck::Prepare(Device& device, DeviceStream& stream, size_t workspace_bytes) {
  workspace_bytes_ = workspace_bytes;
  inputs_.emplace(device, stream);
  return shape_.half() ? PrepareAs<BFloat16>(device) : PrepareAs<float>(device);
}

template <typename T>
absl::Status DenseCheck::PrepareAs(Device& device) {
  const std::vector<T> x = DrawX<T>(shape_);
  x_ = inputs_->Put(x);
  workspace_ = inputs_->Room<char>(static_cast<int64_t>(workspace_bytes_));
  SLUICE_RETURN_IF_ERROR(inputs_->status());
  std::vector<std::vector<double>> compared;
  for (int64_t row = 0; row < kComparedRows; ++row) {
    std::vector<double>& wide = compared.emplace_back();
    for (int64_t i = 0; i < shape_.k; ++i) wide.push_back(Widen(x[row * shape_.k + i]));
  }
  const double kept = shape_.accumulate ? RowCheckSpec{.half = shape_.half_out()}.kept() : 0;
  SLUICE_ASSIGN_OR_RETURN(
      const ExactProducts products,
      MultiplyExactly(*inputs_, compared, weight_, shape_.bias ? bias_ : nullptr, shape_.n,
                      shape_.half(), kept));
  SLUICE_ASSIGN_OR_RETURN(check_, RowCheck::Make(Spec(products), device));
  return absl::OkStatus();
}

RowCheckSpec DenseCheck::Spec(const ExactProducts& products) const {
  RowCheckSpec spec = {.width = shape_.n,
                       .half = shape_.half_out(),
                       .initial_byte = shape_.accumulate ? RowCheckSpec::kKept : uint8_t{0xFF},
                       .batches = DenseBatches(shape_)};
  const double rounding = spec.half ? 0x1p-7 : 0x1p-16;
  for (int32_t row = 0; row < kComparedRows; ++row) {
    RowCheckSpec::Expected& expected = spec.expected.emplace_back();
    expected.row = row;
    for (int64_t i = 0; i < spec.width; ++i) {
      const double sum = products.sums[row][i];
      expected.values.push_back(Apply(shape_.activation, sum));
      expected.bounds.push_back(shape_.k * 0x1p-24 * products.absolute[i] +
                                rounding * std::abs(sum));
    }
  }
  return spec;
}

RowCheck::Run DenseCheck::RunOf(const DenseLayer& layer) const {
  return [this, &layer](const RowCheck::Place& place) {
    const std::vector<int32_t>& rows = check_->spec().batches[place.batch];
    // The result must not depend on the content of the workspace.
    const uint8_t garbage = place.batch == 0 ? 0xFF : 0;
    if (workspace_bytes_ > 0) place.stream.Fill(workspace_, garbage, workspace_bytes_);
    layer.Run({.x = static_cast<const char*>(x_) + rows.front() * shape_.k * shape_.operand_bytes(),
               .weight = weight_,
               .bias = bias_,
               .rows = static_cast<int32_t>(rows.size()),
               .out = place.out,
               .workspace = workspace_},
              place.stream);
  };
}

absl::Status DenseCheck::Check(const DenseLayer& layer, DeviceStream& stream) {
  return check_->Check(RunOf(layer), stream);
}

absl::Status DenseCheck::CheckSame(const DenseLayer& layer, const RowClass& rows,
                                   DeviceStream& stream) {
  return check_->CheckSame(RunOf(layer), BatchesOfClass(check_->spec().batches, rows), stream);
}

}  // namespace sluice
