// Arena and KV pages of one execution at a time.
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
  // `arena_floats` is what the largest bucket's layout takes.
  static absl::StatusOr<std::unique_ptr<CpuSlot>> Create(const ModelConfig& config,
                                                         const Bucket& largest, int32_t pages,
                                                         int64_t arena_floats);
  static int64_t PageBytes(const ModelConfig& config);

  int32_t pages() const override { return pages_; }
  int64_t memory_bytes() const override { return arena_.bytes() + kv_.bytes(); }
  const Bucket& largest() const { return largest_; }

  float* arena() const { return arena_.data(); }
  kernels::KvLayer kv_layer(int32_t layer) const;

  // What is run next; both outlive that. Checks that every page exists.
  void Bind(const Plan* plan, const StepBatch& batch);
  const Plan& plan() const { return *plan_; }
  const StepBatch& batch() const { return *batch_; }
  std::span<const kernels::AttentionSequence> sequences() const { return sequences_; }

  // Fills what a replay of the bound batch must not read with NaN: the arena, and in the batch's pages
  // all positions that it does not have from earlier steps. Other pages may be somebody's.
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
  // Bound.
  const Plan* plan_ = nullptr;
  const StepBatch* batch_ = nullptr;
  std::vector<kernels::AttentionSequence> sequences_;
};

}  // namespace sluice
