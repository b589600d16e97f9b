#include "kernels/cuda/pack.h"

#include <array>
#include <bit>
#include <tuple>

#include "tests/kernels/cuda/op_test.h"
#include "tests/kernels/cuda/packed_weights.h"

namespace sluice::kernels::cuda {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kI8};

// Returns `count` stored values of `dtype`: all patterns of 16 bits if there is room for them, and
// patterns of 32 bits around the rounding points of bfloat16.
std::vector<uint8_t> StoredValues(std::mt19937_64& random, DType dtype, int64_t count) {
  std::vector<uint8_t> bytes(count * DTypeBytes(dtype));
  const int64_t shift = RandomInt(random, 0, 0xFFFF);
  for (int64_t i = 0; i < count; ++i) {
    const auto high = static_cast<uint16_t>(i + shift);
    if (dtype == DType::kI8) {
      bytes[i] = static_cast<uint8_t>(high);
      continue;
    }
    if (dtype != DType::kF32) {
      std::memcpy(&bytes[i * 2], &high, sizeof(high));
      continue;
    }
    constexpr std::array<uint32_t, 7> kLow = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1234};
    const uint32_t bits = uint32_t{high} << 16 | kLow[RandomInt(random, 0, kLow.size() - 1)];
    std::memcpy(&bytes[i * 4], &bits, sizeof(bits));
  }
  return bytes;
}

template <typename T>
class PackTest : public OpTest {
 protected:
  // Returns the host's conversion of a stored value.
  static T Expected(const std::vector<uint8_t>& stored, DType dtype, int64_t i) {
    return Narrow<T>(LoadAsFloat(stored.data(), dtype, i));
  }
  // Returns the bits of the n values at `device`.
  std::vector<uint32_t> Bits(const T* device, int64_t n) {
    std::vector<uint32_t> bits;
    for (const T value : lab_.Get(device, n)) bits.push_back(BitsOf(value));
    return bits;
  }
  static uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }
  static uint32_t BitsOf(BFloat16 value) { return value.bits; }

  // Transposes random values and checks each one. Also checks that nothing is written between the
  // rows.
  void CheckTranspose(DType dtype, int64_t rows, int64_t columns, int64_t out_stride,
                      int64_t first) {
    SCOPED_TRACE(testing::Message()
                 << rows << " x " << columns << " of dtype " << static_cast<int>(dtype)
                 << " to rows of " << out_stride << " from " << first << ", seed " << kSeed);
    const int64_t stride = TransposeStride(columns, dtype);
    const auto stored = StoredValues(random_, dtype, rows * stride);
    const std::vector<T> before(first + columns * out_stride, Narrow<T>(0.5f));
    T* const out = lab_.Put(before);
    Transpose<T>(lab_.stream(), {.in = lab_.Put(stored),
                                 .dtype = dtype,
                                 .rows = rows,
                                 .columns = columns,
                                 .in_stride = stride,
                                 .out = out + first,
                                 .out_stride = out_stride});
    std::vector<uint32_t> expected(before.size(), BitsOf(Narrow<T>(0.5f)));
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = 0; r < rows; ++r) {
        expected[first + c * out_stride + r] = BitsOf(Expected(stored, dtype, r * stride + c));
      }
    }
    EXPECT_EQ(Bits(out, before.size()), expected);
    lab_.Clear();
  }
};
TYPED_TEST_SUITE(PackTest, DTypes);

TYPED_TEST(PackTest, ConvertHasTheBitsOfTheHost) {
  for (const DType dtype : kDTypes) {
    for (const int64_t count : {1, 7, 8, 9, 2049, (1 << 16) + 3}) {
      const auto stored = StoredValues(this->random_, dtype, count);
      auto* const out = this->lab_.Put(std::vector<TypeParam>(count + 1, Narrow<TypeParam>(0.5f)));
      Convert<TypeParam>(
          this->lab_.stream(),
          {.in = this->lab_.Put(stored), .dtype = dtype, .count = count, .out = out});
      std::vector<uint32_t> expected;
      for (int64_t i = 0; i < count; ++i) {
        expected.push_back(this->BitsOf(this->Expected(stored, dtype, i)));
      }
      expected.push_back(this->BitsOf(Narrow<TypeParam>(0.5f)));
      EXPECT_EQ(this->Bits(out, count + 1), expected)
          << count << " of dtype " << static_cast<int>(dtype) << ", seed " << this->kSeed;
      this->lab_.Clear();
    }
  }
}

TYPED_TEST(PackTest, TransposeHasTheBitsOfTheHost) {
  for (const DType dtype : kDTypes) {
    this->CheckTranspose(dtype, 256, 256, 256, 0);
    this->CheckTranspose(dtype, 1, 1, 1, 0);
    for (int trial = 0; trial < 12; ++trial) {
      const int64_t rows = RandomInt(this->random_, 1, 150);
      const int64_t columns = RandomInt(this->random_, 1, 150);
      // Aligned and unaligned rows.
      const int64_t out_stride =
          trial % 2 == 0 ? (rows + 7) / 8 * 8 : rows + RandomInt(this->random_, 0, 9);
      this->CheckTranspose(dtype, rows, columns, out_stride, trial % 4 == 2 ? 3 : 0);
    }
  }
}

TYPED_TEST(PackTest, PackedMatricesHaveEveryWeightInItsPlaceAndZerosElsewhere) {
  using T = TypeParam;
  for (int trial = 0; trial < 12; ++trial) {
    const int64_t matrices = RandomInt(this->random_, 1, 3);
    const int32_t k = trial == 0 ? 64 : RandomInt(this->random_, 1, 150);
    const int32_t n = trial == 0 ? 128 : RandomInt(this->random_, 1, 150);
    SCOPED_TRACE(testing::Message()
                 << matrices << " of " << k << " x " << n << ", seed " << this->kSeed);
    const auto weights = RandomValues<T>(this->random_, matrices * k * n);
    const std::vector<T> expected = Packed(weights, matrices, k, n);
    T* const out = this->lab_.template Room<T>(expected.size());
    PackWeights<T>(
        this->lab_.stream(),
        {.in = this->lab_.Put(weights), .matrices = matrices, .k = k, .n = n, .out = out});
    EXPECT_TRUE(SameBits(this->lab_.Get(out, expected.size()), expected));
    this->lab_.Clear();
  }
}

TEST(PackInt8Test, ColumnsHaveEveryWeightInItsPlaceAndZerosElsewhere) {
  constexpr uint64_t kSeed = 20261126;
  std::mt19937_64 random(kSeed);
  DeviceLab lab(MakeDeviceUnderTest(kSeed));
  for (const auto& [matrices, k, n] :
       {std::tuple(1, 128, 64), {1, 128, 1}, {2, 256, 63}, {3, 384, 130}}) {
    std::vector<int8_t> columns(matrices * k * n), weights(columns.size());
    for (int32_t i = 0; i < std::ssize(columns); ++i) {
      const int32_t depth = i % k, column = i / k % n;
      columns[i] = static_cast<int8_t>(random());
      weights[(i / k / n * k + depth) * n + column] = columns[i];
    }
    const std::vector<int8_t> expected = Packed(weights, matrices, k, n);
    int8_t* const out = lab.Room<int8_t>(expected.size());
    PackWeights<int8_t>(lab.stream(),
                        {.in = lab.Put(columns), .matrices = matrices, .k = k, .n = n, .out = out});
    EXPECT_EQ(lab.Get(out, expected.size()), expected) << k << " x " << n << ", seed " << kSeed;
    lab.Clear();
  }
}

TEST(PackForWarpgroupsTest, MatricesHaveEveryWeightInItsPlaceAndZerosElsewhere) {
  constexpr uint64_t kSeed = 20261125;
  std::mt19937_64 random(kSeed);
  DeviceLab lab(MakeDeviceUnderTest(kSeed));
  for (const auto& [matrices, k, n] : {std::tuple(1, 64, 128), {3, 1, 8}, {2, 70, 136}}) {
    const auto weights = RandomValues<BFloat16>(random, matrices * k * n);
    const std::vector<BFloat16> expected = PackedForWarpgroups(weights, matrices, k, n);
    BFloat16* const out = lab.Room<BFloat16>(expected.size());
    PackForWarpgroups(lab.stream(),
                      {.in = lab.Put(weights), .matrices = matrices, .k = k, .n = n, .out = out});
    EXPECT_TRUE(SameBits(lab.Get(out, expected.size()), expected)) << k << " x " << n;
    lab.Clear();
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
