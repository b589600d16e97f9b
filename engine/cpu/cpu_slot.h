// The arena and the KV pages of one execution at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/cpu/float_buffer.h"
#include "engine/model/config.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv_cache.h"

namespace sluice {

class CpuSlot final : public Slot {
 public:
  // `arena_floats` is the size of the largest bucket's layout.
  static absl::StatusOr<std::unique_ptr<CpuSlot>> Create(const ModelConfig& config,
                                                         const Bucket& largest, int32_t pages,
                                                         int64_t arena_floats);
  static int64_t PageBytes(const ModelConfig& config);

  int32_t pages() const override { return pages_; }
  SlotMemory memory() const override { return {.activations = arena_.bytes(), .kv = kv_.bytes()}; }
  const Bucket& largest() const { return largest_; }

  float* arena() const { return arena_.data(); }
  kernels::KvLayer kv_layer(int32_t layer) const;

  // Binds the plan and the batch of the next run; both outlive it. Requires that every page exists
  // (CHECK).
  void Bind(const Plan* plan, const StepBatch& batch);
  const Plan& plan() const { return *plan_; }
  const StepBatch& batch() const { return *batch_; }
  std::span<const kernels::AttentionSequence> sequences() const { return sequences_; }

  // Fills with NaN what a replay of the bound batch must not read: the arena, and in the pages of
  // the batch all positions that earlier steps did not write. Other pages may belong to other
  // sequences.
  void Poison();

 private:
  CpuSlot(const ModelConfig& config, const Bucket& largest, int32_t pages, FloatBuffer arena,
          FloatBuffer kv);

  void PoisonPage(const kernels::KvLayer& kv, int32_t page, int32_t live) const;

  Bucket largest_;
  int32_t layers_;
  int32_t kv_heads_;
  int32_t head_dim_;
  int32_t pages_;
  FloatBuffer arena_;
  FloatBuffer kv_;  // [layers, 2, pages, page_floats]
  // The bound run.
  const Plan* plan_ = nullptr;
  const StepBatch* batch_ = nullptr;
  std::vector<kernels::AttentionSequence> sequences_;
};

}  // namespace sluice
