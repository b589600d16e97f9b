// How far back the attention of a model reads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sluice {

struct AttentionReach {
  int32_t window = 0;   // window of the windowed layers, in positions; 0 if there are none
  double windowed = 0;  // the share of windowed layers

  // Returns the number of positions that the tokens [first, first + count) of a sequence attend to,
  // summed over the tokens and averaged over the layers.
  int64_t ContextOf(int64_t first, int64_t count) const {
    const int64_t all = count * first + count * (count + 1) / 2;
    if (window == 0) return all;
    const int64_t growing = std::clamp<int64_t>(window - first, 0, count);
    const int64_t near = growing * first + growing * (growing + 1) / 2 + (count - growing) * window;
    return all - static_cast<int64_t>(windowed * static_cast<double>(all - near));
  }

  bool operator==(const AttentionReach&) const = default;
};

}  // namespace sluice
