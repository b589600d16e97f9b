#include "kernels/cuda/rope.h"

#include "tests/kernels/common/rope_body.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

template <typename T>
class RopeTest : public OpTest {
 protected:
  RopeOutputs<T> Run(const RopeInputs<T>& in) {
    const RopeShape& shape = in.shape;
    const int32_t dim = shape.head_dim, cache = kSlots * shape.kv_heads * dim;
    const std::vector<T> blank(cache, Narrow<T>(kPoison));
    const RopeArgs<T> args = {.cos = lab_.Put(in.cos),
                              .sin = lab_.Put(in.sin),
                              .rotary_dim = shape.rotary_dim,
                              .positions = lab_.Put(in.positions),
                              .kv_slots = lab_.Put(in.slots),
                              .q_heads = shape.q_heads,
                              .q = lab_.Put(in.q),
                              .k = lab_.Put(in.k),
                              .v = lab_.Put(in.v),
                              .kv = {lab_.Put(blank), lab_.Put(blank), shape.kv_heads, dim},
                              .rows = Live(shape.rows)};
    RopeAndStore(lab_.stream(), args);
    std::vector<T> k = lab_.Get(args.kv.k, cache), v = lab_.Get(args.kv.v, cache);
    RopeOutputs<T> out = {lab_.Get(args.q, in.q.size()), {}, {}};
    for (int32_t i = 0; i < kSlots * shape.kv_heads; ++i) {
      const int32_t slot = i / shape.kv_heads, head = i % shape.kv_heads;
      for (int32_t d = 0; d < dim; ++d) {
        out.cached_k.push_back(*args.kv.Row(k.data(), slot, head).At(d));
        out.cached_v.push_back(*args.kv.Row(v.data(), slot, head).At(d));
      }
    }
    return out;
  }

  static constexpr int32_t kSlots = 5 * kPageTokens;
};
TYPED_TEST_SUITE(RopeTest, DTypes);

TYPED_TEST(RopeTest, RotatesAndStoresLikeTheReference) {
  for (const RopeShape& shape :
       {RopeShape{0, 2, 1, 8, 8}, RopeShape{9, 4, 2, 16, 16}, RopeShape{20, 3, 1, 12, 8},
        RopeShape{33, 2, 2, 64, 64}, RopeShape{1, 1, 1, 2, 2}, RopeShape{5, 2, 1, 7, 0},
        RopeShape{7, 3, 2, 64, 32}, RopeShape{4, 33, 8, 128, 128}}) {
    const auto run = [this](const RopeInputs<TypeParam>& in) { return this->Run(in); };
    ExpectRopeEqualsReference<TypeParam>(run, this->random_, shape, 70, this->kSlots);
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
