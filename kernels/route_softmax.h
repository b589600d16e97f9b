// The limits of experts, and the weights of the experts that compute a row.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// The most experts of a layer, and the most that a row may choose.
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxChosen = 64;

// The logits whose softmax makes the weights: of all experts, or of the chosen ones. In the latter
// case the weights of a row add up to 1.
enum class RouteSoftmax { kOfAll, kOfChosen };

}  // namespace sluice::kernels
