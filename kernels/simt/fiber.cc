#include "kernels/simt/fiber.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include "base/check.h"

#ifndef __x86_64__
#error "fibers support x86-64 only"
#endif

// Saves the callee-saved registers, stores the stack pointer in *from and continues on the stack
// `to`.
extern "C" void SluiceSwitchStack(void** from, void* to);
// The first return address of a fresh stack; calls rbx(r12).
extern "C" void SluiceFiberStart();
asm(R"(
  .text
  .type SluiceSwitchStack, @function
SluiceSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size SluiceSwitchStack, .-SluiceSwitchStack
  .type SluiceFiberStart, @function
SluiceFiberStart:
  movq %r12, %rdi
  callq *%rbx
  ud2
  .size SluiceFiberStart, .-SluiceFiberStart
)");

namespace sluice::simt {

Fiber::Fiber() {
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  SLUICE_CHECK(memory != MAP_FAILED);
  SLUICE_CHECK(mprotect(memory, kGuardBytes, PROT_NONE) == 0);
  base_ = reinterpret_cast<uintptr_t>(memory) + kGuardBytes;
}

Fiber::~Fiber() {
  ForgetFrames();  // a file may be mapped there next
  munmap(reinterpret_cast<void*>(base_ - kGuardBytes), kGuardBytes + kStackBytes);
}

void Fiber::ForgetFrames() {
  ASAN_UNPOISON_MEMORY_REGION(reinterpret_cast<void*>(base_), kStackBytes);
}

void Fiber::Start(void (*entry)(void*), void* argument) {
  ForgetFrames();
  // All threads run the same code, so they use the same offsets from the tops of their stacks. The
  // tops differ by multiples of kApart. Otherwise these addresses would share a few sets of the
  // CPU's cache.
  constexpr size_t kTops = 16, kApart = 256;
  const size_t lower = base_ / (kGuardBytes + kStackBytes) % kTops * kApart;
  // The stack has the layout that SluiceSwitchStack expects: six registers (r15 to rbp), then the
  // return address. After it is popped, the stack pointer is a multiple of 16, as at a call.
  auto* top = reinterpret_cast<uint64_t*>(base_ + kStackBytes - lower) - 2;
  *--top = reinterpret_cast<uint64_t>(&SluiceFiberStart);
  *--top = 0;                                     // rbp
  *--top = reinterpret_cast<uint64_t>(entry);     // rbx
  *--top = reinterpret_cast<uint64_t>(argument);  // r12
  for (int i = 0; i < 3; ++i) *--top = 0;         // r13 to r15
  place_ = top;
}

void Fiber::Switch(void*& from, void* to) { SluiceSwitchStack(&from, to); }

}  // namespace sluice::simt
