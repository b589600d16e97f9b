// One log line a second for refusals that a peer can cause at any rate.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/token_bucket.h"
#include "server/common/log.h"

namespace sluice {

// Allows one line a second. Thread-safe.
class LineRate {
 public:
  // Returns whether a line may be written now, and the number of lines that were not allowed since
  // the previous one.
  bool Take(MonoTime now, int64_t* unwritten) {
    constexpr BucketRate kLines{.per_second = 1, .burst = 1};
    if (lines_.Take(1, kLines, now) != nanoseconds(0)) {
      unwritten_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    *unwritten = unwritten_.exchange(0, std::memory_order_relaxed);
    return true;
  }

 private:
  TokenBucket lines_;
  std::atomic<int64_t> unwritten_{0};
};

// Thread-safe.
class RefusalLog {
 public:
  // `message` is a static text. `log` is not owned and outlives this object.
  RefusalLog(const char* message, Log* log) : message_(message), log_(log) {}

  // Logs a warning with the fields, at most once a second. Each line states how many refusals had
  // no line of their own since the previous line.
  void Add(MonoTime now, std::vector<LogField> fields) {
    int64_t unlogged = 0;
    if (!rate_.Take(now, &unlogged)) return;
    fields.push_back({"unlogged_before", unlogged});
    log_->Warn(message_, fields);
  }

 private:
  const char* const message_;
  Log* const log_;
  LineRate rate_;
};

}  // namespace sluice
