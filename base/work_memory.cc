#include "base/work_memory.h"

#include "base/status_macros.h"

namespace sluice {

thread_local WorkMemoryAccount* WorkMemoryAccount::innermost = nullptr;

WorkMemoryAccount::WorkMemoryAccount(MemoryBudget* budget, std::string owner,
                                     std::function<absl::Status(int64_t bytes)> refusal)
    : budget_(budget),
      owner_(std::move(owner)),
      refusal_(std::move(refusal)),
      outer_(std::exchange(innermost, this)) {}

WorkMemoryAccount::~WorkMemoryAccount() { innermost = outer_; }

absl::Status WorkMemoryAccount::Add(int64_t bytes) {
  const int64_t more = used_ + bytes - kFreeBytes - taken_.bytes();
  if (bytes > 0 && more > 0) {
    // One share for all, because a budget counts what an owner has in total.
    MemoryShare share = budget_->Take(owner_, more);
    if (!share) return refusal_(used_ + bytes - kFreeBytes);
    taken_.Join(std::move(share));
  }
  used_ += bytes;
  return absl::OkStatus();
}

WorkMemory& WorkMemory::operator=(WorkMemory&& other) noexcept {
  if (this == &other) return *this;
  Release();
  account_ = std::exchange(other.account_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

absl::Status WorkMemory::Hold(int64_t bytes) {
  if (account_ == nullptr) account_ = WorkMemoryAccount::innermost;
  if (account_ != nullptr) SLUICE_RETURN_IF_ERROR(account_->Add(bytes - bytes_));
  bytes_ = bytes;
  return absl::OkStatus();
}

void WorkMemory::Release() {
  if (account_ != nullptr) account_->Add(-bytes_).IgnoreError();
  bytes_ = 0;
}

}  // namespace sluice
