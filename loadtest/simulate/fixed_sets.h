// The sets of graphs that other servers capture, and how they pad, as arms of the simulator.
//
//   vllm             graphs of 1, 2 and 4 tokens, then every 8 up to 512
//   tensorrt_llm     graphs at powers of two up to 512
//   tensorrt_llm_64  graphs at every 64 tokens up to 512
//   sglang           graphs of 1, 2, 4 and 8 tokens, then every 8 from 16 to 160
//   tei              no graphs; the longest prefix of the queue, padded to its longest sequence
//
// A batch above the largest graph runs without one, at its exact size. Here that costs the same as
// a graph of this size, which favours these sets, because a real step without a graph launches its
// kernels one by one. With ":full" after its name, a set continues by its rule up to the largest
// batch, so that every step runs in a graph. All of them take the queue in order.
#pragma once

#include <optional>
#include <string_view>

#include "engine/ladder/ladder.h"

namespace sluice::loadtest {

struct FixedSet {
  Ladder ladder;          // the graphs, and every exact size above them
  int64_t graphs;         // the number of captured graphs
  int32_t largest_graph;  // in tokens; 0 if there are none
};

// Returns the set with this name within the limits, or nullopt if there is none.
std::optional<FixedSet> FixedSetOf(std::string_view name, const LadderLimits& limits);

}  // namespace sluice::loadtest
