// The content of the padding in a padded layout.
#pragma once

#include <cstdint>
#include <span>

#include "engine/options.h"

namespace sluice {

// Fills `tokens` behind the first `live` (>= 1) ones. No output depends on what is written: padding
// is never sampled, causal attention does not look ahead, and where attention is in both directions
// the padding is a sequence of its own.
void Pad(PaddingKind kind, int32_t live, std::span<int32_t> tokens);

}  // namespace sluice
