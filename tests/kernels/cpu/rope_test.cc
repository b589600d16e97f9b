#include "kernels/cpu/rope.h"

#include <numbers>
#include <set>

#include "kernels/reference/rope.h"
#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {
namespace {

constexpr int32_t kMaxPositions = 300;

class RopeTest : public OpTest {};

struct Case {
  int32_t q_heads, kv_heads, head_dim, rotary_dim;
};

TEST_P(RopeTest, RotatesQueriesAndStoresKeysAndValues) {
  std::mt19937_64 random(41);
  for (const Case& c : {Case{1, 1, 2, 2}, Case{4, 2, 16, 16}, Case{6, 3, 20, 12},
                        Case{2, 1, 70, 70}, Case{2, 2, 9, 0}, Case{8, 2, 128, 128}}) {
    SCOPED_TRACE(testing::Message() << c.q_heads << " heads of " << c.head_dim);
    const int64_t rows = RandomInt(random, 1, 60), pages = 9;
    const std::vector<double> frequencies =
        reference::InverseFrequencies(c.rotary_dim, 10000.0, std::nullopt);
    std::vector<float> cos, sin;
    for (int32_t p = 0; p < kMaxPositions; ++p) {
      for (double f : frequencies) {
        cos.push_back(static_cast<float>(std::cos(p * f)));
        sin.push_back(static_cast<float>(std::sin(p * f)));
      }
    }
    std::vector<int32_t> slots(pages * kPageTokens), positions(rows);
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
    std::shuffle(slots.begin(), slots.end(), random);
    for (int32_t& p : positions) p = static_cast<int32_t>(RandomInt(random, 0, kMaxPositions - 1));

    const int64_t q_width = c.q_heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
    std::vector<float> q = RandomFloats(random, rows * q_width),
                       k = RandomFloats(random, rows * kv_width);
    const std::vector<float> v = RandomFloats(random, rows * kv_width), k_before = k;
    std::vector<double> q_expected = Widen(q), k_expected = Widen(k);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t h = 0; h < c.q_heads; ++h) {
        reference::Rotate(
            {&q_expected[r * q_width + h * c.head_dim], static_cast<size_t>(c.head_dim)},
            frequencies, positions[r]);
      }
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        reference::Rotate(
            {&k_expected[r * kv_width + h * c.head_dim], static_cast<size_t>(c.head_dim)},
            frequencies, positions[r]);
      }
    }

    std::vector<float> k_pages(pages * kv_width * kPageTokens, kPoison), v_pages = k_pages;
    const KvLayer kv = {k_pages.data(), v_pages.data(), c.kv_heads, c.head_dim};
    RopeAndStore(Two(), {cos.data(), sin.data(), c.rotary_dim}, positions.data(), slots.data(),
                 rows, c.q_heads, q.data(), k.data(), v.data(), kv);
    EXPECT_TRUE(Matches(Op::kRope, q, q_expected));
    EXPECT_EQ(k, k_before);

    std::vector<float> k_stored, v_stored;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t page = slots[r] / kPageTokens, offset = slots[r] % kPageTokens;
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        const int64_t slab = page * kv.page_floats() + h * c.head_dim * kPageTokens;
        for (int64_t d = 0; d < c.head_dim; ++d) {
          k_stored.push_back(k_pages[slab + d * kPageTokens + offset]);
          v_stored.push_back(v_pages[slab + offset * c.head_dim + d]);
        }
      }
    }
    EXPECT_TRUE(Matches(Op::kRope, k_stored, k_expected));
    EXPECT_EQ(v_stored, v);
    const auto written = [](const std::vector<float>& x) {
      return std::count_if(x.begin(), x.end(), [](float f) { return !std::isnan(f); });
    };
    EXPECT_EQ(written(k_pages), rows * kv_width) << "a slot that no row owns was written";
    EXPECT_EQ(written(v_pages), rows * kv_width);
  }
}

SLUICE_EVERY_F32_PROFILE(RopeTest);

TEST(ReferenceRopeTest, Llama3ScalingKeepsShortDividesLongAndBlendsBetween) {
  const std::optional<reference::Llama3Scaling> scaling = {{8.0, 1.0, 4.0, 8192.0}};
  const std::vector<double> plain = reference::InverseFrequencies(128, 500000.0, std::nullopt);
  const std::vector<double> scaled = reference::InverseFrequencies(128, 500000.0, scaling);
  int kept = 0, divided = 0, blended = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 2048) {
      EXPECT_EQ(scaled[i], plain[i]);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 8);
      ++divided;
    } else {
      EXPECT_LT(scaled[i], plain[i]);
      EXPECT_GT(scaled[i], plain[i] / 8);
      ++blended;
    }
  }
  EXPECT_TRUE(kept > 0 && divided > 0 && blended > 0);
}

}  // namespace
}  // namespace sluice::kernels
