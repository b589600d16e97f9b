#include "kernels/cuda/xsa.h"

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

}  // namespace
}  // namespace sluice::kernels::cuda
