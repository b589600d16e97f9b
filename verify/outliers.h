// Features of rows that are larger than the others, which widens the steps of int8.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice::verify {

// Returns up to `most` channels of rows [.., width], those first without which the steps of the
// rows in int8 are smallest: each is the one that lowers the sum of the squares of the rows'
// largest magnitudes most, beside those before it. Ends where none lowers it.
std::vector<int32_t> OutlierChannels(std::span<const float> rows, int64_t width, int64_t most);

}  // namespace sluice::verify
