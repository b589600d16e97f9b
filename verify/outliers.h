// Finds features of rows that are much larger than the others. They widen the steps of int8.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::verify {

// Returns up to `most` channels of rows [.., width] whose removal makes the int8 steps of the rows
// smallest. The channels are chosen one by one: each lowers the sum of the squares of the rows'
// largest magnitudes most, given the channels before it. Ends if no channel lowers it.
std::vector<int32_t> OutlierChannels(std::span<const float> rows, int64_t width, int64_t most);

}  // namespace sluice::verify
