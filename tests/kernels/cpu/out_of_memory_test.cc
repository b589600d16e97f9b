// Makes each allocation of packing weights fail in turn.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "kernels/cpu/packed_weights.h"
#include "tests/support/allocation_counter.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kK = 70, kN = 2000;

struct Case {
  std::string name;
  std::function<PackedWeights(const Context&, const WeightSource&)> pack;
};
const Case kCases[] = {
    {"floats", [](const Context& c, const WeightSource& s) { return PackedWeights::Pack(c, s); }},
    {"int8", [](const Context& c, const WeightSource& s) { return PackedWeights::PackInt8(c, s); }},
    {"int4",
     [](const Context& c, const WeightSource& s) { return PackedWeights::PackInt4(c, s, 32); }}};

class PackOutOfMemoryTest : public ::testing::TestWithParam<int> {};

// The threads of a pool share the allocations of a product. So an attempt with several threads may
// succeed, because the caller makes fewer allocations than before.
TEST_P(PackOutOfMemoryTest, PackingThrowsBadAllocAndCanBeRepeated) {
  const std::vector<float> values(kK * kN, 0.5f);
  const WeightSource source{values.data(), DType::kF32, 1, kK, kN, true};
  ThreadPool one(1), pool(GetParam());
  const Context context{BestProfile(), &pool};
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.name);
    const int64_t before = Allocations();
    each.pack({BestProfile(), &one}, source);
    const int64_t count = Allocations() - before;
    ASSERT_GT(count, 0);
    for (int64_t nth = 1; nth <= count; nth += 1 + nth / 50) {
      bool threw = false;
      try {
        const FailingAllocation failing(nth);
        each.pack(context, source);
      } catch (const std::bad_alloc&) {
        threw = true;
      }
      EXPECT_TRUE(threw || GetParam() > 1) << nth;
      EXPECT_EQ(each.pack(context, source).n(), kN);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, PackOutOfMemoryTest, ::testing::Values(1, 3));

}  // namespace
}  // namespace sluice::kernels
