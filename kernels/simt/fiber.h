// Threads that take turns by their own choice: what the emulator runs a block's threads on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::simt {

// A stack with a function on it. The function runs while Resume is on the caller's stack; Suspend,
// called on the fiber, returns to there. A fiber may be left suspended for ever and started anew:
// its frames are then dropped without destructors, which device code does not have.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next Resume call entry(argument). `entry` must not return: it suspends at its end.
  void Start(void (*entry)(void*), void* argument);
  void Resume();
  void Suspend();

  bool OnStack(uintptr_t address) const { return address - base_ < kStackBytes; }

 private:
  static constexpr size_t kStackBytes = 64 << 10, kGuardBytes = 4096;

  // Dropped frames leave the address sanitizer's marks behind.
  void ForgetFrames();

  uintptr_t base_;  // lowest address of the stack; a guard page lies below
  void* own_ = nullptr;
  void* resumer_ = nullptr;
};

}  // namespace sluice::simt
