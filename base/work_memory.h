// The memory of work whose need is known only while it runs, such as encoding a text.
//
//   const WorkMemoryAccount account(&budget, caller, [](int64_t bytes) { return NoRoom(bytes); });
//   ...                                          // deep inside of the work, on the same thread:
//   WorkMemory memory;
//   SLUICE_RETURN_IF_ERROR(memory.Hold(bytes));  // before the allocation
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/memory_budget.h"

namespace sluice {

// A scope in which the work of this thread takes its memory from a budget. The first
// kFreeBytes are not taken, so that short work does not touch the budget. Memory that was taken is
// returned at the end of the scope. Scopes may be nested; the innermost counts.
class WorkMemoryAccount {
 public:
  static constexpr int64_t kFreeBytes = 256 << 10;

  // `refusal` makes the error if the owner's part of the budget has no room for the `bytes` that
  // all objects of this account need.
  WorkMemoryAccount(MemoryBudget* budget, std::string owner,
                    std::function<absl::Status(int64_t bytes)> refusal);
  ~WorkMemoryAccount();
  WorkMemoryAccount(const WorkMemoryAccount&) = delete;
  WorkMemoryAccount& operator=(const WorkMemoryAccount&) = delete;

 private:
  friend class WorkMemory;
  absl::Status Add(int64_t bytes);
  static thread_local WorkMemoryAccount* innermost;

  MemoryBudget* const budget_;
  const std::string owner_;
  const std::function<absl::Status(int64_t bytes)> refusal_;
  WorkMemoryAccount* const outer_;
  int64_t used_ = 0;  // of the WorkMemory objects
  MemoryShare taken_;
};

// An amount of the innermost account at the time of the first Hold, which must outlive it. Without
// an account nothing is limited. Movable.
class WorkMemory {
 public:
  WorkMemory() = default;
  WorkMemory(WorkMemory&& other) noexcept { *this = std::move(other); }
  WorkMemory& operator=(WorkMemory&& other) noexcept;
  ~WorkMemory() { Release(); }

  // Changes the amount to `bytes`. If there is no room for more, returns the account's refusal and
  // changes nothing.
  absl::Status Hold(int64_t bytes);
  int64_t bytes() const { return bytes_; }

 private:
  void Release();

  WorkMemoryAccount* account_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace sluice
