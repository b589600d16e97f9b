#include "base/memory_budget.h"

namespace sluice {

MemoryShare MemoryBudget::Take(std::string_view owner, int64_t bytes) {
  MemoryShare share;
  MutexLock lock(&state_->mu);
  if (!state_->share.Take(owner, bytes)) return share;
  share.state_ = state_;
  share.owner_ = owner;
  share.bytes_ = bytes;
  return share;
}

int64_t MemoryBudget::used() const {
  MutexLock lock(&state_->mu);
  return state_->share.used();
}

void MemoryShare::Shrink(int64_t bytes) {
  if (bytes >= bytes_) return;
  MutexLock lock(&state_->mu);
  state_->share.Return(owner_, bytes_ - bytes);
  bytes_ = bytes;
}

void MemoryShare::Join(MemoryShare other) {
  if (state_ == nullptr) {
    *this = std::move(other);
  } else {
    bytes_ += std::exchange(other.bytes_, 0);
  }
}

}  // namespace sluice
