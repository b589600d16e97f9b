#include "engine/cpu/cpu_slot.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "engine/cpu/layout.h"

namespace sluice {
namespace {

using kernels::kPageTokens;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

kernels::KvLayer LayerOf(const ModelConfig& config) {
  return {nullptr, nullptr, static_cast<int32_t>(config.kv_heads),
          static_cast<int32_t>(config.head_dim), config.kv_dtype};
}

// Returns the number of layers that keep keys and values in pages. If attention is in both
// directions, a step computes whole sequences, and attention reads the keys and values of the
// step's rows.
int64_t HeldLayers(const ModelConfig& config) { return config.causal ? config.kv_layers() : 0; }

}  // namespace

int64_t CpuSlot::PageBytes(const ModelConfig& config) {
  return 2 * HeldLayers(config) * LayerOf(config).page_bytes();
}

absl::StatusOr<std::unique_ptr<CpuSlot>> CpuSlot::Create(const ModelConfig& config,
                                                         const Bucket& largest, int32_t pages,
                                                         int64_t arena_floats) {
  SLUICE_ASSIGN_OR_RETURN(auto arena, FloatBuffer::Allocate(arena_floats, "activations"));
  const int64_t page_floats = PageBytes(config) / kSizeOf<float>;
  SLUICE_ASSIGN_OR_RETURN(auto kv, FloatBuffer::Allocate(pages * page_floats, "KV pages"));
  return std::unique_ptr<CpuSlot>(
      new CpuSlot(config, largest, pages, std::move(arena), std::move(kv)));
}

CpuSlot::CpuSlot(const ModelConfig& config, const Bucket& largest, int32_t pages, FloatBuffer arena,
                 FloatBuffer kv)
    : largest_(largest),
      layers_(HeldLayers(config)),
      kv_heads_(config.kv_heads),
      head_dim_(config.head_dim),
      kv_type_(config.kv_dtype),
      pages_(pages),
      arena_(std::move(arena)),
      kv_(std::move(kv), 2 * layers_, pages, LayerOf(config).page_bytes()) {
  sequences_.reserve(largest.sequences);
}

kernels::KvLayer CpuSlot::kv_layer(int32_t layer) const {
  kernels::KvLayer kv{nullptr, nullptr, kv_heads_, head_dim_, kv_type_};
  if (layers_ == 0) return kv;
  kv.k = kv_.array(2 * layer);
  kv.v = kv_.array(2 * layer + 1);
  return kv;
}

void CpuSlot::Hold(int64_t floats) {
  recent_floats_ = std::max(recent_floats_, floats);
  if (floats <= held_floats_.load(std::memory_order_relaxed)) return;
  held_floats_.store(floats, std::memory_order_relaxed);
}

bool CpuSlot::Trim() {
  arena_.ReleaseBehind(recent_floats_);
  held_floats_.store(recent_floats_, std::memory_order_relaxed);
  return std::exchange(recent_floats_, 0) > 0;
}

void CpuSlot::Bind(const Plan* plan, int64_t arena_floats, const StepBatch& batch) {
  Hold(arena_floats);
  plan_ = plan;
  batch_ = &batch;
  for (int32_t page : batch.pages()) {
    SLUICE_CHECK(page >= 0 && page < pages_);
    kv_.Use(page);
  }
  for (const kernels::PageCopy& copy : batch.page_copies()) SLUICE_CHECK(copy.from < pages_);
  sequences_.clear();
  for (size_t i = 0; i < batch.sequences().size(); ++i) {
    const StepBatch::Sequence& sequence = batch.sequences()[i];
    sequences_.push_back({.first_position = sequence.first_position,
                          .count = sequence.count,
                          .rows = batch.sequence_rows().data() + sequence.rows_offset,
                          .pages = batch.pages().data() + sequence.pages_offset,
                          .hidden = batch.hidden()[i]});
  }
}

void CpuSlot::Poison() {
  Hold(arena_.floats());
  std::fill_n(arena_.data(), arena_.floats(), kNaN);
  for (const kernels::AttentionSequence& sequence : sequences_) {
    const int32_t first = sequence.first_position;
    for (int32_t i = first / kPageTokens; i * kPageTokens < first + sequence.count; ++i) {
      const int32_t live = std::max(first - i * kPageTokens, 0);
      for (int32_t layer = 0; layer < layers_; ++layer) {
        PoisonPage(kv_layer(layer), sequence.pages[i], live);
      }
    }
  }
  for (const kernels::PageCopy& copy : batch_->page_copies()) {
    for (int32_t layer = 0; layer < layers_; ++layer) PoisonPage(kv_layer(layer), copy.to, 0);
  }
}

void CpuSlot::CopyPages(kernels::ThreadPool* pool) const {
  const std::span<const kernels::PageCopy> copies = batch_->page_copies();
  if (copies.empty()) return;
  pool->ParallelFor(std::ssize(copies) * layers_, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      kernels::CopyPositions(kv_layer(static_cast<int32_t>(i % layers_)), copies[i / layers_]);
    }
  });
}

void CpuSlot::PoisonPage(const kernels::KvLayer& kv, int32_t page, int32_t live) const {
  std::array<float, kernels::kMaxHeadDim> poison;
  poison.fill(kNaN);
  for (int32_t token = live; token < kPageTokens; ++token) {
    const int64_t slot = int64_t{page} * kPageTokens + token;
    for (int32_t head = 0; head < kv_heads_; ++head) {
      kernels::StoreKey(kv, slot, head, poison.data());
      kernels::StoreValue(kv, slot, head, poison.data());
    }
  }
}

}  // namespace sluice
