// Products of few rows (kernels/cuda/few_rows.h): their launches, and the bits of their sums.
#include <algorithm>
#include <numeric>

#include "kernels/cuda/packed.h"
#include "kernels/cuda/projection.h"
#include "tests/kernels/cuda/op_test.h"
#include "tests/kernels/cuda/packed_weights.h"

namespace sluice::kernels::cuda {
namespace {

// Records launches instead of running them.
class RecordingStream final : public Stream {
 public:
  explicit RecordingStream(int32_t shared_bytes = 227 << 10) : shared_bytes_(shared_bytes) {}

  void Launch(const Kernel& kernel, const LaunchShape& shape, const void*, size_t) override {
    kernel_ = kernel.name;
    shape_ = shape;
  }
  int32_t processors() const override { return 132; }
  int32_t shared_bytes_limit() const override { return shared_bytes_; }

  const std::string& kernel() const { return kernel_; }
  const LaunchShape& shape() const { return shape_; }

 private:
  int32_t shared_bytes_;
  std::string kernel_;
  LaunchShape shape_ = {};
};

struct LaunchCase {
  int32_t tiles, n;
  int32_t rows = 16;        // of a tile, at most
  int32_t blocks, columns;  // expected; 0 columns means another kernel
  int32_t shared_bytes = 227 << 10;
};

TEST(FewRowsLaunchTest, OneWaveOfTilesFillsAnH200) {
  for (const LaunchCase& c : std::vector<LaunchCase>{
           {.tiles = 1, .n = 1024, .blocks = 64, .columns = 16},
           {.tiles = 1, .n = 2048, .blocks = 128, .columns = 16},
           {.tiles = 1, .n = 4096, .blocks = 128, .columns = 32},
           {.tiles = 1, .n = 4096, .blocks = 128, .columns = 32, .shared_bytes = 99 << 10},
           {.tiles = 1, .n = 6144, .blocks = 128, .columns = 48},
           {.tiles = 1, .n = 8960, .blocks = 112, .columns = 80},
           {.tiles = 1, .n = 14336, .blocks = 128, .columns = 112},
           {.tiles = 4, .n = 1024, .blocks = 128, .columns = 32},
           {.tiles = 1, .n = 7, .blocks = 1, .columns = 16},
           {.tiles = 1, .n = 28672, .blocks = 132, .columns = 112},
           {.tiles = 256, .n = 512, .blocks = 132, .columns = 128},
           {.tiles = 1, .n = 4096, .rows = 64, .blocks = 128, .columns = 32},
           {.tiles = 2, .n = 1024, .rows = 64, .blocks = 128, .columns = 16},
           {.tiles = 1, .n = 32768, .rows = 64, .blocks = 132, .columns = 128},
           {.tiles = 64, .n = 512, .rows = 32, .blocks = 132, .columns = 128},
           {.tiles = 64, .n = 512, .rows = 33, .blocks = 264, .columns = 0},
       }) {
    SCOPED_TRACE(testing::Message()
                 << c.tiles << " tiles of " << c.n << " columns, " << c.shared_bytes << " bytes");
    RecordingStream stream(c.shared_bytes);
    Project<BFloat16>(stream, {.x = nullptr,
                               .weight = nullptr,
                               .bias = nullptr,
                               .bias_stride = 0,
                               .k = 4096,
                               .n = c.n + c.n % 2,
                               .tiles = {nullptr, nullptr, c.tiles, c.tiles == 1, c.rows},
                               .accumulate = false,
                               .out = nullptr});
    EXPECT_EQ(stream.shape().blocks, c.blocks);
    EXPECT_EQ(stream.kernel() == "ProjectionFewRows", c.columns > 0) << stream.kernel();
    if (c.columns > 0) {
      EXPECT_EQ(stream.shape().threads, 32 * (2 * c.columns / 16 + 2));
    }
    EXPECT_LE(stream.shape().shared_bytes, c.shared_bytes);
  }
}

template <typename T>
std::vector<T> RandomOperands(std::mt19937_64& random, int64_t n) {
  if constexpr (std::is_same_v<T, int8_t>) {
    std::vector<int8_t> values(n);
    for (int8_t& value : values) value = static_cast<int8_t>(RandomInt(random, -127, 127));
    return values;
  } else {
    return RandomValues<T>(random, n);
  }
}

template <typename TypesOfProduct>
class FewRowsTest : public OpTest {
 protected:
  using T = typename TypesOfProduct::Value;
  using Out = typename TypesOfProduct::Result;
  using Operand = typename TypesOfProduct::Factor;
  using Args = ProjectionArgs<T, Out, Operand>;

  struct Case {
    std::vector<RowGroup> tiles = {};
    int32_t rows = 0, max_rows = 0, matrices = 0, k = 0, n = 0;
    int32_t processors = 0, shared_bytes = 0;
    bool accumulate = false, activate = false, gated = false;
  };

  // Returns a case with several tiles for some blocks and more steps than stages.
  Case RandomCase() {
    Case c = {.k = RandomInt(random_, 1, 90) * 16,
              .n = RandomInt(random_, 1, 100) * 2,
              .shared_bytes = RandomInt(random_, 70, 227) << 10,
              .accumulate = RandomInt(random_, 0, 1) == 1,
              .activate = RandomInt(random_, 0, 1) == 1,
              .gated = RandomInt(random_, 0, 1) == 1};
    const int32_t tiles = RandomInt(random_, 1, 4);
    for (int32_t i = 0; i < tiles; ++i) {
      const int32_t most = 8 << RandomInt(random_, 0, 3);
      c.tiles.push_back({c.matrices, c.rows, RandomInt(random_, 1, most)});
      c.matrices += RandomInt(random_, 1, 2);
      c.rows += c.tiles.back().count;
      c.max_rows = std::max(c.max_rows, c.tiles.back().count);
    }
    c.processors = tiles * Panels(c.n) / 2 + RandomInt(random_, 1, 4);
    return c;
  }

  // Returns the packed weight on the device.
  const Operand* Put(const std::vector<Operand>& weight, const Case& c) {
    if constexpr (TypesOfProduct::kOfGroups) {
      return lab_.Put(PackedForWarpgroups(weight, c.matrices, c.k, c.n));
    } else {
      return lab_.Put(Packed(weight, c.matrices, c.k, c.n));
    }
  }

  void ExpectTheBitsOfOtherKernels(const Case& c) {
    SCOPED_TRACE(testing::Message()
                 << c.tiles.size() << " tiles of up to " << c.max_rows << " rows, k " << c.k
                 << ", n " << c.n << ", " << c.processors << " processors, " << c.shared_bytes
                 << " bytes, seed " << kSeed);
    constexpr bool kInt8 = std::is_same_v<Operand, int8_t>;
    constexpr bool kOfGroups = TypesOfProduct::kOfGroups;
    const auto weight = RandomOperands<Operand>(random_, int64_t{c.matrices} * c.k * c.n);
    const auto before = RandomValues<Out>(random_, c.rows * c.n);
    const auto count = static_cast<int32_t>(c.tiles.size());
    Args args = {
        .x = lab_.Put(RandomOperands<Operand>(random_, c.rows * c.k)),
        .weight = Put(weight, c),
        .bias = lab_.Put(RandomValues<T>(random_, c.matrices * c.n)),
        .bias_stride = c.n,
        .k = c.k,
        .n = c.n,
        .tiles = {lab_.Put(c.tiles), lab_.template Put<int32_t>({count}), count, count == 1,
                  c.max_rows},
        .accumulate = c.accumulate,
        .out = nullptr,
        .activate = c.activate,
        .activation = Activation::kSilu,
        .gate = c.gated ? lab_.Put(RandomValues<Out>(random_, c.rows * c.n)) : nullptr,
        .row_scales = kInt8 ? lab_.Put(RandomValues<float>(random_, c.rows)) : nullptr,
        .scales = kInt8 ? lab_.Put(RandomValues<float>(random_, c.matrices * c.n)) : nullptr};
    const auto project = [&](int32_t processors, int32_t shared_bytes, const char* kernel) {
      args.out = lab_.Put(before);
      StreamOfProcessors stream(lab_.stream(), processors);
      LimitedStream limited(stream, shared_bytes);
      if constexpr (kOfGroups) {
        if (!ProjectFewRowsOfGroups(limited, args)) Project(limited, args);
      } else {
        Project(limited, args);
      }
      EXPECT_EQ(stream.kernel(), kernel);
      return lab_.Get(args.out, c.rows * c.n);
    };
    const std::vector<Out> got =
        project(c.processors, c.shared_bytes,
                kOfGroups ? "ProjectionFewRowsOfGroups" : "ProjectionFewRows");
    if (kOfGroups) args.weight = lab_.Put(Packed(weight, c.matrices, c.k, c.n));
    args.tiles.capacity += 2;  // more than can be of few rows with one processor
    args.tiles.one_group = false;
    args.tiles.max_rows = kTileRows;
    EXPECT_TRUE(SameBits(got, project(1, 227 << 10, "Projection")));
    lab_.Clear();
  }
};

template <typename T, typename Out, typename Operand, bool kInGroups = false>
struct ProductTypes {
  static constexpr bool kOfGroups = kInGroups;  // whether the weight is in slices for warpgroups
  using Value = T;
  using Result = Out;
  using Factor = Operand;
};
using FewRowsTypes =
    testing::Types<ProductTypes<BFloat16, BFloat16, BFloat16>,
                   ProductTypes<BFloat16, float, BFloat16>, ProductTypes<float, float, int8_t>,
                   ProductTypes<BFloat16, BFloat16, int8_t>,
                   ProductTypes<BFloat16, BFloat16, BFloat16, /*kInGroups=*/true>>;
TYPED_TEST_SUITE(FewRowsTest, FewRowsTypes);

TYPED_TEST(FewRowsTest, SumsHaveTheBitsOfOtherKernels) {
  for (int i = 0; i < 12; ++i) this->ExpectTheBitsOfOtherKernels(this->RandomCase());
}

}  // namespace
}  // namespace sluice::kernels::cuda
