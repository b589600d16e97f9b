// The sets of graphs that other servers capture, and how they pad, as arms of the simulator.
//
//   vllm             graphs of 1, 2 and 4 tokens, then every 8 up to 512
//   tensorrt_llm     graphs at powers of two up to 512
//   tensorrt_llm_64  graphs at every 64 tokens up to 512
//   sglang           graphs of 1, 2, 4 and 8 tokens, then every 8 from 16 to 160
//   tei              no graphs; the longest prefix of the queue, padded to its longest sequence
//
// A batch above the largest graph runs without one, at its exact size. That costs no more here than
// a graph of this size would, which favours these sets: a step without a graph launches its kernels
// one by one. With ":full" behind its name a set goes on by its rule to the largest batch, so that
// every step runs in a graph. All take the queue in order.
#pragma once

#include <optional>
#include <string_view>

#include "engine/ladder/ladder.h"

namespace sluice::loadtest {

struct FixedSet {
  Ladder ladder;          // the graphs, and every exact size beyond them
  int64_t graphs;         // that are captured
  int32_t largest_graph;  // in tokens; 0 if there are none
};

// Returns the set of this name within the limits, or nullopt if none is called so.
std::optional<FixedSet> FixedSetOf(std::string_view name, const LadderLimits& limits);

}  // namespace sluice::loadtest
