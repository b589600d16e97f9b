#include "engine/cuda/row_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/same_rows.h"

namespace sluice {

using kernels::cuda::BFloat16;

namespace {

constexpr int32_t kBusyWidth = 512;
int32_t BusyRows(const CheckEffort& effort) {
  return effort.busy_bytes / (kBusyWidth * static_cast<int32_t>(sizeof(float)));
}

// A stream for launches that reports one processor, so that persistent kernels have few blocks.
class OneProcessorStream final : public kernels::cuda::Stream {
 public:
  explicit OneProcessorStream(kernels::cuda::Stream& stream) : stream_(stream) {}

  void Launch(const kernels::cuda::Kernel& kernel, const kernels::cuda::LaunchShape& shape,
              const void* argument, size_t argument_bytes) override {
    stream_.Launch(kernel, shape, argument, argument_bytes);
  }
  int32_t processors() const override { return 1; }
  int32_t shared_bytes_limit() const override { return stream_.shared_bytes_limit(); }

 private:
  kernels::cuda::Stream& stream_;
};

}  // namespace

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
  RowCheck check(std::move(spec), device.info().check);
  SLUICE_RETURN_IF_ERROR(check.Allocate(device));
  return check;
}

absl::Status RowCheck::Allocate(Device& device) {
  const std::vector<int32_t>& all = spec_.batches.front();
  const size_t bytes = all.size() * spec_.row_bytes(), counts = all.size() * sizeof(int32_t);
  places_.resize(all.size());
  for (size_t place = 0; place < all.size(); ++place) {
    places_[all[place]] = static_cast<int32_t>(place);
  }
  SLUICE_ASSIGN_OR_RETURN(out_, device.Allocate(bytes));
  SLUICE_ASSIGN_OR_RETURN(reference_, device.Allocate(bytes));
  SLUICE_ASSIGN_OR_RETURN(differing_, device.Allocate(counts));
  SLUICE_ASSIGN_OR_RETURN(differing_persistent_, device.Allocate(counts));
  SLUICE_ASSIGN_OR_RETURN(whole_, device.AllocatePinned(bytes));
  SLUICE_ASSIGN_OR_RETURN(counts_, device.AllocatePinned(2 * counts));
  for (const std::vector<int32_t>& batch : spec_.batches) {
    SLUICE_ASSIGN_OR_RETURN(places_of_.emplace_back(),
                            device.Allocate(batch.size() * sizeof(int32_t)));
  }
  SLUICE_ASSIGN_OR_RETURN(busy_, device.CreateStream());
  SLUICE_ASSIGN_OR_RETURN(busy_rows_, device.Allocate(effort_.busy_bytes));
  const size_t busy_counts = BusyRows(effort_) * sizeof(int32_t);
  SLUICE_ASSIGN_OR_RETURN(busy_places_, device.Allocate(busy_counts));
  SLUICE_ASSIGN_OR_RETURN(busy_counts_, device.Allocate(busy_counts));
  busy_->Fill(busy_rows_.get(), 0, effort_.busy_bytes);
  busy_->Fill(busy_places_.get(), 0, busy_counts);
  busy_->Fill(busy_counts_.get(), 0, busy_counts);
  for (size_t batch = 0; batch < spec_.batches.size(); ++batch) {
    auto* const places = static_cast<int32_t*>(counts_.get());
    std::ranges::transform(spec_.batches[batch], places,
                           [this](int32_t row) { return places_[row]; });
    busy_->CopyToDevice(places_of_[batch].get(), places,
                        spec_.batches[batch].size() * sizeof(int32_t));
    SLUICE_RETURN_IF_ERROR(busy_->Synchronize());
  }
  return absl::OkStatus();
}

absl::Status RowCheck::Check(const Run& run, DeviceStream& stream) {
  SLUICE_RETURN_IF_ERROR(RunReference(run, stream));
  SLUICE_RETURN_IF_ERROR(CheckValues());
  for (size_t batch = 0; batch < spec_.batches.size(); ++batch) {
    SLUICE_RETURN_IF_ERROR(CheckBits(run, batch, /*skipped=*/batch == 0 ? 1 : 0, stream));
  }
  return absl::OkStatus();
}

absl::Status RowCheck::CheckSame(const Run& run, const std::vector<size_t>& batches,
                                 DeviceStream& stream) {
  for (const size_t batch : batches) {
    SLUICE_RETURN_IF_ERROR(CheckBits(run, batch, /*skipped=*/0, stream));
  }
  return absl::OkStatus();
}

void RowCheck::Queue(const Run& run, const Place& place) const {
  place.stream.Fill(place.out, spec_.initial_byte,
                    spec_.batches[place.batch].size() * spec_.row_bytes());
  run(place);
}

absl::Status RowCheck::RunReference(const Run& run, DeviceStream& stream) {
  const size_t bytes = spec_.batches.front().size() * spec_.row_bytes();
  Queue(run, {0, reference_.get(), stream, stream});
  stream.CopyToHost(whole_.get(), reference_.get(), bytes);
  return stream.Synchronize();
}

void RowCheck::Compare(size_t batch, int32_t* differing, DeviceStream& stream) const {
  const auto compare = [&]<typename T>(const T* values) {
    kernels::cuda::SameRows<T>(stream,
                               {.values = values,
                                .expected = static_cast<const T*>(reference_.get()),
                                .places = static_cast<const int32_t*>(places_of_[batch].get()),
                                .rows = static_cast<int32_t>(spec_.batches[batch].size()),
                                .width = static_cast<int32_t>(spec_.width),
                                .differing = differing});
  };
  spec_.half ? compare(static_cast<const BFloat16*>(out_.get()))
             : compare(static_cast<const float*>(out_.get()));
}

// Reads memory with all processors. Nothing depends on the result.
void RowCheck::KeepBusy() const {
  kernels::cuda::SameRows<float>(*busy_, {.values = static_cast<const float*>(busy_rows_.get()),
                                          .expected = static_cast<const float*>(busy_rows_.get()),
                                          .places = static_cast<const int32_t*>(busy_places_.get()),
                                          .rows = BusyRows(effort_),
                                          .width = kBusyWidth,
                                          .differing = static_cast<int32_t*>(busy_counts_.get())});
}

absl::Status RowCheck::CheckBits(const Run& run, size_t batch, int32_t skipped,
                                 DeviceStream& stream) {
  const std::vector<int32_t>& rows = spec_.batches[batch];
  const size_t bytes = rows.size() * sizeof(int32_t), all = spec_.batches.front().size();
  auto* const differing = static_cast<int32_t*>(differing_.get());
  auto* const persistent = static_cast<int32_t*>(differing_persistent_.get());
  stream.Fill(differing, 0, bytes);
  stream.Fill(persistent, 0, bytes);
  const int32_t runs = effort_.runs - skipped;
  for (int32_t i = 0; i < runs; ++i) {
    if (i % 2 == 1) KeepBusy();
    Queue(run, {batch, out_.get(), stream, stream});
    Compare(batch, differing, stream);
  }
  if (spec_.persistent) {
    OneProcessorStream one(stream);
    Queue(run, {batch, out_.get(), stream, one});
    Compare(batch, persistent, stream);
  }
  auto* const counts = static_cast<int32_t*>(counts_.get());
  stream.CopyToHost(counts, differing, bytes);
  stream.CopyToHost(counts + rows.size(), persistent, bytes);
  SLUICE_RETURN_IF_ERROR(stream.Synchronize());
  SLUICE_RETURN_IF_ERROR(busy_->Synchronize());
  for (size_t place = 0; place < rows.size(); ++place) {
    const int32_t count = counts[place];
    if (count > 0 && (count < runs || batch == 0)) {
      return absl::FailedPreconditionError(absl::StrCat("row ", rows[place], " has other bits in ",
                                                        count, " of ", runs,
                                                        " more runs of the same rows"));
    }
    if (count > 0) {
      return absl::FailedPreconditionError(
          rows.size() == all ? absl::StrCat("row ", rows[place], " has other bits at another place")
                             : absl::StrCat("row ", rows[place], " has other bits among ",
                                            rows.size(), " rows than among ", all));
    }
    if (counts[rows.size() + place] > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("row ", rows[place], " has other bits if one block has many work items"));
    }
  }
  return absl::OkStatus();
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
