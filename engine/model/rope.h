// The frequencies of rotary positions in double. Backends make their tables from them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/graph.h"

namespace sluice {

// Returns [rotary_dim / 2] frequencies: theta^(-2i / rotary_dim), divided by `divisors`. With
// llama3 scaling, frequencies of fewer than low_freq_factor turns over the original positions are
// divided by `factor`, frequencies of more than high_freq_factor turns are kept, and frequencies in
// between are interpolated linearly in turns (Llama 3.1). With YaRN they are interpolated linearly
// in the index of the frequency.
std::vector<double> RopeFrequencies(const RopeConfig& rope, int64_t rotary_dim);

// The rotary positions that an op applies, and the number of rotated features of a head.
struct RopeOf {
  const RopeConfig* rope;
  int64_t dims;  // 0 for none
};
RopeOf FindRope(const RopeStoreOp& op, const ModelConfig& config);

// The cosines and sines of all positions, [positions, rotary_dim / 2], computed in double and
// rounded once.
struct RopeTable {
  std::vector<float> cos, sin;
};
RopeTable MakeRopeTable(const RopeConfig& rope, int64_t rotary_dim, int64_t positions);

}  // namespace sluice
