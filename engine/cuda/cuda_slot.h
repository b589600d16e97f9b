// Arena, KV pages, stream and staging of one execution at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/cuda/cuda_head.h"
#include "engine/cuda/device.h"
#include "engine/cuda/lower_cuda.h"
#include "engine/cuda/step_layout.h"
#include "engine/mutex.h"

namespace sluice {

template <typename T>
class CudaSlot;

// The slots of a model that plans are captured for.
template <typename T>
struct SlotRegistry {
  Mutex mutex;
  std::vector<CudaSlot<T>*> slots ABSL_GUARDED_BY(mutex);
  int64_t made ABSL_GUARDED_BY(mutex) = 0;
};

template <typename T>
class CudaSlot final : public Slot {
 public:
  // Registers itself until it ends. Captures the head on `capture`, under the registry's mutex.
  static absl::StatusOr<std::unique_ptr<CudaSlot>> Create(
      const Model& model, const Bucket& largest, int32_t pages, const LoweredCudaModel<T>& lowered,
      Device& device, DeviceStream& capture, std::shared_ptr<SlotRegistry<T>> registry);
  static int64_t PageBytes(const ModelConfig& config);
  ~CudaSlot() override;

  int32_t pages() const override { return pages_; }
  int64_t memory_bytes() const override;
  const Bucket& largest() const { return largest_; }
  int64_t id() const { return id_; }  // of no other slot of the model, ever
  bool Holds(const Bucket& bucket) const {
    return bucket.tokens <= largest_.tokens && bucket.sequences <= largest_.sequences;
  }

  StepPlace<T> Place(const StepLayout& layout, const Bucket& bucket) const;

  // Sends the step's arrays.
  void Send(const StepBatch& batch, const StepLayout& layout);
  // Answers the sampled rows, the states and the diagnostics, and waits for that.
  absl::Status Answer(const StepBatch& batch, const StepLayout& layout, const Bucket& bucket);
  // Fills what a replay of `batch` must not read with NaN: the arena, and in the batch's pages all
  // positions that it does not have from earlier steps. Other pages may be somebody's.
  void Poison(const StepBatch& batch);

  DeviceStream& stream() { return *stream_; }

 private:
  CudaSlot(const Model& model, const Bucket& largest, int32_t pages,
           std::shared_ptr<SlotRegistry<T>> registry);

  absl::Status Allocate(const Model& model, const StepLayout& layout, Device& device);
  void FetchStates(const StepBatch& batch, const StepLayout& layout);
  void DeliverStates(const StepBatch& batch) const;
  void FetchDiagnostics(const StepBatch& batch, const StepLayout& layout, const Bucket& bucket);
  void DeliverDiagnostics(const StepBatch& batch) const;

  const Bucket largest_;
  const int32_t layers_, kv_heads_, head_dim_, heads_, pages_;
  const std::vector<bool> xsa_layers_;
  std::shared_ptr<SlotRegistry<T>> registry_;
  int64_t id_ = -1;
  int64_t arena_bytes_ = 0, kv_bytes_ = 0;
  std::unique_ptr<DeviceStream> stream_;
  DeviceMemory arena_;
  DeviceMemory kv_;           // [layers, 2, pages, kv_heads, kPageTokens, head_dim]
  PinnedMemory input_;        // as the layout of the largest bucket has it
  PinnedMemory diagnostics_;  // [2, layers, tokens, heads]; without XSA none
  PinnedMemory states_;       // [tokens + sequences, hidden]
  BufferId output_ = 0;
  int64_t width_ = 0;                  // of `output_`
  std::unique_ptr<CudaHead<T>> head_;  // nullptr: the model has none
};

}  // namespace sluice
