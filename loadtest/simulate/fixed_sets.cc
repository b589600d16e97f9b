#include "loadtest/simulate/fixed_sets.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice::loadtest {
namespace {

constexpr int32_t kMostTokens = 512;

std::vector<int32_t> Every(int32_t step, int32_t first, int32_t last) {
  std::vector<int32_t> sizes;
  for (int32_t size = first; size <= last; size += step) sizes.push_back(size);
  return sizes;
}

std::vector<int32_t> After(std::vector<int32_t> sizes, const std::vector<int32_t>& more) {
  sizes.insert(sizes.end(), more.begin(), more.end());
  return sizes;
}

// Returns the sizes of the graphs, ascending, up to `most` if the set is not limited otherwise.
// Returns no sizes if no set has this name.
std::vector<int32_t> GraphsOf(std::string_view name, std::optional<int32_t> most) {
  const int32_t last = most.value_or(kMostTokens);
  if (name == "vllm") return After({1, 2, 4}, Every(8, 8, last));
  if (name == "sglang") return After({1, 2, 4, 8}, Every(8, 16, most.value_or(160)));
  if (name == "tensorrt_llm_64") return Every(64, 64, last);
  std::vector<int32_t> powers;
  if (name != "tensorrt_llm") return powers;
  for (int32_t size = 1; size <= last; size *= 2) powers.push_back(size);
  return powers;
}

// Returns a bucket for every exact size of a rectangle.
Ladder ExactRectangles(const LadderLimits& limits) {
  std::vector<Bucket> buckets;
  for (int32_t positions = 1; positions <= limits.max_positions; ++positions) {
    const int32_t tallest = std::min(limits.max_sequences, limits.max_tokens / positions);
    for (int32_t rows = 1; rows <= tallest; ++rows) {
      buckets.push_back(Bucket::Padded(rows, positions));
    }
  }
  return Ladder(std::move(buckets));
}

}  // namespace

std::optional<FixedSet> FixedSetOf(std::string_view name, const LadderLimits& limits) {
  if (name == "tei") return FixedSet{ExactRectangles(limits), 0, 0};
  std::optional<int32_t> most;
  if (constexpr std::string_view kFull = ":full"; name.ends_with(kFull)) {
    name.remove_suffix(kFull.size());
    most = limits.max_tokens;
  }
  std::vector<int32_t> graphs = GraphsOf(name, most);
  if (graphs.empty()) return std::nullopt;
  std::erase_if(graphs, [&](int32_t size) { return size > limits.max_tokens; });
  if (most.has_value() && graphs.back() < *most) graphs.push_back(*most);
  const std::vector<int32_t> exact = Every(1, graphs.back() + 1, limits.max_tokens);
  return FixedSet{MakePackedLadder(After(graphs, exact), limits), std::ssize(graphs),
                  graphs.back()};
}

}  // namespace sluice::loadtest
