#include "kernels/simt/block_order.h"

#include <algorithm>

namespace sluice::simt {

void BlockOrder::BeginLaunch() { additions_.clear(); }

void BlockOrder::BeginBlock(size_t threads) {
  threads_ = threads;
  phases_.clear();
  fences_.clear();
  received_.clear();
  seen_.clear();
}

uint32_t BlockOrder::AddPhase() {
  phases_.push_back({.waited = std::vector<bool>(threads_)});
  return phases_.size() - 1;
}

void BlockOrder::NoteWait(uint32_t phase, const Actor& by) {
  Phase& waited = phases_.at(phase);
  waited.waited.at(by.thread) = true;
  if (!waited.any) waited.first_epoch = by.block_epoch;
  waited.any = true;
}

bool BlockOrder::HasArrived(uint32_t phase, const Actor& by) const {
  const Phase& waited = phases_.at(phase);
  return waited.any && (waited.first_epoch < by.block_epoch ||
                        (!by.is_bulk_copy() && waited.waited.at(by.thread)));
}

void BlockOrder::NoteFence(const Actor& by) {
  fences_[by.thread] = by.block_epoch;
  for (const Fenced& fence : received_[by.thread]) {
    seen_.push_back({fence, by.thread, by.block_epoch});
  }
  received_[by.thread].clear();
}

void BlockOrder::NoteAtomic(uintptr_t address, const Actor& by) {
  const auto fence = fences_.find(by.thread);
  const auto before = additions_.find(address);
  if (before != additions_.end()) {
    std::vector<Fenced>& received = received_[by.thread];
    received.insert(received.end(), before->second.begin(), before->second.end());
  }
  if (fence == fences_.end()) return;
  additions_[address].push_back({by.block, fence->second, by.thread});
}

bool BlockOrder::IsShown(const Actor& by, const Actor& to) const {
  return std::any_of(seen_.begin(), seen_.end(), [&](const Seen& seen) {
    const Fenced& fence = seen.fence;
    const bool covered = fence.block == by.block &&
                         (by.block_epoch < fence.block_epoch ||
                          (by.block_epoch == fence.block_epoch && by.thread == fence.thread));
    return covered && (seen.thread == to.thread || seen.block_epoch < to.block_epoch);
  });
}

}  // namespace sluice::simt
