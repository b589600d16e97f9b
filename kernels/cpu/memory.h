// Memory for what is large and stays: panels of weights, activations, KV pages.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// Uninitialised, aligned to cache lines, to be released with std::free; nullptr when there is not
// as much. Huge pages are asked for where whole ones fit: what is streamed or looked up all over
// takes longer to translate than to read in small ones. A refusal costs speed only. bytes >= 0.
void* AllocateMemory(int64_t bytes);

}  // namespace sluice::kernels
