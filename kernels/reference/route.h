// The choice of experts, in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/route_softmax.h"

namespace sluice::kernels::reference {

// The experts of each row, ascending, and their weights: [rows, chosen] each.
struct Routes {
  std::vector<int32_t> experts;
  std::vector<double> weights;
};

// Chooses the experts with the largest logits [rows, experts], the lower one of equal logits.
Routes Route(std::span<const double> logits, int64_t experts, int64_t chosen, RouteSoftmax softmax);

}  // namespace sluice::kernels::reference
