// The arena, KV pages and stream of one execution at a time, and the inputs and outputs of two
// steps, so that one is sent while the other runs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "engine/backend.h"
#include "engine/cuda/cuda_head.h"
#include "engine/cuda/device.h"
#include "engine/cuda/lower_cuda.h"
#include "engine/cuda/state_sums.h"
#include "engine/cuda/step_layout.h"

namespace sluice {

template <typename T>
class CudaSlot;

// The slots of a model. Plans are captured for them.
template <typename T>
struct SlotRegistry {
  Mutex mutex;
  std::vector<CudaSlot<T>*> slots ABSL_GUARDED_BY(mutex);
  int64_t made ABSL_GUARDED_BY(mutex) = 0;
};

// The number of steps that a slot takes while another one runs.
inline constexpr int32_t kStepsAhead = 1;

template <typename T>
class CudaSlot final : public Slot {
 public:
  // The parts of the model that a slot uses; they outlive it.
  struct Owner {
    const Model& model;
    const LoweredCudaModel<T>& lowered;
    Device& device;
    DeviceStream& capture;
    bool poison;
  };
  // Makes a slot that is registered while it lives. Captures the head on `capture`, under the
  // registry's mutex.
  static absl::StatusOr<std::unique_ptr<CudaSlot>> Create(
      const Owner& owner, const Bucket& largest, int32_t pages,
      std::shared_ptr<SlotRegistry<T>> registry);
  static int64_t PageBytes(const ModelConfig& config);
  static int64_t ActivationBytes(const Model& model, const LoweredCudaModel<T>& lowered,
                                 const Bucket& largest);
  ~CudaSlot() override;

  int32_t pages() const override { return pages_; }
  SlotMemory memory() const override;
  const Bucket& largest() const { return largest_; }
  int64_t id() const { return id_; }  // unique among all slots of the model
  bool Holds(const Bucket& bucket) const {
    return bucket.tokens <= largest_.tokens && bucket.sequences <= largest_.sequences;
  }

  StepPlace<T> Place(const StepLayout& layout, const Bucket& bucket) const;

  // A step to run; its parts outlive the run.
  struct Step {
    const StepBatch* batch;
    const StepLayout* layout;
    const Bucket* bucket;
    DeviceGraph* graph;  // if nullptr, kernels are launched one by one, with the same bits
  };
  // These work like the functions of ExecutableModel. If a step is started while another one runs,
  // its input is sent at once and the step is queued after the running one. The exception is a
  // running step whose answers exceed the head's staging area: its remaining rows need its states,
  // so only its Finish queues the next step.
  void Start(const Step& step);
  absl::Status Finish();

 private:
  // A started step. Its memory is on the host, except `ahead`.
  struct StagedStep {
    Step step{};
    PinnedMemory input;        // in the layout of the largest bucket
    PinnedMemory diagnostics;  // [2, layers, tokens, heads]; empty until requested
    std::unique_ptr<typename CudaHead<T>::HeadStaging> head;
    DeviceMemory ahead;  // the input on the device, while the arena has another step's
    std::unique_ptr<StateSums<T>> sums;
    std::unique_ptr<DeviceEvent> sent, done, fetched;
    bool fetches = false;   // whether `fetched` was recorded, and not awaited
    bool is_ahead = false;  // whether the input was sent to `ahead`
    bool queued = false;
    int32_t answered = 0;  // sampled rows whose answers were queued last
    int64_t first = 0;     // the first of these rows
    absl::Status status;   // the error if something was not queued

    bool complete() const { return first + answered == std::ssize(step.batch->sampled()); }
  };

  CudaSlot(const Owner& owner, const Bucket& largest, int32_t pages,
           std::shared_ptr<SlotRegistry<T>> registry);

  absl::Status Allocate(const StepLayout& layout);
  absl::Status AllocateStagedStep(const StepLayout& layout, StagedStep* staged);
  StagedStep& Oldest() { return staged_[oldest_]; }
  StagedStep& Behind() { return staged_[(oldest_ + 1) % staged_.size()]; }

  void SendAhead(StagedStep* staged);
  void Queue(StagedStep* staged);
  void QueueInput(StagedStep* staged);
  void CopyPages(const Step& step);
  void QueueHead(StagedStep* staged);
  absl::Status AwaitAnswers(StagedStep* staged);
  void AwaitAll();  // all queued work, whether it fails or not
  size_t InputBytes(const Step& step) const;
  // Fills with NaN the memory that a replay of `batch` must not read: the arena, and all positions
  // in the pages of the batch that earlier steps did not write. Other pages may belong to other
  // sequences.
  void Poison(const StepBatch& batch);
  // Returns whether `memory` is allocated. If it is not, allocates it or sets the step's status.
  bool Pin(size_t bytes, PinnedMemory* memory, StagedStep* staged);
  void SumStates(StagedStep* staged);
  void FetchStates(StagedStep* staged);
  void FetchDiagnostics(StagedStep* staged);
  void DeliverDiagnostics(const StagedStep& staged) const;

  const Owner owner_;
  const Bucket largest_;
  const int32_t layers_;
  const int32_t kv_layers_;  // layers with keys and values
  const int32_t kv_heads_, head_dim_, heads_, pages_;
  const std::vector<bool> xsa_layers_;
  std::shared_ptr<SlotRegistry<T>> registry_;
  int64_t id_ = -1;
  int64_t arena_bytes_ = 0, kv_bytes_ = 0, ahead_bytes_ = 0;
  std::atomic<int64_t> pinned_bytes_ = 0;  // without the memory of sums
  // Inputs are sent ahead on `sends_` and states fetched on `fetches_`, concurrently with other
  // work.
  std::unique_ptr<DeviceStream> stream_, sends_, fetches_;
  DeviceMemory arena_;
  DeviceMemory kv_;  // [layers, 2, pages, kv_heads, kPageTokens, head_dim]
  BufferId output_ = 0;
  int64_t width_ = 0;                  // of `output_`
  std::unique_ptr<CudaHead<T>> head_;  // nullptr if the model has none
  std::array<StagedStep, 1 + kStepsAhead> staged_;
  size_t oldest_ = 0;  // index in staged_
  int32_t under_way_ = 0;
};

}  // namespace sluice
