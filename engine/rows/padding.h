// What the padding of a padded layout holds.
#pragma once

#include <cstdint>
#include <span>

#include "engine/options.h"

namespace sluice {

// Fills `tokens` behind its first `live` (>= 1) ones. No output depends on what is written: nothing
// of the padding is sampled, and causal attention does not look ahead. Attention in both directions
// would have to be told each sequence's live length beside its padded one, as a mask.
void Pad(PaddingKind kind, int32_t live, std::span<int32_t> tokens);

}  // namespace sluice
