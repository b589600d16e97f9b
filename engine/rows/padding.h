// The content of the padding in a padded layout.
#pragma once

#include <cstdint>
#include <span>

#include "engine/options.h"

namespace sluice {

// Fills `tokens` after the first `live` (>= 1) tokens. No output depends on the padding: it is
// never sampled, causal attention does not look ahead, and if attention is in both directions the
// padding is a separate sequence.
void Pad(PaddingKind kind, int32_t live, std::span<int32_t> tokens);

}  // namespace sluice
