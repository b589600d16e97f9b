// What the daemon gives up, step by step, when its memory runs short.
//
//   Overload overload({.limit = limits.limit, .resident = ResidentBytes, .cut = cut_answers});
//   const PeriodicThread looks(clock, kOverloadInterval, [&] { overload.Look(); });
//   if (overload.refuses_requests()) return overload.Refusal();
//
// MemoryLimits keep the process below its limit where every byte is counted. What
// the libraries below take uncounted, such as the headers that gRPC buffers, is met here.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "base/enum_names.h"

namespace sluice {

inline constexpr std::chrono::milliseconds kOverloadInterval{20};

// Look is called by one thread at a time; all else is thread-safe.
class Overload {
 public:
  // Each includes those before it.
  enum class Level { kNone, kNoConnections, kNoRequests, kCutAnswers };

  struct Parts {
    int64_t limit = 0;                  // of the process, in bytes
    std::function<int64_t()> resident;  // returns the bytes that it takes
    std::function<void(int64_t)> cut;   // ends the largest unread answers, of about so many bytes
  };
  explicit Overload(Parts parts) : parts_(std::move(parts)) {}

  // Measures and sets the level; at the last one, cuts answers.
  void Look();

  Level level() const { return level_.load(std::memory_order_relaxed); }
  bool refuses_connections() const { return level() >= Level::kNoConnections; }
  bool refuses_requests() const { return level() >= Level::kNoRequests; }
  // Returns the error of a request that is refused.
  absl::Status Refusal() const;
  // The memory that was measured last.
  int64_t resident() const { return resident_.load(std::memory_order_relaxed); }

 private:
  const Parts parts_;
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
