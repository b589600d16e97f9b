#include "engine/cuda/state_sums.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "base/status_macros.h"
#include "engine/cuda/cutter.h"
#include "kernels/cuda/bfloat16.h"
#include "kernels/cuda/pool.h"

namespace sluice {
namespace {

using kernels::cuda::RowRange;

// The sums of the states are in memory before the sums of the trunk.
constexpr bool kKinds[] = {false, true};

// The places in the memory for sums of states.
struct SumsPlace {
  SumsPlace(void* memory, int64_t most_sums, int64_t width) {
    Cutter cutter(memory);
    counts = cutter.Take<int32_t>(2);
    ranges = cutter.Take<RowRange>(most_sums);
    sums = cutter.Take<double>(most_sums * width);
    bytes = cutter.end();
  }

  int32_t* counts;   // of the states, of the trunk
  RowRange* ranges;  // [most_sums]
  double* sums;      // [most_sums, width]
  int64_t bytes;
};

}  // namespace

template <typename T>
absl::Status StateSums<T>::MakeRoom(int64_t sums) {
  if (sums <= most_sums_) return absl::OkStatus();
  constexpr int64_t kMinSums = 64;
  const int64_t most = std::max<int64_t>(kMinSums, std::bit_ceil(static_cast<uint64_t>(sums)));
  const int64_t bytes = SumsPlace(nullptr, most, width_).bytes;
  most_sums_ = 0;
  on_host_ = nullptr;
  on_device_ = nullptr;
  bytes_ = 0;
  SLUICE_ASSIGN_OR_RETURN(PinnedMemory pinned, device_.AllocatePinned(bytes));
  SLUICE_ASSIGN_OR_RETURN(on_device_, device_.Allocate(bytes));
  on_host_ = std::move(pinned);
  most_sums_ = most;
  bytes_ = bytes;
  return absl::OkStatus();
}

template <typename T>
absl::Status StateSums<T>::Queue(const StepBatch& batch, const T* states, const T* trunk,
                                 const int32_t* rows, DeviceStream* stream) {
  const auto sums = static_cast<int32_t>(std::ssize(batch.states()));
  SLUICE_RETURN_IF_ERROR(MakeRoom(sums));
  const SumsPlace sent(on_host_.get(), most_sums_, width_);
  const SumsPlace place(on_device_.get(), most_sums_, width_);
  int32_t all = 0;
  for (const bool of_trunk : kKinds) {
    const int32_t first = all;
    for (int32_t i = 0; i < sums; ++i) {
      if (batch.states()[i].of_trunk != of_trunk) continue;
      const StepBatch::Places places = batch.state_places()[i];
      sent.ranges[all++] = {places.begin, batch.states()[i].largest ? -places.count : places.count};
    }
    sent.counts[of_trunk] = all - first;
  }
  stream->CopyToDevice(
      place.counts, sent.counts,
      reinterpret_cast<char*>(sent.ranges + sums) - reinterpret_cast<char*>(sent.counts));
  int32_t first = 0;
  for (const bool of_trunk : kKinds) {
    const int32_t count = sent.counts[of_trunk];
    if (count == 0) continue;
    kernels::cuda::SumRows<T>(*stream, {.x = of_trunk ? trunk : states,
                                        .dim = static_cast<int32_t>(width_),
                                        .ids = rows,
                                        .ranges = place.ranges + first,
                                        .rows = {&place.counts[of_trunk], count},
                                        .out = place.sums + first * width_});
    first += count;
  }
  return absl::OkStatus();
}

template <typename T>
void StateSums<T>::Fetch(const StepBatch& batch, DeviceStream* stream) {
  const SumsPlace to(on_host_.get(), most_sums_, width_);
  const SumsPlace from(on_device_.get(), most_sums_, width_);
  stream->CopyToHost(to.sums, from.sums, std::ssize(batch.states()) * width_ * sizeof(double));
}

template <typename T>
void StateSums<T>::Deliver(const StepBatch& batch) const {
  const double* fetched = SumsPlace(on_host_.get(), most_sums_, width_).sums;
  for (const bool of_trunk : kKinds) {
    for (const StateSum& sum : batch.states()) {
      if (sum.of_trunk != of_trunk) continue;
      std::copy_n(fetched, width_, sum.out);
      fetched += width_;
    }
  }
}

template class StateSums<float>;
template class StateSums<kernels::cuda::BFloat16>;

}  // namespace sluice
