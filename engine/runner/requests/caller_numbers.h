// Numbers for callers, so that their cached prefixes cannot be confused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"

namespace sluice {

// Thread-safe.
class CallerNumbers {
 public:
  static constexpr size_t kMostNames = 65536;

  // Returns the number of a name: above 0, and different from the number of each other name. After
  // kMostNames names each further call returns a new number, so that memory is limited.
  uint64_t Of(std::string_view name) {
    const absl::string_view key(name.data(), name.size());
    MutexLock lock(&mu_);
    if (const auto known = numbers_.find(key); known != numbers_.end()) return known->second;
    ++last_;
    if (numbers_.size() < kMostNames) numbers_.emplace(key, last_);
    return last_;
  }

 private:
  Mutex mu_;
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<std::string, uint64_t> numbers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
