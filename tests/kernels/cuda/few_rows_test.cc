// Products of few rows (kernels/cuda/few_rows.h): their launches, and the bits of their sums.
#include <algorithm>
#include <numeric>

#include "kernels/cuda/gated_projection.h"
#include "kernels/cuda/packed.h"
#include "kernels/cuda/projection.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/linear.h"
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
  int32_t rows = 16;                // of a tile, at most
  int32_t blocks = 0, columns = 0;  // expected; 0 columns means another kernel
  int32_t shared_bytes = 227 << 10;
};

// Returns arguments of a product of the case, without memory.
ProjectionArgs<BFloat16> ArgsOf(const LaunchCase& c) {
  return {.x = nullptr,
          .weight = nullptr,
          .bias = nullptr,
          .bias_stride = 0,
          .k = 4096,
          .n = c.n + c.n % 2,
          .tiles = {nullptr, nullptr, c.tiles, c.tiles == 1, c.rows},
          .accumulate = false,
          .out = nullptr};
}

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
    Project(stream, ArgsOf(c));
    EXPECT_EQ(stream.shape().blocks, c.blocks);
    EXPECT_EQ(stream.kernel() == "ProjectionFewRows", c.columns > 0) << stream.kernel();
    if (c.columns > 0) {
      EXPECT_EQ(stream.shape().threads, 32 * (2 * c.columns / 16 + 2));
    }
    EXPECT_LE(stream.shape().shared_bytes, c.shared_bytes);
  }
}

// A step has one slice of each weight, so the tiles have the same memory as for one product. A tile
// with the same columns has twice the weights.
TEST(FewRowsLaunchTest, OneWaveOfTilesOfTwoProductsFillsAnH200) {
  for (const LaunchCase& c : std::vector<LaunchCase>{
           {.tiles = 1, .n = 4096, .blocks = 128, .columns = 32},
           {.tiles = 1, .n = 8960, .blocks = 112, .columns = 80},
           {.tiles = 1, .n = 14336, .blocks = 128, .columns = 112},
           {.tiles = 1, .n = 14336, .blocks = 128, .columns = 112, .shared_bytes = 120 << 10},
           {.tiles = 1, .n = 14336, .rows = 64, .blocks = 128, .columns = 112},
           {.tiles = 256, .n = 512, .blocks = 132, .columns = 128},
           {.tiles = 64, .n = 512, .rows = 32, .blocks = 132, .columns = 128},
           {.tiles = 64, .n = 512, .rows = 33, .blocks = 0, .columns = 0},
           {.tiles = 1, .n = 4096, .blocks = 0, .columns = 0, .shared_bytes = 16 << 10},
       }) {
    SCOPED_TRACE(testing::Message()
                 << c.tiles << " tiles of " << c.n << " columns, " << c.shared_bytes << " bytes");
    RecordingStream stream(c.shared_bytes);
    const ProjectionArgs<BFloat16> gate = ArgsOf(c);
    ProjectionArgs<BFloat16> up = gate;
    up.activate = true;
    EXPECT_EQ(ProjectGated(stream, gate, up), c.columns > 0);
    EXPECT_EQ(stream.kernel(), c.columns > 0 ? "GatedFewRows" : "");
    EXPECT_EQ(stream.shape().blocks, c.blocks);
    EXPECT_EQ(stream.shape().threads, c.columns > 0 ? 32 * (2 * c.columns / 16 + 2) : 0);
    EXPECT_LE(stream.shape().shared_bytes, c.shared_bytes);
  }
}

TEST(FewRowsLaunchTest, ProductsWithUnalignedRowsAreNotFused) {
  RecordingStream stream;
  ProjectionArgs<BFloat16> gate = ArgsOf({.tiles = 1, .n = 64});
  gate.n = 63;
  ProjectionArgs<BFloat16> up = gate;
  up.activate = true;
  EXPECT_FALSE(ProjectGated(stream, gate, up));
  EXPECT_EQ(stream.kernel(), "");
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

  static std::string Describe(const Case& c) {
    return absl::StrCat(c.tiles.size(), " tiles of up to ", c.max_rows, " rows, k ", c.k, ", n ",
                        c.n, ", ", c.processors, " processors, ", c.shared_bytes, " bytes, seed ",
                        kSeed);
  }

  std::vector<Operand> RandomWeight(const Case& c) {
    return RandomOperands<Operand>(random_, int64_t{c.matrices} * c.k * c.n);
  }
  // Returns arguments with random rows, bias and scales.
  Args ArgsOf(const Case& c, const Operand* weight) {
    constexpr bool kInt8 = std::is_same_v<Operand, int8_t>;
    const auto count = static_cast<int32_t>(c.tiles.size());
    return {.x = lab_.Put(RandomOperands<Operand>(random_, c.rows * c.k)),
            .weight = weight,
            .bias = lab_.Put(RandomValues<T>(random_, c.matrices * c.n)),
            .bias_stride = c.n,
            .k = c.k,
            .n = c.n,
            .tiles = {lab_.Put(c.tiles), lab_.template Put<int32_t>({count}), count, count == 1,
                      c.max_rows},
            .accumulate = false,
            .out = nullptr,
            .activation = Activation::kSilu,
            .row_scales = kInt8 ? lab_.Put(RandomValues<float>(random_, c.rows)) : nullptr,
            .scales = kInt8 ? lab_.Put(RandomValues<float>(random_, c.matrices * c.n)) : nullptr};
  }

  // Returns the packed weight on the device.
  const Operand* Put(const std::vector<Operand>& weight, const Case& c) {
    if constexpr (TypesOfProduct::kOfGroups) {
      return lab_.Put(PackedForWarpgroups(weight, c.matrices, c.k, c.n));
    } else {
      return lab_.Put(Packed(weight, c.matrices, c.k, c.n));
    }
  }

  static constexpr bool kOfGroups = TypesOfProduct::kOfGroups;

  // Computes a product, whose weight is in panels, by small tiles.
  std::vector<Out> ProjectBySmallTiles(Args args, const Case& c) {
    args.tiles.capacity += 2;  // more than can be of few rows with one processor
    args.tiles.one_group = false;
    args.tiles.max_rows = kTileRows;
    StreamOfProcessors stream(lab_.stream(), 1);
    Project(stream, args);
    EXPECT_EQ(stream.kernel(), "Projection");
    return lab_.Get(args.out, c.rows * c.n);
  }

  void ExpectTheBitsOfOtherKernels(const Case& c) {
    SCOPED_TRACE(Describe(c));
    const auto weight = RandomWeight(c);
    const auto before = RandomValues<Out>(random_, c.rows * c.n);
    Args args = ArgsOf(c, Put(weight, c));
    args.accumulate = c.accumulate;
    args.activate = c.activate;
    if (c.gated) args.gate = lab_.Put(RandomValues<Out>(random_, c.rows * c.n));
    args.out = lab_.Put(before);
    StreamOfProcessors stream(lab_.stream(), c.processors);
    LimitedStream limited(stream, c.shared_bytes);
    if constexpr (kOfGroups) {
      EXPECT_TRUE(ProjectFewRowsOfGroups(limited, args));
    } else {
      Project(limited, args);
    }
    EXPECT_EQ(stream.kernel(), kOfGroups ? "ProjectionFewRowsOfGroups" : "ProjectionFewRows");
    const std::vector<Out> got = lab_.Get(args.out, c.rows * c.n);
    if (kOfGroups) args.weight = lab_.Put(Packed(weight, c.matrices, c.k, c.n));
    args.out = lab_.Put(before);
    EXPECT_TRUE(SameBits(got, ProjectBySmallTiles(args, c)));
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

// The products of a gated MLP in one kernel (kernels/cuda/gated_projection.h).
template <typename TypesOfProduct>
class GatedFewRowsTest : public FewRowsTest<TypesOfProduct> {
 protected:
  using Base = FewRowsTest<TypesOfProduct>;
  using Base::kOfGroups;
  using Base::lab_;
  using Base::random_;
  using typename Base::Args;
  using typename Base::Case;
  using typename Base::Operand;
  using typename Base::T;

  struct Products {
    Case c;
    std::vector<Operand> gate_weight = {}, up_weight = {};
    Args gate = {}, up = {};
  };

  // Returns the products of a random case, with different weights, biases and scales.
  Products RandomProducts() {
    Products products;
    products.c = this->RandomCase();
    const Case& c = products.c;
    products.gate_weight = this->RandomWeight(c);
    products.up_weight = this->RandomWeight(c);
    products.gate = this->ArgsOf(c, this->Put(products.gate_weight, c));
    products.up = this->ArgsOf(c, this->Put(products.up_weight, c));
    if (RandomInt(random_, 0, 3) == 0) products.gate.bias = products.up.bias = nullptr;
    products.up.x = products.gate.x;
    products.up.tiles = products.gate.tiles;
    products.up.row_scales = products.gate.row_scales;
    products.up.activate = true;
    products.up.activation = static_cast<Activation>(RandomInt(random_, 0, kActivations - 1));
    return products;
  }

  // Computes the products in one kernel, and expects that the gate is not written.
  std::vector<T> ProjectTogether(Products& products) {
    const Case& c = products.c;
    const auto before = RandomValues<T>(random_, c.rows * c.n);
    T* const gate = lab_.Put(before);
    products.up.gate = products.gate.out = gate;
    products.up.out = lab_.template Room<T>(c.rows * c.n);
    StreamOfProcessors stream(lab_.stream(), c.processors);
    LimitedStream limited(stream, c.shared_bytes);
    if constexpr (kOfGroups) {
      EXPECT_TRUE(ProjectGatedOfGroups(limited, products.gate, products.up));
    } else {
      EXPECT_TRUE(ProjectGated(limited, products.gate, products.up));
    }
    EXPECT_EQ(stream.kernel(), kOfGroups ? "GatedFewRowsOfGroups" : "GatedFewRows");
    EXPECT_TRUE(SameBits(lab_.Get(gate, c.rows * c.n), before));
    return lab_.Get(products.up.out, c.rows * c.n);
  }

  void ExpectTheBitsOfTwoProducts() {
    Products products = RandomProducts();
    auto& [c, gate_weight, up_weight, gate, up] = products;
    SCOPED_TRACE(this->Describe(c));
    const std::vector<T> got = ProjectTogether(products);
    if constexpr (kOfGroups) {
      gate.weight = lab_.Put(Packed(gate_weight, c.matrices, c.k, c.n));
      up.weight = lab_.Put(Packed(up_weight, c.matrices, c.k, c.n));
    }
    (void)this->ProjectBySmallTiles(gate, c);
    up.out = lab_.template Room<T>(c.rows * c.n);
    EXPECT_TRUE(SameBits(got, this->ProjectBySmallTiles(up, c)));
    lab_.Clear();
  }
};
using GatedTypes =
    testing::Types<ProductTypes<BFloat16, BFloat16, BFloat16>, ProductTypes<float, float, int8_t>,
                   ProductTypes<BFloat16, BFloat16, int8_t>,
                   ProductTypes<BFloat16, BFloat16, BFloat16, /*kInGroups=*/true>>;
TYPED_TEST_SUITE(GatedFewRowsTest, GatedTypes);

TYPED_TEST(GatedFewRowsTest, OutputsHaveTheBitsOfTwoProducts) {
  for (int i = 0; i < 12; ++i) this->ExpectTheBitsOfTwoProducts();
}

template <typename TypesOfProduct>
class GatedFewRowsReferenceTest : public GatedFewRowsTest<TypesOfProduct> {};
using GatedBFloat16 =
    testing::Types<ProductTypes<BFloat16, BFloat16, BFloat16>,
                   ProductTypes<BFloat16, BFloat16, BFloat16, /*kInGroups=*/true>>;
TYPED_TEST_SUITE(GatedFewRowsReferenceTest, GatedBFloat16);

TYPED_TEST(GatedFewRowsReferenceTest, OutputsEqualTheReference) {
  for (int i = 0; i < 4; ++i) {
    auto products = this->RandomProducts();
    const auto& c = products.c;
    SCOPED_TRACE(this->Describe(c));
    const std::vector<double> x = ToDouble(this->lab_.Get(products.gate.x, c.rows * c.k));
    std::vector<int32_t> positions;
    for (const RowGroup& tile : c.tiles) {
      positions.insert(positions.end(), tile.count, tile.matrix);
    }
    const auto product = [&](const std::vector<BFloat16>& weight, const BFloat16* bias) {
      std::vector<double> values;
      if (bias != nullptr) values = ToDouble(this->lab_.Get(bias, c.matrices * c.n));
      values = reference::PositionWise(x, positions, ToDouble(weight), values, /*bias_each=*/true,
                                       c.k, c.n);
      for (double& value : values) value = Widen(Narrow<BFloat16>(static_cast<float>(value)));
      return values;
    };
    const std::vector<double> gate = product(products.gate_weight, products.gate.bias);
    std::vector<double> expected = product(products.up_weight, products.up.bias);
    for (size_t j = 0; j < expected.size(); ++j) {
      expected[j] *= reference::Activate(products.up.activation, gate[j]);
    }
    EXPECT_TRUE(Within(0.02, ToDouble(this->ProjectTogether(products)), expected));
    this->lab_.Clear();
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
