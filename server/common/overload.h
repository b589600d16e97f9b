// Reduces the daemon's work, level by level, when memory runs short.
//
//   Overload overload({.limit = limits.limit, .resident = ResidentBytes, .cut = cut_answers});
//   const PeriodicThread looks(clock, kOverloadInterval, [&] { overload.Look(); });
//   if (overload.refuses_requests()) return overload.Refusal();
//
// MemoryLimits keep the counted memory below the limit. Overload handles memory that libraries take
// uncounted, such as the headers that gRPC buffers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "base/enum_names.h"

namespace sluice {

inline constexpr std::chrono::milliseconds kOverloadInterval{20};

// Look is called by one thread at a time; everything else is thread-safe.
class Overload {
 public:
  // Each level includes the previous ones.
  enum class Level { kNone, kNoConnections, kNoRequests, kCutAnswers };

  struct Parts {
    int64_t limit = 0;                  // of the process at the start, in bytes
    std::function<int64_t()> resident;  // returns the resident bytes
    // Ends the largest unread answers, about this many bytes in total.
    std::function<void(int64_t)> cut;
  };
  explicit Overload(Parts parts) : parts_(std::move(parts)), limit_(parts_.limit) {}

  // Sets the limit of later calls of Look. The cgroup's limit may change while the daemon runs.
  void SetLimit(int64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  int64_t limit() const { return limit_.load(std::memory_order_relaxed); }

  // Measures the memory and sets the level; at the last level, cuts answers.
  void Look();

  Level level() const { return level_.load(std::memory_order_relaxed); }
  bool refuses_connections() const { return level() >= Level::kNoConnections; }
  bool refuses_requests() const { return level() >= Level::kNoRequests; }
  // Returns the error for a refused request.
  absl::Status Refusal() const;
  // The most recent measurement.
  int64_t resident() const { return resident_.load(std::memory_order_relaxed); }

 private:
  const Parts parts_;
  std::atomic<int64_t> limit_;
  std::atomic<Level> level_ = Level::kNone;
  std::atomic<int64_t> resident_ = 0;
};
constexpr auto EnumNamesOf(Overload::Level) {
  using enum Overload::Level;
  return EnumNameTable<Overload::Level>({{kNone, "none"},
                                         {kNoConnections, "no_connections"},
                                         {kNoRequests, "no_requests"},
                                         {kCutAnswers, "cut_answers"}});
}

}  // namespace sluice
