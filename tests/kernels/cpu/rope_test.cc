#include "kernels/cpu/rope.h"

#include <numbers>

#include "kernels/reference/rope.h"
#include "tests/kernels/common/rope_body.h"
#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {
namespace {

class RopeTest : public OpTest {
 protected:
  RopeOutputs<float> Run(const RopeInputs<float>& in) {
    const RopeShape& shape = in.shape;
    const int64_t dim = shape.head_dim;
    std::vector<float> q = in.q, k(kSlots * shape.kv_heads * dim, kPoison), v(k);
    const KvLayer kv = {k.data(), v.data(), shape.kv_heads, shape.head_dim};
    RopeAndStore(Two(), {in.cos.data(), in.sin.data(), shape.rotary_dim}, in.positions.data(),
                 in.slots.data(), shape.rows, shape.q_heads, q.data(), in.k.data(), in.v.data(),
                 kv);
    RopeOutputs<float> out = {q, {}, {}};
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      const int64_t page = slot / kPageTokens, offset = slot % kPageTokens;
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        const int64_t slab = (page * shape.kv_heads + h) * dim * kPageTokens;
        for (int64_t d = 0; d < dim; ++d) {
          out.cached_k.push_back(k[slab + d * kPageTokens + offset]);
          out.cached_v.push_back(v[slab + offset * dim + d]);
        }
      }
    }
    return out;
  }

  static constexpr int32_t kSlots = 9 * kPageTokens;
};

TEST_P(RopeTest, RotatesAndStoresLikeTheReference) {
  std::mt19937_64 random(41);
  for (const RopeShape& shape :
       {RopeShape{0, 2, 1, 8, 8}, RopeShape{33, 1, 1, 2, 2}, RopeShape{60, 4, 2, 16, 16},
        RopeShape{17, 6, 3, 20, 12}, RopeShape{1, 2, 1, 70, 70}, RopeShape{5, 2, 2, 9, 0},
        RopeShape{48, 8, 2, 128, 128}}) {
    const auto run = [this](const RopeInputs<float>& in) { return Run(in); };
    ExpectRopeEqualsReference<float>(run, random, shape, 300, kSlots);
  }
}

// Rotate must do the same as RopeAndStore does to queries.
TEST_P(RopeTest, RotatesInPlaceWithTheSameBits) {
  std::mt19937_64 random(43);
  for (const RopeShape& shape : {RopeShape{0, 2, 1, 8, 8}, RopeShape{60, 3, 1, 16, 16},
                                 RopeShape{140, 6, 1, 20, 12}, RopeShape{5, 2, 1, 9, 0}}) {
    const auto run = [&](const RopeInputs<float>& in) {
      RopeOutputs<float> out = Run(in);
      std::vector<float> q = in.q;
      Rotate(Two(), {in.cos.data(), in.sin.data(), shape.rotary_dim}, in.positions.data(),
             shape.rows, shape.q_heads, shape.head_dim, q.data());
      EXPECT_TRUE(SameBits(q, out.q)) << shape.rows << " rows";
      return out;
    };
    ExpectRopeEqualsReference<float>(run, random, shape, 300, kSlots);
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
