// Numbers for callers, so that their cached prefixes cannot be confused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"

namespace sluice {

// Thread-safe. Keeps the numbers of at most 2 * kKeptNames names.
class CallerNumbers {
 public:
  static constexpr size_t kKeptNames = 32768;

  // Returns the number of a name: above 0, and never the number of another name. A name keeps its
  // number until at least kKeptNames other names have been used since its last use. After that, it
  // may get a new one.
  uint64_t Of(std::string_view name) {
    const absl::string_view key(name.data(), name.size());
    MutexLock lock(&mu_);
    if (const auto recent = recent_.find(key); recent != recent_.end()) return recent->second;
    const auto older = older_.find(key);
    const uint64_t number = older == older_.end() ? ++last_ : older->second;
    if (recent_.size() == kKeptNames) {
      older_.swap(recent_);
      recent_.clear();
    }
    recent_.emplace(key, number);
    return number;
  }

 private:
  using Numbers = absl::flat_hash_map<std::string, uint64_t>;

  Mutex mu_;
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
  Numbers recent_ ABSL_GUARDED_BY(mu_);  // the names used since `older_` was replaced
  Numbers older_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
