// A limited amount that several owners share, so that no owner can take all of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace sluice {

// Limits each owner to the amount that is then left for others: a single owner gets about half, the
// next one half of the rest (the dynamic thresholds of Choudhury and Hahne, 1998). Not thread-safe.
class FairShare {
 public:
  explicit FairShare(int64_t total) : total_(total) {}

  // Takes `amount` for `owner`. Returns false, and takes nothing, if the owner would then have more
  // than is left.
  bool Take(std::string_view owner, int64_t amount) {
    const absl::string_view name(owner.data(), owner.size());
    const auto own = taken_.find(name);
    const int64_t owned = own == taken_.end() ? 0 : own->second;
    if (used_ + owned + amount > total_) return false;
    if (own == taken_.end()) {
      taken_.emplace(name, amount);
    } else {
      own->second += amount;
    }
    used_ += amount;
    return true;
  }

  // Returns a part of the owner's amount.
  void Return(std::string_view owner, int64_t amount) {
    const auto own = taken_.find(absl::string_view(owner.data(), owner.size()));
    own->second -= amount;
    used_ -= amount;
    if (own->second == 0) taken_.erase(own);
  }

  int64_t total() const { return total_; }
  int64_t used() const { return used_; }

 private:
  const int64_t total_;
  int64_t used_ = 0;
  absl::flat_hash_map<std::string, int64_t> taken_;  // by owner; only amounts above 0
};

}  // namespace sluice
