// The test of rotation and of the write to the KV cache that every backend runs.
#pragma once

#include <numeric>
#include <optional>

#include "kernels/reference/rope.h"
#include "tests/kernels/common/values.h"

namespace sluice::kernels {

struct RopeShape {
  int32_t rows, q_heads, kv_heads, head_dim, rotary_dim;
};

template <typename T>
struct RopeInputs {
  RopeShape shape;
  std::vector<float> cos, sin;            // [positions, rotary_dim / 2]
  std::vector<int32_t> positions, slots;  // [rows]
  std::vector<T> q;                       // [rows, q_heads, head_dim]
  std::vector<T> k, v;                    // [rows, kv_heads, head_dim]
};

template <typename T>
struct RopeOutputs {
  std::vector<T> q;                   // [rows, q_heads, head_dim]
  std::vector<T> cached_k, cached_v;  // [slots, kv_heads, head_dim], NaN where not written
};

// Uses rows at random positions, each with its own slot of `slots`. Successive rows have runs of
// adjacent slots. run(inputs) computes the outputs.
template <typename T, typename Run>
void ExpectRopeEqualsReference(const Run& run, std::mt19937_64& random, const RopeShape& shape,
                               int32_t max_positions, int32_t slots) {
  const int32_t dim = shape.head_dim, kv_width = shape.kv_heads * dim;
  SCOPED_TRACE(testing::Message() << shape.rows << " rows of " << shape.q_heads << "/"
                                  << shape.kv_heads << " heads of " << dim << ", rotary "
                                  << shape.rotary_dim);
  const std::vector<double> frequencies =
      reference::InverseFrequencies(shape.rotary_dim, 1e4, std::nullopt);
  RopeInputs<T> in = {.shape = shape,
                      .cos = {},
                      .sin = {},
                      .positions = std::vector<int32_t>(shape.rows),
                      .slots = std::vector<int32_t>(slots),
                      .q = RandomValues<T>(random, shape.rows * shape.q_heads * dim),
                      .k = RandomValues<T>(random, shape.rows * kv_width),
                      .v = RandomValues<T>(random, shape.rows * kv_width)};
  for (int32_t p = 0; p < max_positions; ++p) {
    for (double f : frequencies) {
      in.cos.push_back(static_cast<float>(std::cos(p * f)));
      in.sin.push_back(static_cast<float>(std::sin(p * f)));
    }
  }
  for (int32_t& p : in.positions) p = RandomInt(random, 0, max_positions - 1);
  std::vector<int32_t> lengths;  // lengths of runs of slots; the longest runs have whole pages
  for (int32_t left = slots; left > 0; left -= lengths.back()) {
    lengths.push_back(std::min(left, RandomInt(random, 0, 1) == 0 ? 1 : RandomInt(random, 2, 40)));
  }
  std::vector<std::vector<int32_t>> runs;
  for (int32_t first = 0; const int32_t length : lengths) {
    std::vector<int32_t>& run_of_slots = runs.emplace_back(length);
    std::iota(run_of_slots.begin(), run_of_slots.end(), first);
    first += length;
  }
  std::shuffle(runs.begin(), runs.end(), random);
  in.slots.clear();
  for (const auto& run_of_slots : runs) {
    in.slots.insert(in.slots.end(), run_of_slots.begin(), run_of_slots.end());
  }
  in.slots.resize(shape.rows);
  const RopeOutputs<T> out = run(in);

  const auto rotated = [&](const std::vector<T>& x, int32_t heads) {
    std::vector<double> y = ToDouble(x);
    for (int32_t h = 0; h < shape.rows * heads; ++h) {
      reference::Rotate(std::span(y).subspan(h * dim, dim), frequencies, in.positions[h / heads]);
    }
    return y;
  };
  EXPECT_TRUE(Matches(Op::kRowWise, out.q, rotated(in.q, shape.q_heads)));
  std::vector<T> stored_k, stored_v;
  for (int32_t slot : in.slots) {
    const auto at = slot * kv_width;
    stored_k.insert(stored_k.end(), &out.cached_k[at], &out.cached_k[at] + kv_width);
    stored_v.insert(stored_v.end(), &out.cached_v[at], &out.cached_v[at] + kv_width);
  }
  EXPECT_TRUE(Matches(Op::kRowWise, stored_k, rotated(in.k, shape.kv_heads)));
  EXPECT_TRUE(SameBits(stored_v, in.v));
  for (const std::vector<T>& cache : {out.cached_k, out.cached_v}) {
    const std::vector<double> values = ToDouble(cache);
    const auto written =
        std::count_if(values.begin(), values.end(), [](double x) { return !std::isnan(x); });
    EXPECT_EQ(written, shape.rows * kv_width) << "a slot that no row owns was written";
  }
}

}  // namespace sluice::kernels
