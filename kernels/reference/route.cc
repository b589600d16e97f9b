#include "kernels/reference/route.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace sluice::kernels::reference {

Routes Route(std::span<const double> logits, int64_t experts, int64_t chosen,
             RouteSoftmax softmax) {
  Routes routes;
  for (; !logits.empty(); logits = logits.subspan(experts)) {
    std::vector<int32_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    const double largest = logits[order.front()];
    const int64_t summed = softmax == RouteSoftmax::kOfAll ? experts : chosen;
    double sum = 0;
    for (int64_t i = 0; i < summed; ++i) sum += std::exp(logits[order[i]] - largest);
    order.resize(chosen);
    std::ranges::sort(order);
    for (const int32_t expert : order) {
      routes.experts.push_back(expert);
      routes.weights.push_back(std::exp(logits[expert] - largest) / sum);
    }
  }
  return routes;
}

}  // namespace sluice::kernels::reference
