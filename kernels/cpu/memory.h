// Memory for large, long-lived buffers: panels of weights, activations, KV pages.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// Returns uninitialised memory, aligned to cache lines, or nullptr if there is not enough. Release
// it with std::free. Requires bytes >= 0. Requests huge pages where whole ones fit, because address
// translation over small pages takes longer than streaming or random reads themselves; if the
// system refuses, only speed is lost.
void* AllocateMemory(int64_t bytes);

// Gives the whole huge pages behind the first `kept` bytes of such memory back to the system. They
// are zero when they are read again.
void ReleaseMemoryBehind(int64_t kept, void* memory, int64_t bytes);

// Has the system provide the memory of [begin, end) of such memory at once, in whole huge pages. It
// does so otherwise when memory is first written, and that write waits for it. Content stays. Does
// nothing where there are no whole huge pages, or the system cannot (Linux before 5.14).
void ProvideMemory(int64_t begin, int64_t end, void* memory, int64_t bytes);

}  // namespace sluice::kernels
