#include "kernels/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace sluice::kernels {
namespace {

float Widen(uint16_t bits, DType dtype) { return LoadAsFloat(&bits, dtype, 0); }

// Returns the value of a finite binary16 from its fields (IEEE 754).
double HalfValue(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits >> 15) != 0 ? -magnitude : magnitude;
}

TEST(DTypeTest, WidensEveryHalf) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = Widen(static_cast<uint16_t>(bits), DType::kF16);
    if ((bits >> 10 & 31) != 31) {
      ASSERT_EQ(value, HalfValue(static_cast<uint16_t>(bits))) << bits;
      ASSERT_EQ(std::signbit(value), bits >> 15 != 0) << bits;
    } else if ((bits & 1023) != 0) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(value, (bits >> 15 != 0 ? -1 : 1) * std::numeric_limits<float>::infinity());
    }
  }
}

TEST(DTypeTest, WidensBFloat16ByItsUpperHalf) {
  EXPECT_EQ(Widen(0x3F80, DType::kBF16), 1.0f);
  EXPECT_EQ(Widen(0xC049, DType::kBF16), -3.140625f);
  EXPECT_EQ(Widen(0x0001, DType::kBF16), std::ldexp(1.0f, -133));
  EXPECT_TRUE(std::isnan(Widen(0x7FC0, DType::kBF16)));
}

TEST(DTypeTest, ConvertsRunsFromUnalignedData) {
  const uint16_t halves[] = {0x3C00, 0x4000, 0xC200, 0x3800};  // 1, 2, -3, 0.5
  const float floats[] = {1.5f, -2.5f, 3.5f};
  std::vector<char> bytes(1 + sizeof(floats));
  float out[3] = {};
  std::memcpy(bytes.data() + 1, halves, sizeof(halves));
  ConvertToFloat(bytes.data() + 1, DType::kF16, 1, 3, out);
  EXPECT_EQ(std::vector<float>(out, out + 3), (std::vector<float>{2.0f, -3.0f, 0.5f}));
  EXPECT_EQ(LoadAsFloat(bytes.data() + 1, DType::kF16, 2), -3.0f);
  std::memcpy(bytes.data() + 1, floats, sizeof(floats));
  ConvertToFloat(bytes.data() + 1, DType::kF32, 1, 2, out);
  EXPECT_EQ(std::vector<float>(out, out + 2), (std::vector<float>{-2.5f, 3.5f}));
}

TEST(DTypeTest, ConvertingNoElementsDoesNothing) {
  float out = 7;
  ConvertToFloat(nullptr, DType::kF32, 0, 0, &out);
  EXPECT_EQ(out, 7);
}

}  // namespace
}  // namespace sluice::kernels
