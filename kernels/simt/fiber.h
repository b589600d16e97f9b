// Cooperative threads, on which the emulator runs the threads of a block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::simt {

// A stack with a function running on it. The function runs during Resume, which is called on
// another stack; Suspend, called on the fiber, returns there. A fiber may stay suspended forever or
// be started again: its frames are then dropped without running destructors, which device code does
// not have.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next Resume call entry(argument). `entry` must not return; it suspends at its end.
  void Start(void (*entry)(void*), void* argument);
  void Resume();
  void Suspend();

  bool OnStack(uintptr_t address) const { return address - base_ < kStackBytes; }

 private:
  static constexpr size_t kStackBytes = 64 << 10, kGuardBytes = 4096;

  // Clears the address sanitizer's marks that dropped frames leave behind.
  void ForgetFrames();

  uintptr_t base_;  // lowest address of the stack; a guard page lies below
  void* own_ = nullptr;
  void* resumer_ = nullptr;
};

}  // namespace sluice::simt
