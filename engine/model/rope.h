// The frequencies of rotary positions in double, from which backends make their tables.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/config.h"

namespace sluice {

// Returns [rotary_dim / 2] frequencies: theta^(-2i / rotary_dim). With llama3 scaling, frequencies
// of fewer than low_freq_factor turns over the original positions are divided by `factor`, those of
// more than high_freq_factor turns are kept, and those between are interpolated linearly in turns
// (Llama 3.1).
std::vector<double> RopeFrequencies(const RopeConfig& rope, int64_t rotary_dim);

}  // namespace sluice
