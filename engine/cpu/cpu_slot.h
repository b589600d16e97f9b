// The arena and the KV pages of one execution at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/cpu/float_buffer.h"
#include "engine/cpu/kv_memory.h"
#include "engine/model/config.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice {

class CpuSlot final : public Slot {
 public:
  // `arena_floats` is the size of the largest bucket's layout.
  static absl::StatusOr<std::unique_ptr<CpuSlot>> Create(const ModelConfig& config,
                                                         const Bucket& largest, int32_t pages,
                                                         int64_t arena_floats);
  static int64_t PageBytes(const ModelConfig& config);

  int32_t pages() const override { return pages_; }
  SlotMemory memory() const override {
    return {.activations = held_floats_.load(std::memory_order_relaxed) * kSizeOf<float>,
            .activation_room = arena_.bytes(),
            .kv = kv_.bytes()};
  }
  bool Trim() override;
  const Bucket& largest() const { return largest_; }

  float* arena() const { return arena_.data(); }
  // Returns a layer of the pages. If the layer keeps no pages, only its heads and type are set.
  kernels::KvLayer kv_layer(int32_t layer) const;

  // Binds the plan, whose layout takes `arena_floats`, and the batch of the next run. Both outlive
  // the run. Requires that every page exists (CHECK).
  void Bind(const Plan* plan, int64_t arena_floats, const StepBatch& batch);
  const Plan& plan() const { return *plan_; }
  const StepBatch& batch() const { return *batch_; }
  std::span<const kernels::AttentionSequence> sequences() const { return sequences_; }

  // Fills with NaN the memory that a replay of the bound batch must not read: the arena, and all
  // positions in the pages of the batch that earlier steps did not write. Other pages may belong to
  // other sequences.
  void Poison();
  // Makes the page copies of the bound batch.
  void CopyPages(kernels::ThreadPool* pool) const;

 private:
  CpuSlot(const ModelConfig& config, const Bucket& largest, int32_t pages, FloatBuffer arena,
          FloatBuffer kv);

  void Hold(int64_t floats);
  void PoisonPage(const kernels::KvLayer& kv, int32_t page, int32_t live) const;

  Bucket largest_;
  int32_t layers_;  // whose keys and values are in pages
  int32_t kv_heads_;
  int32_t head_dim_;
  KvType kv_type_;
  int32_t pages_;
  FloatBuffer arena_;
  // The most that a step has written since the last Trim, and the size that is still held.
  int64_t recent_floats_ = 0;
  std::atomic<int64_t> held_floats_{0};
  KvMemory kv_;  // [layers, 2, pages] of KvLayer::page_bytes()
  // The bound run.
  const Plan* plan_ = nullptr;
  const StepBatch* batch_ = nullptr;
  std::vector<kernels::AttentionSequence> sequences_;
};

}  // namespace sluice
