// Memory for large, long-lived buffers: panels of weights, activations, KV pages.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// Returns uninitialised memory, aligned to cache lines, or nullptr if there is not enough. Release
// it with std::free. Requires bytes >= 0. Requests huge pages if whole ones fit, because
// translating the addresses of small pages takes longer than reading the data. If the system
// refuses, only speed is lost.
void* AllocateMemory(int64_t bytes);

// Returns the whole huge pages after the first `kept` bytes of such memory to the system. They are
// zero when they are read again.
void ReleaseMemoryBehind(int64_t kept, void* memory, int64_t bytes);

// Makes the system provide the memory of [begin, end) of such memory at once, in whole huge pages.
// Otherwise the first write to the memory waits for the system. The content stays. Does nothing if
// there are no whole huge pages, or the system does not support it (Linux before 5.14).
void ProvideMemory(int64_t begin, int64_t end, void* memory, int64_t bytes);

}  // namespace sluice::kernels
