// A fuzz target with the faults that bounded_test.cc provokes. The input names the fault.
#include <climits>
#include <csignal>
#include <cstdlib>
#include <new>

#include "tests/fuzz/fuzz.h"

namespace {

constexpr size_t kTooMuch = 32 << 20;

// Not optimised away, because another function may read it.
void* volatile taken = nullptr;

void* Aligned() {
  void* memory = nullptr;
  return posix_memalign(&memory, 64, kTooMuch) == 0 ? memory : nullptr;
}

int Overflow(int depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : Overflow(depth - 1) + frame[0];
}

}  // namespace

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  const std::string_view fault = AsText(data, size);
  if (fault == "abort") std::abort();
  if (fault == "segmentation") std::raise(SIGSEGV);
  if (fault == "division") std::raise(SIGFPE);
  if (fault == "bus") std::raise(SIGBUS);
  if (fault == "undefined") {
    volatile int most = INT_MAX;
    most = most + 1;
  }
  if (fault == "overflow") return Overflow(1 << 20) != 0;
  if (fault == "new") taken = ::operator new(kTooMuch);
  if (fault == "malloc") taken = std::malloc(kTooMuch);
  if (fault == "calloc") taken = std::calloc(2, kTooMuch / 2);
  if (fault == "realloc") taken = std::realloc(std::malloc(1), kTooMuch);
  if (fault == "aligned_alloc") taken = std::aligned_alloc(64, kTooMuch);
  if (fault == "posix_memalign") taken = Aligned();
  if (fault == "freed") {  // more than the limit in total, and little at a time
    for (int i = 0; i < 32; ++i) {
      taken = std::realloc(std::malloc(1), 1 << 20);
      std::free(taken);
    }
  }
  return !fault.starts_with("refused");
}
