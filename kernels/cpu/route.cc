#include "kernels/cpu/route.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/size_of.h"
#include "kernels/cpu/simd/dispatch.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kElementsPerTask = 16384;

int64_t Grain(int64_t elements_of_row) {
  return std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, elements_of_row));
}

// Writes the row's experts, ascending, and their weights.
void RouteRow(const simd::Table& table, const float* logits, RouteSoftmax softmax,
              const RouteSizes& sizes, float* weights, int32_t* experts) {
  std::array<int32_t, kMaxChosen> best = {};  // the largest logit first
  int64_t count = 0;
  for (int32_t expert = 0; expert < sizes.experts; ++expert) {
    if (count == sizes.chosen && !(logits[expert] > logits[best[count - 1]])) continue;
    int64_t at = count < sizes.chosen ? count++ : count - 1;
    for (; at > 0 && logits[expert] > logits[best[at - 1]]; --at) best[at] = best[at - 1];
    best[at] = expert;
  }
  const float largest = logits[best[0]];
  std::sort(best.begin(), best.begin() + count);
  std::array<float, kMaxChosen> values;
  for (int64_t i = 0; i < count; ++i) values[i] = logits[best[i]];
  std::copy_n(best.begin(), count, experts);
  float sum = table.exp_sum(values.data(), count, largest, 1, 0, weights);
  if (softmax == RouteSoftmax::kOfAll) {
    sum = table.exp_sum(logits, sizes.experts, largest, 1, 0, nullptr);
  }
  for (int64_t i = 0; i < count; ++i) weights[i] /= sum;
}

}  // namespace

Routes::Routes(const RouteSizes& of, std::byte* memory)
    : sizes(of),
      groups(reinterpret_cast<RowGroup*>(memory)),
      weights(reinterpret_cast<float*>(groups + sizes.experts)),
      places(reinterpret_cast<int32_t*>(weights + sizes.rows * sizes.chosen)) {}

int64_t Routes::Bytes(const RouteSizes& sizes) {
  return sizes.experts * kSizeOf<RowGroup> +
         sizes.rows * sizes.chosen * (kSizeOf<float> + kSizeOf<int32_t>);
}

void Route(const Context& context, const float* logits, RouteSoftmax softmax,
           const Routes& routes) {
  const auto [rows, experts, chosen] = routes.sizes;
  SLUICE_CHECK(chosen >= 1 && chosen <= std::min(experts, kMaxChosen));
  const simd::Table& table = simd::TableFor(context.profile);
  int32_t* const of_copies = routes.places;  // the experts, until the places are known
  context.pool->ParallelFor(rows, Grain(experts), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      RouteRow(table, logits + r * routes.sizes.experts, softmax, routes.sizes,
               routes.weights + r * routes.sizes.chosen, of_copies + r * routes.sizes.chosen);
    }
  });
  for (int32_t i = 0; i < experts; ++i) routes.groups[i] = {i, 0, 0};
  for (int64_t i = 0; i < rows * chosen; ++i) ++routes.groups[of_copies[i]].count;
  int32_t first = 0;
  for (int64_t i = 0; i < experts; ++i) {
    routes.groups[i].first_row = first;
    first += std::exchange(routes.groups[i].count, 0);
  }
  for (int64_t i = 0; i < rows * chosen; ++i) {
    RowGroup& group = routes.groups[of_copies[i]];
    routes.places[i] = group.first_row + group.count++;
  }
}

void CopyToPlaces(const Context& context, const Routes& routes, const float* x, int64_t dim,
                  float* out) {
  const int64_t chosen = routes.sizes.chosen;
  context.pool->ParallelFor(
      routes.sizes.rows, Grain(chosen * dim), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin * chosen; i < end * chosen; ++i) {
          std::copy_n(x + i / chosen * dim, dim, out + routes.places[i] * dim);
        }
      });
}

void Combine(const Context& context, const Routes& routes, const CombineArgs& args) {
  constexpr int64_t kBlock = 512;
  SLUICE_CHECK(args.x != args.out);
  const int64_t dim = args.dim, chosen = routes.sizes.chosen;
  const auto combine = [&](int64_t r, int64_t first, int64_t count) {
    std::array<float, kBlock> sums;
    for (int64_t i = r * chosen; i < (r + 1) * chosen; ++i) {
      const float weight = routes.weights[i];
      const float* const x = args.x + routes.places[i] * dim + first;
      if (i == r * chosen) {
        for (int64_t d = 0; d < count; ++d) sums[d] = weight * x[d];
      } else {
        for (int64_t d = 0; d < count; ++d) sums[d] += weight * x[d];
      }
    }
    if (args.bias != nullptr) {
      for (int64_t d = 0; d < count; ++d) sums[d] += args.bias[first + d];
    }
    float* const out = args.out + r * dim + first;
    if (args.accumulate) {
      for (int64_t d = 0; d < count; ++d) sums[d] += out[d];
    }
    std::copy_n(sums.begin(), count, out);
  };
  context.pool->ParallelFor(routes.sizes.rows, Grain(chosen * dim),
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t r = begin; r < end; ++r) {
                                for (int64_t first = 0; first < dim; first += kBlock) {
                                  combine(r, first, std::min(kBlock, dim - first));
                                }
                              }
                            });
}

}  // namespace sluice::kernels
