// A limit on memory that is taken before it is allocated and returned after it is freed.
//
//   MemoryBudget budget(64 << 20);
//   MemoryShare share = budget.Take("alice", bytes);
//   if (!share) return absl::ResourceExhaustedError("no memory left for this caller");
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/fair_share.h"
#include "base/mutex.h"

namespace sluice {

class MemoryShare;

// Thread-safe. Owners share the budget as in FairShare.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t bytes) : state_(std::make_shared<State>(bytes)) {}

  // Returns an empty share if `bytes` exceed the owner's part.
  MemoryShare Take(std::string_view owner, int64_t bytes);

  int64_t limit() const { return state_->limit; }
  int64_t used() const;

 private:
  friend class MemoryShare;
  struct State {
    explicit State(int64_t bytes) : limit(bytes), share(bytes) {}
    const int64_t limit;
    Mutex mu;
    FairShare share ABSL_GUARDED_BY(mu);
  };
  const std::shared_ptr<State> state_;  // shares may outlive the budget
};

// A part of a budget. The destructor returns it to the budget. Movable.
class MemoryShare {
 public:
  MemoryShare() = default;  // an empty one
  MemoryShare(MemoryShare&& other) noexcept { *this = std::move(other); }
  MemoryShare& operator=(MemoryShare&& other) noexcept {
    if (this == &other) return *this;
    Shrink(0);
    state_ = std::move(other.state_);
    owner_ = std::move(other.owner_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~MemoryShare() { Shrink(0); }

  explicit operator bool() const { return state_ != nullptr; }
  int64_t bytes() const { return bytes_; }
  // Returns all but `bytes` to the budget, if the share has more.
  void Shrink(int64_t bytes);
  // Adds the bytes of `other`, which becomes empty. Both must be of the same budget and owner,
  // unless one of them is empty.
  void Join(MemoryShare other);

 private:
  friend class MemoryBudget;
  std::shared_ptr<MemoryBudget::State> state_;
  std::string owner_;
  int64_t bytes_ = 0;
};

}  // namespace sluice
