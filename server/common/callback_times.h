// Measures gRPC's callbacks. They run on the few threads that serve all connections, so a slow
// callback delays every call.
//
//   const CallbackTimes::Scope scope("ModelInfer", CallbackTimes::Event::kMessage);
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/enum_names.h"
#include "base/mutex.h"

namespace sluice {

// Thread-safe. There is one per process, because gRPC has one set of callback threads.
class CallbackTimes {
 public:
  // A callback that takes longer than this counts as slow.
  static constexpr nanoseconds kBound{2'000'000};
  // The largest message that a callback reads itself; longer ones are read on another thread.
  static constexpr int64_t kMostBytes = 1 << 20;

  // The event that gRPC reports.
  enum class Event { kBegin, kMessage, kWritten, kCancelled, kEnd };
  static constexpr size_t kEvents = CountEnumerators<Event>();

  // Measures a callback of a method, from construction to destruction. The method name is a static
  // text. A callback inside another one on the same thread counts as part of the outer one.
  class Scope {
   public:
    Scope(const char* method, Event event);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class CallbackTimes;
    const char* const method_;
    const Event event_;
    const Scope* const outer_;
    const MonoTime begin_;
    int64_t bytes_ = 0;
  };

  static CallbackTimes& OfProcess();
  // Returns whether this thread is in a callback.
  static bool IsInCallback() { return innermost != nullptr; }
  // Must be called before `bytes` of a message are read. Counts them if this thread is in a
  // callback.
  static void CountBytes(int64_t bytes);

  struct EventCounts {
    uint64_t all = 0;
    uint64_t slow = 0;
    nanoseconds total{0};
  };
  EventCounts Of(Event event) const;
  // Returns the most bytes that one callback has read so far.
  int64_t most_bytes() const { return most_bytes_.load(std::memory_order_relaxed); }

  struct Slowest {
    const char* method;
    Event event;
    nanoseconds took;
  };
  // Returns the slowest slow callback since the previous call, if any.
  std::optional<Slowest> TakeSlowest();

 private:
  static thread_local Scope* innermost;

  void Record(const Scope& scope);

  struct Counters {
    std::atomic<uint64_t> all = 0;
    std::atomic<uint64_t> slow = 0;
    std::atomic<int64_t> nanoseconds = 0;
  };
  std::array<Counters, kEvents> counters_;
  std::atomic<int64_t> most_bytes_ = 0;
  Mutex mu_;
  std::optional<Slowest> slowest_ ABSL_GUARDED_BY(mu_);
};

constexpr auto EnumNamesOf(CallbackTimes::Event) {
  using enum CallbackTimes::Event;
  return EnumNameTable<CallbackTimes::Event>({{kBegin, "begin"},
                                              {kMessage, "message"},
                                              {kWritten, "written"},
                                              {kCancelled, "cancelled"},
                                              {kEnd, "end"}});
}

}  // namespace sluice
