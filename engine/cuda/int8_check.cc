#include "engine/cuda/int8_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "base/status_macros.h"
#include "engine/cuda/dense_check.h"
#include "kernels/cuda/int8.h"

namespace sluice {
namespace {

constexpr int32_t kSummedRows = 6;
// The number of rows that are drawn; the others repeat them.
constexpr int64_t kDrawnRows = 64;
constexpr int32_t kLargest = 127;
// The compared rows whose scale is not finite; the others show that it stays in its row.
constexpr std::pair<int32_t, float> kBrokenScales[] = {{1, std::numeric_limits<float>::quiet_NaN()},
                                                       {3, std::numeric_limits<float>::infinity()}};

}  // namespace

absl::Status Int8Check::Prepare(Device& device, DeviceStream& stream, size_t workspace_bytes) {
  workspace_bytes_ = workspace_bytes;
  inputs_.emplace(device, stream);
  RowCheckSpec spec = {.width = shape_.n, .half = false, .batches = DenseBatches(shape_)};
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int8_t> x, DrawX());
  SLUICE_RETURN_IF_ERROR(Expect(x, &spec));
  std::vector<float> row_scales(MaxRows(shape_), 1.0f);
  for (const auto& [row, scale] : kBrokenScales) row_scales[row] = scale;
  std::vector<int32_t> counts;
  counts.reserve(spec.batches.size());
  for (const std::vector<int32_t>& batch : spec.batches) {
    counts.push_back(static_cast<int32_t>(batch.size()));
  }
  x_ = inputs_->Put(x);
  row_scales_ = inputs_->Put(row_scales);
  scales_ = inputs_->Put(std::vector<float>(shape_.n, 1.0f));
  counts_ = inputs_->Put(counts);
  sums_ = inputs_->Room<int32_t>(int64_t{MaxRows(shape_)} * shape_.n);
  workspace_ = inputs_->Room<char>(static_cast<int64_t>(workspace_bytes));
  SLUICE_RETURN_IF_ERROR(inputs_->status());
  SLUICE_ASSIGN_OR_RETURN(check_, RowCheck::Make(std::move(spec), device));
  return absl::OkStatus();
}

// The first row has the largest sum in the first column; the others are random.
absl::StatusOr<std::vector<int8_t>> Int8Check::DrawX() {
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int32_t> uniform(-kLargest, kLargest);
  const int64_t drawn = kDrawnRows * shape_.k;
  std::vector<int8_t> x(drawn);
  for (int8_t& value : x) value = static_cast<int8_t>(uniform(random));
  SLUICE_ASSIGN_OR_RETURN(const auto column, inputs_->Fetch(weight_, shape_.k));
  for (int32_t k = 0; k < shape_.k; ++k) {
    x[k] = static_cast<int8_t>(static_cast<int8_t>(column[k]) < 0 ? -kLargest : kLargest);
  }
  x.resize(int64_t{MaxRows(shape_)} * shape_.k);
  for (int64_t i = drawn; i < std::ssize(x); ++i) x[i] = x[i - drawn];
  return x;
}

// The weight is fetched a few columns at a time, since it may be large.
absl::Status Int8Check::Expect(const std::vector<int8_t>& x, RowCheckSpec* spec) {
  const int64_t k = shape_.k, n = shape_.n;
  for (int32_t row = 0; row < kSummedRows; ++row) {
    spec->expected.push_back(
        {.row = row, .values = std::vector<double>(n), .bounds = std::vector<double>(n)});
  }
  const int64_t most = std::max<int64_t>(1, (4 << 20) / k);
  for (int64_t first = 0; first < n; first += most) {
    const int64_t count = std::min(most, n - first);
    SLUICE_ASSIGN_OR_RETURN(const auto bytes, inputs_->Fetch(weight_ + first * k, count * k));
    const auto* const columns = reinterpret_cast<const int8_t*>(bytes.data());
    for (int64_t c = 0; c < count; ++c) {
      for (RowCheckSpec::Expected& expected : spec->expected) {
        int32_t sum = 0;
        for (int64_t i = 0; i < k; ++i) {
          sum += int32_t{x[expected.row * k + i]} * int32_t{columns[c * k + i]};
        }
        expected.values[first + c] = static_cast<float>(sum);
      }
    }
  }
  for (const auto& [row, scale] : kBrokenScales) {
    spec->expected[row].values.assign(n, std::numeric_limits<double>::quiet_NaN());
  }
  return absl::OkStatus();
}

RowCheck::Run Int8Check::RunOf(const DenseLayer& layer) const {
  return [this, &layer](const RowCheck::Place& place) {
    const std::vector<int32_t>& rows = check_->spec().batches[place.batch];
    const auto count = static_cast<int32_t>(rows.size());
    // The result must not depend on the content of the sums and the workspace.
    const uint8_t garbage = place.batch == 0 ? 0xFF : 0;
    place.stream.Fill(sums_, garbage, rows.size() * shape_.n * sizeof(int32_t));
    if (workspace_bytes_ > 0) place.stream.Fill(workspace_, garbage, workspace_bytes_);
    layer.Run({.x = x_ + int64_t{rows.front()} * shape_.k,
               .weight = weight_,
               .bias = nullptr,
               .rows = count,
               .out = sums_,
               .workspace = workspace_},
              place.stream);
    kernels::cuda::ScaleSums<float>(place.stream, {.sums = sums_,
                                                   .n = shape_.n,
                                                   .rows = {counts_ + place.batch, count},
                                                   .row_scales = row_scales_ + rows.front(),
                                                   .scales = scales_,
                                                   .out = static_cast<float*>(place.out)});
  };
}

absl::Status Int8Check::Check(const DenseLayer& layer, DeviceStream& stream) {
  return check_->Check(RunOf(layer), stream);
}

absl::Status Int8Check::CheckSame(const DenseLayer& layer, const RowClass& rows,
                                  DeviceStream& stream) {
  return check_->CheckSame(RunOf(layer), BatchesOfClass(check_->spec().batches, rows), stream);
}

}  // namespace sluice
