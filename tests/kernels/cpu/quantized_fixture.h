// Shared by the tests of products with quantised rows.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/memory.h"
#include "kernels/cpu/quantized_rows.h"
#include "kernels/reference/int8.h"
#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {

using reference::Quantized;

// Quantised rows in memory of their own. What the rows do not cover has all bits set.
class Rows {
 public:
  Rows(const Context& context, std::span<const float> x, int64_t rows, int64_t k, bool sums = false)
      : memory_(static_cast<std::byte*>(
            AllocateMemory(QuantizedRows::Bytes(context.profile, rows, k, sums)))) {
    std::memset(memory_.get(), 0xFF, QuantizedRows::Bytes(context.profile, rows, k, sums));
    rows_ = QuantizedRows(context.profile, rows, k, sums, memory_.get());
    QuantizeRows(context, x.data(), k, rows, rows_);
  }
  const QuantizedRows& rows() const { return rows_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  QuantizedRows rows_;
};

// Floats of magnitudes that differ from row to row by orders. Some are the largest of their row or
// close to it, which brings the sums near their bounds.
inline std::vector<float> RandomRows(std::mt19937_64& random, int64_t rows, int64_t k) {
  std::vector<float> x;
  for (int64_t r = 0; r < rows; ++r) {
    const float scale = std::ldexp(1.0f, static_cast<int>(RandomInt(random, -20, 20)));
    for (float value : RandomFloats(random, k)) {
      if (random() % 4 == 0) value = value < 0 ? -1.0f : 1.0f;
      x.push_back(value * scale);
    }
  }
  return x;
}

inline std::vector<Quantized> QuantizeEach(std::span<const float> x, int64_t k) {
  std::vector<Quantized> rows;
  for (int64_t i = 0; i < std::ssize(x); i += k) {
    rows.push_back(reference::Quantize(x.subspan(i, k)));
  }
  return rows;
}

inline std::string Bits(float value) {
  return testing::PrintToString(value) + " " +
         testing::PrintToString(std::bit_cast<uint32_t>(value));
}

inline bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (a != a && b != b);
}

inline uint64_t Seed() {
  static const uint64_t seed = std::random_device()();
  return seed;
}

class QuantizedTest : public OpTest {
 protected:
  QuantizedTest() : random_(Seed()) { RecordProperty("seed", std::to_string(Seed())); }
  testing::Message Trace() const { return testing::Message() << "seed " << Seed(); }
  std::mt19937_64 random_;
};

struct Shape {
  int64_t rows, k, n;
};

}  // namespace sluice::kernels
