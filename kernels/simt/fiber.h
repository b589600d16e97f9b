// Cooperative threads. The emulator runs each thread of a block on one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::simt {

// A stack with a function that runs on it. A fiber may stay suspended forever or be started again.
// Its frames are then dropped without running destructors; device code has none.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next switch to the fiber call entry(argument). `entry` must not return; at its end it
  // must switch to another stack.
  void Start(void (*entry)(void*), void* argument);
  // Suspends the running code, stores its place in `from`, and continues at the place `to`. Returns
  // when a later call continues at the place in `from`.
  static void Switch(void*& from, void* to);
  // The place where the suspended fiber continues.
  void*& place() { return place_; }

  static constexpr size_t kStackBytes = 64 << 10;
  // Returns the lowest address of the stack.
  uintptr_t stack() const { return base_; }

 private:
  static constexpr size_t kGuardBytes = 4096;

  // Clears the address sanitizer's marks of dropped frames.
  void ForgetFrames();

  uintptr_t base_;  // lowest address of the stack; a guard page lies below
  void* place_ = nullptr;
};

}  // namespace sluice::simt
