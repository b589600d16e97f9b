#include "engine/cuda/row_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/cuda/bfloat16.h"

namespace sluice {

using kernels::cuda::BFloat16;

size_t RowCheckSpec::value_bytes() const { return half ? sizeof(BFloat16) : sizeof(float); }

double RowCheckSpec::kept() const {
  alignas(float) const uint8_t bytes[] = {kKept, kKept, kKept, kKept};
  return ReadElement(bytes, 0, half);
}

double ReadElement(const void* values, size_t i, bool half) {
  return half ? double{Widen(static_cast<const BFloat16*>(values)[i])}
              : double{static_cast<const float*>(values)[i]};
}

absl::StatusOr<RowCheck> RowCheck::Make(RowCheckSpec spec, Device& device) {
  SLUICE_CHECK(!spec.batches.empty() && spec.width >= 1);
  RowCheck check(std::move(spec));
  const std::vector<int32_t>& all = check.spec_.batches.front();
  const size_t bytes = all.size() * check.spec_.row_bytes();
  check.places_.resize(all.size());
  for (size_t place = 0; place < all.size(); ++place) {
    check.places_[all[place]] = static_cast<int32_t>(place);
  }
  SLUICE_ASSIGN_OR_RETURN(check.out_, device.Allocate(bytes));
  SLUICE_ASSIGN_OR_RETURN(check.whole_, device.AllocatePinned(bytes));
  SLUICE_ASSIGN_OR_RETURN(check.part_, device.AllocatePinned(bytes));
  return check;
}

absl::Status RowCheck::Check(const Run& run, DeviceStream& stream) const {
  SLUICE_RETURN_IF_ERROR(RunBatch(run, 0, whole_.get(), stream));
  SLUICE_RETURN_IF_ERROR(CheckValues());
  for (size_t batch = 1; batch < spec_.batches.size(); ++batch) {
    SLUICE_RETURN_IF_ERROR(RunBatch(run, batch, part_.get(), stream));
    SLUICE_RETURN_IF_ERROR(CheckBits(batch));
  }
  return absl::OkStatus();
}

absl::Status RowCheck::RunBatch(const Run& run, size_t batch, void* result,
                                DeviceStream& stream) const {
  const size_t bytes = spec_.batches[batch].size() * spec_.row_bytes();
  stream.Fill(out_.get(), spec_.initial_byte, bytes);
  run(batch, out_.get(), stream);
  stream.CopyToHost(result, out_.get(), bytes);
  return stream.Synchronize();
}

const char* RowCheck::RowOf(int32_t row) const {
  return static_cast<const char*>(whole_.get()) + places_[row] * spec_.row_bytes();
}

absl::Status RowCheck::CheckValues() const {
  for (const RowCheckSpec::Expected& expected : spec_.expected) {
    const char* const values = RowOf(expected.row);
    for (int64_t i = 0; i < spec_.width; ++i) {
      const double value = ReadElement(values, i, spec_.half), wanted = expected.values[i];
      if (!std::isfinite(wanted)) {
        if (!std::isfinite(value)) continue;
        return absl::FailedPreconditionError(
            absl::StrCat("row ", expected.row, " has ", value, ", but its input is not finite"));
      }
      if (std::abs(value - wanted) <= expected.bounds[i]) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("row ", expected.row, " has ", value, ", expected ", wanted,
                       std::isfinite(value) ? "" : ", although all its inputs are finite"));
    }
  }
  return absl::OkStatus();
}

bool RowCheck::SameRow(const char* a, const char* b) const {
  const size_t bytes = spec_.value_bytes();
  if (std::memcmp(a, b, spec_.row_bytes()) == 0) return true;
  for (int64_t i = 0; i < spec_.width; ++i) {
    const bool same = std::memcmp(a + i * bytes, b + i * bytes, bytes) == 0;
    const auto is_nan = [&](const char* row) {
      return std::isnan(ReadElement(row, i, spec_.half));
    };
    if (!same && !(is_nan(a) && is_nan(b))) return false;
  }
  return true;
}

absl::Status RowCheck::CheckBits(size_t batch) const {
  const std::vector<int32_t>& rows = spec_.batches[batch];
  for (size_t place = 0; place < rows.size(); ++place) {
    const char* const values = static_cast<const char*>(part_.get()) + place * spec_.row_bytes();
    if (SameRow(values, RowOf(rows[place]))) continue;
    const size_t all = spec_.batches.front().size();
    return absl::FailedPreconditionError(
        rows.size() == all ? absl::StrCat("row ", rows[place], " has other bits at another place")
                           : absl::StrCat("row ", rows[place], " has other bits among ",
                                          rows.size(), " rows than among ", all));
  }
  return absl::OkStatus();
}

void* CheckInputs::Allocate(size_t bytes) {
  if (!status_.ok() || bytes == 0) return nullptr;
  absl::StatusOr<DeviceMemory> memory = device_.Allocate(bytes);
  status_.Update(memory.status());
  if (!status_.ok()) return nullptr;
  memory_.push_back(*std::move(memory));
  return memory_.back().get();
}

const void* CheckInputs::PutBytes(const void* values, size_t bytes) {
  void* const memory = Allocate(bytes);
  if (memory == nullptr) return nullptr;
  absl::StatusOr<PinnedMemory> staging = device_.AllocatePinned(bytes);
  status_.Update(staging.status());
  if (!status_.ok()) return nullptr;
  std::memcpy(staging->get(), values, bytes);
  stream_.CopyToDevice(memory, staging->get(), bytes);
  status_.Update(stream_.Synchronize());
  return memory;
}

absl::StatusOr<std::vector<std::byte>> CheckInputs::Fetch(const void* device, size_t bytes) {
  std::vector<std::byte> values(bytes);
  SLUICE_ASSIGN_OR_RETURN(auto staging, device_.AllocatePinned(std::max<size_t>(1, bytes)));
  stream_.CopyToHost(staging.get(), device, bytes);
  SLUICE_RETURN_IF_ERROR(stream_.Synchronize());
  std::memcpy(values.data(), staging.get(), bytes);
  return values;
}

// The weight is fetched a few rows at a time, since it may be large.
absl::StatusOr<ExactProducts> MultiplyExactly(CheckInputs& inputs,
                                              const std::vector<std::vector<double>>& x,
                                              const void* weight, const void* bias, int64_t n,
                                              bool half, double initial) {
  constexpr int64_t kBytesAtOnce = 4 << 20;
  const int64_t k = std::ssize(x.front()), row_bytes = n * (half ? 2 : 4);
  const int64_t most = std::max<int64_t>(1, kBytesAtOnce / row_bytes);
  ExactProducts products = {.sums = {x.size(), std::vector<double>(n, initial)},
                            .absolute = std::vector<double>(n)};
  for (int64_t first = 0; first < k; first += most) {
    const int64_t count = std::min(most, k - first);
    SLUICE_ASSIGN_OR_RETURN(
        const auto bytes,
        inputs.Fetch(static_cast<const std::byte*>(weight) + first * row_bytes, count * row_bytes));
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t c = 0; c < n; ++c) {
        const double value = ReadElement(bytes.data(), i * n + c, half);
        products.absolute[c] += std::abs(value);
        for (size_t r = 0; r < x.size(); ++r) products.sums[r][c] += x[r][first + i] * value;
      }
    }
  }
  if (bias == nullptr) return products;
  SLUICE_ASSIGN_OR_RETURN(const auto bytes, inputs.Fetch(bias, row_bytes));
  for (std::vector<double>& sums : products.sums) {
    for (int64_t c = 0; c < n; ++c) sums[c] += ReadElement(bytes.data(), c, half);
  }
  return products;
}

}  // namespace sluice
