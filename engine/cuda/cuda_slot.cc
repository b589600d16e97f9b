#include "engine/cuda/cuda_slot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/check.h"

namespace sluice {
namespace {

using kernels::cuda::kPageTokens;
using kernels::cuda::KvLayer;

}  // namespace

template <typename T>
CudaSlot<T>::CudaSlot(const Model& model, const Bucket& largest, int32_t pages,
                      std::shared_ptr<SlotRegistry<T>> registry)
    : largest_(largest),
      layers_(static_cast<int32_t>(model.config.layers)),
      kv_heads_(static_cast<int32_t>(model.config.kv_heads)),
      head_dim_(static_cast<int32_t>(model.config.head_dim)),
      heads_(static_cast<int32_t>(model.config.heads)),
      pages_(pages),
      xsa_layers_(model.config.xsa.layers),
      registry_(std::move(registry)),
      output_(model.graph.output),
      width_(model.graph.buffers[static_cast<size_t>(output_)].width) {}

template <typename T>
CudaSlot<T>::~CudaSlot() {
  const MutexLock lock(&registry_->mutex);
  std::erase(registry_->slots, this);
}

template <typename T>
absl::StatusOr<std::unique_ptr<CudaSlot<T>>> CudaSlot<T>::Create(
    const Model& model, const Bucket& largest, int32_t pages, const LoweredCudaModel<T>& lowered,
    Device& device, DeviceStream& capture, std::shared_ptr<SlotRegistry<T>> registry) {
  std::unique_ptr<CudaSlot> slot(new CudaSlot(model, largest, pages, registry));
  const StepLayout layout = LayOutStep(model, largest, sizeof(T));
  if (absl::Status status = slot->Allocate(model, layout, device); !status.ok()) return status;
  const T* hidden = slot->Place(layout, largest).buffer(model.graph.output);
  const MutexLock lock(&registry->mutex);
  if (lowered.head.weight != nullptr) {
    auto head = CudaHead<T>::Create(model.config, hidden, lowered.head, device, capture);
    if (!head.ok()) return head.status();
    slot->head_ = *std::move(head);
  }
  slot->id_ = registry->made++;
  registry->slots.push_back(slot.get());
  return slot;
}

template <typename T>
int64_t CudaSlot<T>::PageBytes(const ModelConfig& config) {
  return 2 * config.layers * config.kv_heads * config.head_dim * kPageTokens *
         static_cast<int64_t>(sizeof(T));
}

template <typename T>
absl::Status CudaSlot<T>::Allocate(const Model& model, const StepLayout& layout, Device& device) {
  arena_bytes_ = layout.bytes;
  kv_bytes_ = pages_ * PageBytes(model.config);
  auto stream = device.CreateStream();
  if (!stream.ok()) return stream.status();
  stream_ = *std::move(stream);
  auto arena = device.Allocate(static_cast<size_t>(arena_bytes_));
  if (!arena.ok()) return arena.status();
  arena_ = *std::move(arena);
  auto kv = device.Allocate(static_cast<size_t>(kv_bytes_));
  if (!kv.ok()) return kv.status();
  kv_ = *std::move(kv);
  auto input = device.AllocatePinned(static_cast<size_t>(layout.input_bytes));
  if (!input.ok()) return input.status();
  input_ = *std::move(input);
  std::memset(input_.get(), 0, static_cast<size_t>(layout.input_bytes));
  const auto most_states = static_cast<size_t>(largest_.tokens + largest_.sequences);
  auto states = device.AllocatePinned(most_states * static_cast<size_t>(width_) * sizeof(T));
  if (!states.ok()) return states.status();
  states_ = *std::move(states);
  if (!model.config.xsa.Any()) return absl::OkStatus();
  auto diagnostics =
      device.AllocatePinned(size_t{2} * layers_ * largest_.tokens * heads_ * sizeof(float));
  if (!diagnostics.ok()) return diagnostics.status();
  diagnostics_ = *std::move(diagnostics);
  return absl::OkStatus();
}

template <typename T>
int64_t CudaSlot<T>::memory_bytes() const {
  return arena_bytes_ + kv_bytes_ + (head_ == nullptr ? 0 : head_->bytes());
}

template <typename T>
StepPlace<T> CudaSlot<T>::Place(const StepLayout& layout, const Bucket& bucket) const {
  StepPlace<T> place = {layout, bucket, static_cast<char*>(arena_.get()), {}};
  const int64_t half = int64_t{pages_} * kv_heads_ * kPageTokens * head_dim_;
  for (int32_t layer = 0; layer < layers_; ++layer) {
    T* k = static_cast<T*>(kv_.get()) + 2 * layer * half;
    place.kv.push_back(KvLayer<T>{k, k + half, kv_heads_, head_dim_});
  }
  return place;
}

template <typename T>
void CudaSlot<T>::Send(const StepBatch& batch, const StepLayout& layout) {
  for (int32_t page : batch.pages()) SLUICE_CHECK(page >= 0 && page < pages_);
  WriteInput(batch, layout, static_cast<char*>(input_.get()));
  stream_->CopyToDevice(
      static_cast<char*>(arena_.get()) + layout.input, input_.get(),
      static_cast<size_t>(layout.pages - layout.input) + batch.pages().size_bytes());
}

template <typename T>
absl::Status CudaSlot<T>::Answer(const StepBatch& batch, const StepLayout& layout,
                                 const Bucket& bucket) {
  FetchDiagnostics(batch, layout, bucket);
  FetchStates(batch, layout);
  SLUICE_CHECK(head_ != nullptr || batch.sampled().empty());
  const absl::Status status =
      head_ == nullptr ? stream_->Synchronize() : head_->Answer(batch, *stream_);
  if (!status.ok()) return status;
  DeliverDiagnostics(batch);
  DeliverStates(batch);
  return absl::OkStatus();
}

// One copy for each run of rows that follow each other in the step.
template <typename T>
void CudaSlot<T>::FetchStates(const StepBatch& batch, const StepLayout& layout) {
  const std::span<const int32_t> rows = batch.state_rows();
  const auto bytes = static_cast<size_t>(width_) * sizeof(T);
  const char* from =
      static_cast<char*>(arena_.get()) + layout.buffers[static_cast<size_t>(output_)];
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    for (end = begin + 1; end < rows.size() && rows[end] == rows[end - 1] + 1;) ++end;
    stream_->CopyToHost(static_cast<char*>(states_.get()) + begin * bytes,
                        from + static_cast<size_t>(rows[begin]) * bytes, (end - begin) * bytes);
  }
}

template <typename T>
void CudaSlot<T>::DeliverStates(const StepBatch& batch) const {
  const T* fetched = static_cast<const T*>(states_.get());
  for (const StateRow& row : batch.states()) {
    for (int64_t i = 0; i < width_; ++i) row.out[i] = kernels::cuda::Widen(*fetched++);
  }
}

template <typename T>
void CudaSlot<T>::FetchDiagnostics(const StepBatch& batch, const StepLayout& layout,
                                   const Bucket& bucket) {
  const int64_t values = int64_t{batch.tokens()} * heads_;
  const auto fetch = [&](const float* wanted, int64_t offset, float* to) {
    for (int32_t layer = 0; wanted != nullptr && layer < layers_; ++layer) {
      if (!xsa_layers_[layer]) continue;
      const char* from = static_cast<char*>(arena_.get()) + offset +
                         int64_t{layer} * bucket.tokens * heads_ * sizeof(float);
      stream_->CopyToHost(to + layer * values, from, values * sizeof(float));
    }
  };
  auto* fetched = static_cast<float*>(diagnostics_.get());
  fetch(batch.xsa_cos_sim, layout.cos_sim, fetched);
  fetch(batch.xsa_proj_frac, layout.proj_frac, fetched + layers_ * values);
}

template <typename T>
void CudaSlot<T>::DeliverDiagnostics(const StepBatch& batch) const {
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
  const auto* fetched = static_cast<const float*>(diagnostics_.get());
  deliver(fetched, batch.xsa_cos_sim);
  deliver(fetched + layers_ * values, batch.xsa_proj_frac);
}

template <typename T>
void CudaSlot<T>::Poison(const StepBatch& batch) {
  constexpr uint8_t kNaNBytes = 0xFF;
  stream_->Fill(arena_.get(), kNaNBytes, static_cast<size_t>(arena_bytes_));
  T* kv = static_cast<T*>(kv_.get());  // [layers, 2, pages, kv_heads] of [kPageTokens, head_dim]
  const auto fill = [&](int32_t page, int32_t live) {
    for (int64_t half = 0; half < int64_t{2} * layers_; ++half) {
      for (int64_t head = 0; head < kv_heads_; ++head) {
        T* tokens = kv + ((half * pages_ + page) * kv_heads_ + head) * kPageTokens * head_dim_;
        stream_->Fill(tokens + int64_t{live} * head_dim_, kNaNBytes,
                      static_cast<size_t>(kPageTokens - live) * head_dim_ * sizeof(T));
      }
    }
  };
  for (const StepBatch::Sequence& sequence : batch.sequences()) {
    const int32_t first = sequence.first_position;
    for (int32_t i = first / kPageTokens; i * kPageTokens < first + sequence.count; ++i) {
      fill(batch.pages()[sequence.pages_offset + i], std::max(first - i * kPageTokens, 0));
    }
  }
}

template class CudaSlot<float>;
template class CudaSlot<kernels::cuda::BFloat16>;

}  // namespace sluice
