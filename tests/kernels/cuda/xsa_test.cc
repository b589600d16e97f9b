#include "kernels/cuda/xsa.h"

#include <tuple>
#include <vector>

#include "kernels/reference/attention.h"
#include "tests/kernels/cuda/op_test.h"

namespace sluice::kernels::cuda {
namespace {

using reference::AttentionShape;

template <typename T>
class ExcludeSelfTest : public OpTest {};
TYPED_TEST_SUITE(ExcludeSelfTest, DTypes);

TYPED_TEST(ExcludeSelfTest, EqualsTheReferenceInEveryForm) {
  using T = TypeParam;
  for (const AttentionShape& shape :
       {AttentionShape{1, 1, 1}, {4, 2, 33}, {6, 3, 64}, {2, 1, 256}, {40, 20, 8}}) {
    for (XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
      for (bool gated : {false, true}) {
        SCOPED_TRACE(testing::Message() << shape.q_heads << "/" << shape.kv_heads << " heads of "
                                        << shape.head_dim << ", seed " << this->kSeed);
        const int32_t rows = 7;
        const auto heads = static_cast<int32_t>(shape.q_heads);
        const int64_t size = rows * shape.q_heads * shape.head_dim;
        const auto y = RandomValues<T>(this->random_, size);
        const auto v = RandomValues<T>(this->random_, rows * shape.kv_heads * shape.head_dim);
        std::vector<float> gate;
        for (int32_t h = 0; gated && h < heads; ++h) gate.push_back(0.1f * static_cast<float>(h));
        T* inout = this->lab_.Put(y);
        const ExcludeSelfArgs<T> args = {
            .y = inout,
            .v = this->lab_.Put(v),
            .q_heads = heads,
            .kv_heads = static_cast<int32_t>(shape.kv_heads),
            .head_dim = static_cast<int32_t>(shape.head_dim),
            .xsa = {.form = form,
                    .eps = 1e-6f,
                    .gate = gated ? this->lab_.Put(gate) : nullptr,
                    .cos_sim = gated ? nullptr : this->lab_.template Room<float>(rows * heads),
                    .proj_frac = gated ? nullptr : this->lab_.template Room<float>(rows * heads)},
            .rows = this->Live(rows),
            .out = gated ? inout : this->lab_.template Room<T>(size)};
        ExcludeSelf(this->lab_.stream(), args);
        const std::vector<double> wide_gate(gate.begin(), gate.end());
        const reference::XsaResult expected =
            reference::ExcludeSelf(shape, {form, 1e-6, wide_gate}, ToDouble(y), ToDouble(v));
        EXPECT_TRUE(Matches(Op::kRowWise, this->lab_.Get(args.out, size), expected.out));
        if (gated) continue;
        EXPECT_TRUE(Matches(Op::kDiagnostics, this->lab_.Get(args.xsa.cos_sim, rows * heads),
                            expected.cos_sim));
        EXPECT_TRUE(Matches(Op::kDiagnostics, this->lab_.Get(args.xsa.proj_frac, rows * heads),
                            expected.proj_frac));
      }
    }
  }
}

TYPED_TEST(ExcludeSelfTest, LeavesNothingOfARowThatIsItsOwnValue) {
  using T = TypeParam;
  for (int32_t dim : {8, 64, 100, 256}) {
    for (XsaForm form : {XsaForm::kNorm, XsaForm::kSquared}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << dim << ", form " << static_cast<int>(form)
                                      << ", seed " << this->kSeed);
      const int32_t rows = 9;
      const auto v = RandomValues<T>(this->random_, rows * dim);
      const ExcludeSelfArgs<T> args = {.y = this->lab_.Put(v),
                                       .v = this->lab_.Put(v),
                                       .q_heads = 1,
                                       .kv_heads = 1,
                                       .head_dim = dim,
                                       .xsa = {.form = form, .eps = 1e-6f},
                                       .rows = this->Live(rows),
                                       .out = this->lab_.template Room<T>(v.size())};
      ExcludeSelf(this->lab_.stream(), args);
      for (const T& value : this->lab_.Get(args.out, v.size())) ASSERT_EQ(Widen(value), 0);
    }
  }
}

// The query heads of a KV head share the read value and its norm. They have the bits of query heads
// that have a KV head each, with the same value.
TYPED_TEST(ExcludeSelfTest, GroupedHeadsHaveTheBitsOfHeadsWithTheirOwnValues) {
  using T = TypeParam;
  for (const AttentionShape& shape :
       {AttentionShape{8, 2, 64}, {6, 3, 33}, {5, 1, 256}, {12, 4, 100}, {40, 20, 8}}) {
    SCOPED_TRACE(testing::Message() << shape.q_heads << "/" << shape.kv_heads << " heads of "
                                    << shape.head_dim << ", seed " << this->kSeed);
    const int32_t rows = 11;
    const auto q_heads = static_cast<int32_t>(shape.q_heads);
    const auto dim = static_cast<int32_t>(shape.head_dim),
               group = static_cast<int32_t>(shape.q_heads / shape.kv_heads);
    const auto y = RandomValues<T>(this->random_, rows * q_heads * dim);
    const auto v = RandomValues<T>(this->random_, rows * shape.kv_heads * dim);
    const auto gate = RandomValues<float>(this->random_, q_heads);
    std::vector<T> repeated;  // [rows, q_heads, dim]
    for (auto head = v.begin(); head != v.end(); head += dim) {
      for (int32_t i = 0; i < group; ++i) repeated.insert(repeated.end(), head, head + dim);
    }
    const auto run = [&](const std::vector<T>& values, int32_t kv_heads) {
      const ExcludeSelfArgs<T> args = {
          .y = this->lab_.Put(y),
          .v = this->lab_.Put(values),
          .q_heads = q_heads,
          .kv_heads = kv_heads,
          .head_dim = dim,
          .xsa = {.form = XsaForm::kNorm,
                  .gate = this->lab_.Put(gate),
                  .cos_sim = this->lab_.template Room<float>(rows * q_heads),
                  .proj_frac = this->lab_.template Room<float>(rows * q_heads)},
          .rows = this->Live(rows),
          .out = this->lab_.template Room<T>(y.size())};
      ExcludeSelf(this->lab_.stream(), args);
      return std::tuple(this->lab_.Get(args.out, y.size()),
                        this->lab_.Get(args.xsa.cos_sim, rows * q_heads),
                        this->lab_.Get(args.xsa.proj_frac, rows * q_heads));
    };
    const auto [out, cos_sim, proj_frac] = run(v, static_cast<int32_t>(shape.kv_heads));
    const auto [own_out, own_cos_sim, own_proj_frac] = run(repeated, q_heads);
    EXPECT_TRUE(SameBits(out, own_out));
    EXPECT_TRUE(SameBits(cos_sim, own_cos_sim));
    EXPECT_TRUE(SameBits(proj_frac, own_proj_frac));
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
