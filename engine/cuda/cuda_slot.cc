#include "engine/cuda/cuda_slot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "kernels/cuda/copy_pages.h"

namespace sluice {
namespace {

using kernels::cuda::kPageTokens;
using kernels::cuda::KvLayer;

}  // namespace

template <typename T>
CudaSlot<T>::CudaSlot(const Owner& owner, const Bucket& largest, int32_t pages,
                      std::shared_ptr<SlotRegistry<T>> registry)
    : owner_(owner),
      largest_(largest),
      layers_(owner.model.config.layers),
      kv_layers_(owner.model.config.kv_layers()),
      kv_heads_(owner.model.config.kv_heads),
      head_dim_(owner.model.config.head_dim),
      heads_(owner.model.config.heads),
      pages_(pages),
      xsa_layers_(owner.model.config.xsa.layers),
      registry_(std::move(registry)),
      output_(owner.model.graph.output),
      width_(owner.model.graph.buffers[output_].width) {}

template <typename T>
CudaSlot<T>::~CudaSlot() {
  // An abandoned step is never finished, but it still uses the memory.
  if (under_way_ > 0) AwaitAll();
  const MutexLock lock(&registry_->mutex);
  std::erase(registry_->slots, this);
}

template <typename T>
absl::StatusOr<std::unique_ptr<CudaSlot<T>>> CudaSlot<T>::Create(
    const Owner& owner, const Bucket& largest, int32_t pages,
    std::shared_ptr<SlotRegistry<T>> registry) {
  std::unique_ptr<CudaSlot> slot(new CudaSlot(owner, largest, pages, registry));
  const StepLayout layout = owner.lowered.LayOut(owner.model, largest);
  SLUICE_RETURN_IF_ERROR(slot->Allocate(layout));
  const T* hidden = slot->Place(layout, largest).buffer(owner.model.graph.head_input);
  const MutexLock lock(&registry->mutex);
  if (owner.lowered.head.weight != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(
        slot->head_,
        CudaHead<T>::Create(owner.model.config, hidden, largest.tokens + largest.sequences,
                            owner.lowered.head, owner.device, owner.capture));
  }
  for (StagedStep& staged : slot->staged_) {
    SLUICE_RETURN_IF_ERROR(slot->AllocateStagedStep(layout, &staged));
  }
  slot->id_ = registry->made++;
  registry->slots.push_back(slot.get());
  return slot;
}

template <typename T>
int64_t CudaSlot<T>::PageBytes(const ModelConfig& config) {
  return 2 * config.kv_layers() * config.kv_heads * config.head_dim * kPageTokens * kSizeOf<T>;
}

template <typename T>
absl::Status CudaSlot<T>::Allocate(const StepLayout& layout) {
  arena_bytes_ = layout.bytes;
  kv_bytes_ = pages_ * PageBytes(owner_.model.config);
  for (std::unique_ptr<DeviceStream>* made : {&stream_, &sends_, &fetches_}) {
    SLUICE_ASSIGN_OR_RETURN(*made, owner_.device.CreateStream());
  }
  SLUICE_ASSIGN_OR_RETURN(arena_, owner_.device.Allocate(arena_bytes_));
  if (kv_bytes_ == 0) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(kv_, owner_.device.Allocate(kv_bytes_));
  return absl::OkStatus();
}

template <typename T>
absl::Status CudaSlot<T>::AllocateStagedStep(const StepLayout& layout, StagedStep* staged) {
  Device& device = owner_.device;
  SLUICE_ASSIGN_OR_RETURN(staged->input, device.AllocatePinned(layout.input_bytes));
  std::memset(staged->input.get(), 0, layout.input_bytes);
  pinned_bytes_ += layout.input_bytes;
  SLUICE_ASSIGN_OR_RETURN(staged->ahead, device.Allocate(layout.input_bytes));
  ahead_bytes_ += layout.input_bytes;
  for (std::unique_ptr<DeviceEvent>* made : {&staged->sent, &staged->done, &staged->fetched}) {
    SLUICE_ASSIGN_OR_RETURN(*made, device.CreateEvent());
  }
  staged->sums = std::make_unique<StateSums<T>>(&device, width_);
  if (head_ == nullptr) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(staged->head, head_->MakeStaging(device));
  pinned_bytes_ += head_->staging_bytes();
  return absl::OkStatus();
}

template <typename T>
int64_t CudaSlot<T>::ActivationBytes(const Model& model, const LoweredCudaModel<T>& lowered,
                                     const Bucket& largest) {
  const StepLayout layout = lowered.LayOut(model, largest);
  return layout.bytes + (1 + kStepsAhead) * layout.input_bytes +
         CudaHead<T>::BytesOf(model.config, largest.tokens + largest.sequences, lowered.head);
}

template <typename T>
SlotMemory CudaSlot<T>::memory() const {
  int64_t sums = 0;
  for (const StagedStep& staged : staged_) sums += staged.sums->bytes();
  const int64_t activations =
      arena_bytes_ + ahead_bytes_ + (head_ == nullptr ? 0 : head_->bytes()) + sums;
  return {.activations = activations,
          .activation_room = activations,
          .graphs = head_ == nullptr ? 0 : head_->graph_bytes(),
          .kv = kv_bytes_,
          .pinned = pinned_bytes_.load(std::memory_order_relaxed) + sums};
}

template <typename T>
StepPlace<T> CudaSlot<T>::Place(const StepLayout& layout, const Bucket& bucket) const {
  StepPlace<T> place = {layout,
                        bucket,
                        static_cast<char*>(arena_.get()),
                        {},
                        head_ == nullptr ? nullptr : head_->outcomes()};
  const int64_t half = int64_t{pages_} * kv_heads_ * kPageTokens * head_dim_;
  for (int32_t layer = 0; layer < kv_layers_; ++layer) {
    T* k = static_cast<T*>(kv_.get()) + 2 * layer * half;
    place.kv.push_back(KvLayer<T>{k, k + half, kv_heads_, head_dim_});
  }
  return place;
}

template <typename T>
void CudaSlot<T>::Start(const Step& step) {
  SLUICE_CHECK(under_way_ <= kStepsAhead);
  for (int32_t page : step.batch->pages()) SLUICE_CHECK(page >= 0 && page < pages_);
  for (const kernels::PageCopy& copy : step.batch->page_copies()) SLUICE_CHECK(copy.from < pages_);
  SLUICE_CHECK(head_ != nullptr || step.batch->sampled().empty());
  StagedStep* const staged = under_way_ == 0 ? &Oldest() : &Behind();
  staged->step = step;
  staged->status = absl::OkStatus();
  staged->queued = false;
  staged->first = staged->answered = 0;
  staged->fetches = false;
  staged->is_ahead = under_way_ > 0;
  WriteInput(*step.batch, *step.layout, static_cast<char*>(staged->input.get()));
  ++under_way_;
  if (staged->is_ahead) SendAhead(staged);
  if (!staged->is_ahead || Oldest().complete()) Queue(staged);
}

template <typename T>
absl::Status CudaSlot<T>::Finish() {
  SLUICE_CHECK(under_way_ > 0);
  StagedStep& staged = Oldest();
  const absl::Status status = AwaitAnswers(&staged);
  if (--under_way_ > 0 && !Behind().queued) Queue(&Behind());
  oldest_ = (oldest_ + 1) % staged_.size();
  SLUICE_RETURN_IF_ERROR(status);
  DeliverDiagnostics(staged);
  staged.sums->Deliver(*staged.step.batch);
  return absl::OkStatus();
}

// Returns the length of the input up to the last page that the step refers to.
template <typename T>
size_t CudaSlot<T>::InputBytes(const Step& step) const {
  return step.layout->pages - step.layout->input + step.batch->pages().size_bytes();
}

template <typename T>
void CudaSlot<T>::SendAhead(StagedStep* staged) {
  sends_->CopyToDevice(staged->ahead.get(), staged->input.get(), InputBytes(staged->step));
  sends_->Record(*staged->sent);
  staged->status.Update(sends_->TakeStatus());
}

// Queues the step after the queued work, up to the first answers that do not fit the staging
// memory.
template <typename T>
void CudaSlot<T>::Queue(StagedStep* staged) {
  staged->queued = true;
  if (!staged->status.ok()) return;  // the device has no input, or an old one
  const Step& step = staged->step;
  if (owner_.poison) Poison(*step.batch);
  QueueInput(staged);
  CopyPages(step);
  if (step.graph != nullptr) {
    stream_->Run(*step.graph);
  } else {
    owner_.lowered.Launch(Place(*step.layout, *step.bucket), *stream_);
  }
  FetchDiagnostics(staged);
  SumStates(staged);
  QueueHead(staged);
  FetchStates(staged);
}

template <typename T>
void CudaSlot<T>::QueueInput(StagedStep* staged) {
  char* const input = static_cast<char*>(arena_.get()) + staged->step.layout->input;
  const size_t bytes = InputBytes(staged->step);
  if (!staged->is_ahead) return stream_->CopyToDevice(input, staged->input.get(), bytes);
  stream_->Wait(*staged->sent);
  stream_->CopyOnDevice(input, staged->ahead.get(), bytes);
}

// Queues the copies of pages that precede the step, which few steps have.
template <typename T>
void CudaSlot<T>::CopyPages(const Step& step) {
  const auto copies = static_cast<int32_t>(step.batch->page_copies().size());
  if (copies == 0) return;
  const StepPlace<T> place = Place(*step.layout, *step.bucket);
  kernels::cuda::CopyPages<T>(
      *stream_, {.kv = static_cast<T*>(kv_.get()),
                 .matrices = 2 * kv_layers_,
                 .pages = pages_,
                 .kv_heads = kv_heads_,
                 .head_dim = head_dim_,
                 .copies = place.template at<const kernels::PageCopy>(step.layout->page_copies),
                 .rows = {&place.counts().page_copies, copies}});
}

// Queues the head for the rows after the answered ones.
template <typename T>
void CudaSlot<T>::QueueHead(StagedStep* staged) {
  staged->first += std::exchange(staged->answered, 0);
  if (head_ != nullptr) {
    staged->answered = head_->Queue(*staged->step.batch, staged->first, *staged->head, *stream_);
  }
  stream_->Record(*staged->done);
  staged->status.Update(stream_->TakeStatus());
}

template <typename T>
absl::Status CudaSlot<T>::AwaitAnswers(StagedStep* staged) {
  while (true) {
    if (!staged->status.ok()) {
      AwaitAll();  // queued work uses the host's memory
      return staged->status;
    }
    DeviceEvent& end = std::exchange(staged->fetches, false) ? *staged->fetched : *staged->done;
    SLUICE_RETURN_IF_ERROR(end.Synchronize());
    if (head_ != nullptr) {
      head_->Deliver(*staged->step.batch, *staged->head);
    }
    if (staged->complete()) return absl::OkStatus();
    QueueHead(staged);
  }
}

template <typename T>
bool CudaSlot<T>::Pin(size_t bytes, PinnedMemory* memory, StagedStep* staged) {
  if (*memory != nullptr) return true;
  absl::StatusOr<PinnedMemory> pinned = owner_.device.AllocatePinned(bytes);
  staged->status.Update(pinned.status());
  if (!pinned.ok()) return false;
  *memory = *std::move(pinned);
  pinned_bytes_ += bytes;
  return true;
}

template <typename T>
void CudaSlot<T>::AwaitAll() {
  for (DeviceStream* stream : {sends_.get(), stream_.get(), fetches_.get()}) {
    stream->Synchronize().IgnoreError();
  }
}

// Queues the sums of states after the model, which writes the states to the arena.
template <typename T>
void CudaSlot<T>::SumStates(StagedStep* staged) {
  const StepBatch& batch = *staged->step.batch;
  if (batch.states().empty() || !staged->status.ok()) return;
  const StepLayout& layout = *staged->step.layout;
  const StepPlace<T> step = Place(layout, *staged->step.bucket);
  staged->status.Update(
      staged->sums->Queue(batch, step.buffer(output_), step.buffer(owner_.model.graph.trunk),
                          step.template at<const int32_t>(layout.sequence_rows), stream_.get()));
}

// Copies the sums to the host after the step; the next step may run at the same time.
template <typename T>
void CudaSlot<T>::FetchStates(StagedStep* staged) {
  const StepBatch& batch = *staged->step.batch;
  if (batch.states().empty() || !staged->status.ok()) return;
  fetches_->Wait(*staged->done);
  staged->sums->Fetch(batch, fetches_.get());
  fetches_->Record(*staged->fetched);
  staged->status.Update(fetches_->TakeStatus());
  staged->fetches = true;
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

template <typename T>
void CudaSlot<T>::Poison(const StepBatch& batch) {
  constexpr uint8_t kNaNBytes = 0xFF;
  stream_->Fill(arena_.get(), kNaNBytes, arena_bytes_);
  T* kv = static_cast<T*>(kv_.get());  // [layers, 2, pages, kv_heads] of [kPageTokens, head_dim]
  const auto fill = [&](int32_t page, int32_t live) {
    for (int64_t half = 0; half < int64_t{2} * kv_layers_; ++half) {
      for (int64_t head = 0; head < kv_heads_; ++head) {
        T* tokens = kv + ((half * pages_ + page) * kv_heads_ + head) * kPageTokens * head_dim_;
        stream_->Fill(tokens + int64_t{live} * head_dim_, kNaNBytes,
                      kSizeOf<T> * (kPageTokens - live) * head_dim_);
      }
    }
  };
  for (const StepBatch::Sequence& sequence : batch.sequences()) {
    const int32_t first = sequence.first_position;
    for (int32_t i = first / kPageTokens; i * kPageTokens < first + sequence.count; ++i) {
      fill(batch.pages()[sequence.pages_offset + i], std::max(first - i * kPageTokens, 0));
    }
  }
  for (const kernels::PageCopy& copy : batch.page_copies()) fill(copy.to, 0);
}

template class CudaSlot<float>;
template class CudaSlot<kernels::cuda::BFloat16>;

}  // namespace sluice
