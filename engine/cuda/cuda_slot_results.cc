// What a slot brings back beside the answers of the head: the sums of states and the diagnostics.
#include <algorithm>
#include <bit>
#include <utility>

#include "base/size_of.h"
#include "base/status_macros.h"
#include "engine/cuda/cuda_slot.h"
#include "kernels/cuda/pool.h"

namespace sluice {
namespace {

using kernels::cuda::RowRange;

// The places in the memory for sums of states.
struct SumsPlace {
  SumsPlace(void* memory, int64_t most_sums, int64_t width) {
    constexpr int64_t kAlign = 256;
    const auto align = [](int64_t end) { return (end + kAlign - 1) / kAlign * kAlign; };
    auto* const begin = static_cast<char*>(memory);
    const int64_t sums_begin = align(kAlign + most_sums * kSizeOf<RowRange>);
    count = reinterpret_cast<int32_t*>(begin);
    ranges = reinterpret_cast<RowRange*>(begin + kAlign);
    sums = reinterpret_cast<double*>(begin + sums_begin);
    bytes = sums_begin + most_sums * width * kSizeOf<double>;
  }

  int32_t* count;
  RowRange* ranges;  // [most_sums]
  double* sums;      // [most_sums, width]
  int64_t bytes;
};

}  // namespace

template <typename T>
absl::Status CudaSlot<T>::MakeRoomForSums(int64_t sums, StagedStep* staged) {
  if (sums <= staged->most_sums) return absl::OkStatus();
  constexpr int64_t kLeastSums = 64;
  const int64_t most = std::max<int64_t>(kLeastSums, std::bit_ceil(static_cast<uint64_t>(sums)));
  const int64_t bytes = SumsPlace(nullptr, most, width_).bytes;
  const int64_t before =
      staged->most_sums == 0 ? 0 : SumsPlace(nullptr, staged->most_sums, width_).bytes;
  staged->most_sums = 0;
  staged->sums = nullptr;
  staged->sums_on_device = nullptr;
  pinned_bytes_ -= before;
  sums_bytes_ -= before;
  SLUICE_ASSIGN_OR_RETURN(PinnedMemory pinned, owner_.device.AllocatePinned(bytes));
  SLUICE_ASSIGN_OR_RETURN(staged->sums_on_device, owner_.device.Allocate(bytes));
  staged->sums = std::move(pinned);
  staged->most_sums = most;
  pinned_bytes_ += bytes;
  sums_bytes_ += bytes;
  return absl::OkStatus();
}

// Queues the sums of states behind the model, which leaves the states in the arena.
template <typename T>
void CudaSlot<T>::SumStates(StagedStep* staged) {
  const StepBatch& batch = *staged->step.batch;
  const auto sums = static_cast<int32_t>(std::ssize(batch.states()));
  if (sums == 0 || !staged->status.ok()) return;
  staged->status.Update(MakeRoomForSums(sums, staged));
  if (!staged->status.ok()) return;
  const SumsPlace sent(staged->sums.get(), staged->most_sums, width_);
  const SumsPlace place(staged->sums_on_device.get(), staged->most_sums, width_);
  *sent.count = sums;
  for (int32_t s = 0; s < sums; ++s) {
    const StepBatch::Places places = batch.state_places()[s];
    sent.ranges[s] = {places.begin, batch.states()[s].largest ? -places.count : places.count};
  }
  stream_->CopyToDevice(
      place.count, sent.count,
      reinterpret_cast<char*>(sent.ranges + sums) - reinterpret_cast<char*>(sent.count));
  const StepLayout& layout = *staged->step.layout;
  const StepPlace<T> step = Place(layout, *staged->step.bucket);
  kernels::cuda::SumRows<T>(*stream_, {.x = step.buffer(output_),
                                       .dim = static_cast<int32_t>(width_),
                                       .ids = step.template at<const int32_t>(layout.sequence_rows),
                                       .ranges = place.ranges,
                                       .rows = {place.count, sums},
                                       .out = place.sums});
}

// Copies the sums to the host behind the step, while the next one may run.
template <typename T>
void CudaSlot<T>::FetchStates(StagedStep* staged) {
  const int64_t sums = std::ssize(staged->step.batch->states());
  if (sums == 0 || !staged->status.ok()) return;
  const SumsPlace to(staged->sums.get(), staged->most_sums, width_);
  const SumsPlace from(staged->sums_on_device.get(), staged->most_sums, width_);
  fetches_->Wait(*staged->done);
  fetches_->CopyToHost(to.sums, from.sums, sums * width_ * sizeof(double));
  fetches_->Record(*staged->fetched);
  staged->status.Update(fetches_->TakeStatus());
  staged->fetches = true;
}

template <typename T>
void CudaSlot<T>::DeliverStates(const StagedStep& staged) const {
  const double* fetched = SumsPlace(staged.sums.get(), staged.most_sums, width_).sums;
  for (const StateSum& sum : staged.step.batch->states()) {
    std::copy_n(fetched, width_, sum.out);
    fetched += width_;
  }
}

template <typename T>
void CudaSlot<T>::FetchDiagnostics(StagedStep* staged) {
  const StepBatch& batch = *staged->step.batch;
  const StepLayout& layout = *staged->step.layout;
  const Bucket& bucket = *staged->step.bucket;
  if (batch.xsa_cos_sim == nullptr && batch.xsa_proj_frac == nullptr) return;
  const size_t most = size_t{2} * layers_ * largest_.tokens * heads_ * sizeof(float);
  if (!Pin(most, &staged->diagnostics, staged)) return;
  const int64_t values = int64_t{batch.tokens()} * heads_;
  const auto fetch = [&](const float* wanted, int64_t offset, float* to) {
    for (int32_t layer = 0; wanted != nullptr && layer < layers_; ++layer) {
      if (!xsa_layers_[layer]) continue;
      const char* from = static_cast<char*>(arena_.get()) + offset +
                         int64_t{layer} * bucket.tokens * heads_ * sizeof(float);
      stream_->CopyToHost(to + layer * values, from, values * sizeof(float));
    }
  };
  auto* fetched = static_cast<float*>(staged->diagnostics.get());
  fetch(batch.xsa_cos_sim, layout.cos_sim, fetched);
  fetch(batch.xsa_proj_frac, layout.proj_frac, fetched + layers_ * values);
}

template <typename T>
void CudaSlot<T>::DeliverDiagnostics(const StagedStep& staged) const {
  const StepBatch& batch = *staged.step.batch;
  if (batch.xsa_cos_sim == nullptr && batch.xsa_proj_frac == nullptr) return;
  const int64_t values = int64_t{batch.tokens()} * heads_;
  const auto deliver = [&](const float* from, float* to) {
    for (int32_t layer = 0; to != nullptr && layer < layers_; ++layer) {
      if (xsa_layers_[layer]) {
        std::copy_n(from + layer * values, values, to + layer * values);
      } else {
        std::fill_n(to + layer * values, values, 0.0f);
      }
    }
  };
  const auto* fetched = static_cast<const float*>(staged.diagnostics.get());
  deliver(fetched, batch.xsa_cos_sim);
  deliver(fetched + layers_ * values, batch.xsa_proj_frac);
}

using HalfSlot = CudaSlot<kernels::cuda::BFloat16>;
template void CudaSlot<float>::SumStates(StagedStep*);
template void HalfSlot::SumStates(StagedStep*);
template void CudaSlot<float>::FetchStates(StagedStep*);
template void HalfSlot::FetchStates(StagedStep*);
template void CudaSlot<float>::DeliverStates(const StagedStep&) const;
template void HalfSlot::DeliverStates(const StagedStep&) const;
template void CudaSlot<float>::FetchDiagnostics(StagedStep*);
template void HalfSlot::FetchDiagnostics(StagedStep*);
template void CudaSlot<float>::DeliverDiagnostics(const StagedStep&) const;
template void HalfSlot::DeliverDiagnostics(const StagedStep&) const;

}  // namespace sluice
