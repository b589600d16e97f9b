#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "cascades/einsum/cost.h"
#include "cascades/einsum/text.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

constexpr double kMib = 1 << 20;

// Two workers, whose peaks together are 2e11 operations in f32, 4e11 in bf16, 8e11 in int8 and 4e9
// exponentials.
DeviceDescription Device() {
  return {.name = "test",
          .workers = 2,
          .flops_per_second = 1e11,
          .bf16_flops_per_second = 2e11,
          .int8_flops_per_second = 4e11,
          .exponentials_per_second = 2e9,
          .launch_seconds = 1,  // not part of a roofline
          .levels = {{.name = "L1", .bytes = 1 << 15, .bytes_per_second = 1e12},
                     {.name = "L3", .bytes = 32 * kMib, .bytes_per_second = 1e11, .shared = true},
                     {.name = "memory", .bytes = 1e15, .bytes_per_second = 2e10, .shared = true}}};
}

Roofline OfText(const std::string& text, int64_t rows, double resident_bytes,
                const DeviceDescription& device = Device()) {
  const Cascade cascade = Parse(text).value();
  return RooflineOf(cascade, Analyze(cascade, {{"rows", rows}}).value(), device, resident_bytes);
}

// Rows times a matrix of 1,024 by 1,024.
std::string Product(int weight_bytes) {
  return absl::StrCat(
      "rank t = rows rank d = 1024 rank e = 1024 tensor X[t, d] arena tensor W[d, e] weight ",
      weight_bytes, " bytes tensor Y[t, e] arena ",
      "Y[t, e] = X[t, d] . W[d, e] :: map x(and) reduce d +(or)");
}

struct RooflineRow {
  const char* name;
  int64_t rows;
  int weight_bytes;
  double resident_bytes;
  const char* bound;
  double seconds;
};
class RooflineTable : public TableTest<RooflineRow> {};

TEST_P(RooflineTable, IsTheTimeOfTheScarcestPeak) {
  const Roofline found = OfText(Product(row().weight_bytes), row().rows, row().resident_bytes);
  EXPECT_EQ(found.bound, row().bound);
  EXPECT_NEAR(found.seconds / row().seconds, 1, 1e-3);
  const double activations = 2.0 * static_cast<double>(row().rows) * 1024 * 4;
  EXPECT_EQ(found.bytes, row().weight_bytes * kMib + activations);
}

// A product of n rows has n 2^20 multiply-adds. Analyses do not count the first addition of each
// sum.
const RooflineRow kRooflineRows[] = {
    {"ARowReadsTheMatrixFromMemory", 1, 4, 100 * kMib, "memory", 4 * kMib / 2e10 + 8192 / 1e11},
    {"AModelThatFitsStaysInTheCache", 1, 4, 4 * kMib, "L3", 4 * kMib / 1e11 + 8192 / 1e11},
    {"HalfTheBytesAreHalfTheTime", 1, 2, 100 * kMib, "memory", 2 * kMib / 2e10 + 8192 / 1e11},
    {"ManyRowsAreBoundByMultiplyAdds", 1024, 4, 100 * kMib, "multiply-adds",
     1024 * (2 * kMib - 1024) / 2e11},
    {"ProductsInBf16HaveTheirOwnPeak", 1024, 2, 100 * kMib, "multiply-adds",
     1024 * (2 * kMib - 1024) / 4e11},
    {"ProductsInInt8HaveTheirOwnPeak", 1024, 1, 100 * kMib, "multiply-adds",
     1024 * (2 * kMib - 1024) / 8e11},
};
SLUICE_TABLE(RooflineTable, kRooflineRows);

TEST(Roofline, Bf16WithoutAPeakUsesTheF32Peak) {
  DeviceDescription device = Device();
  device.bf16_flops_per_second = 0;
  EXPECT_EQ(OfText(Product(2), 1024, 0, device).seconds, OfText(Product(4), 1024, 0).seconds);
}

TEST(Roofline, ACascadeWithoutWorkIsNotBoundByExponentials) {
  const Roofline found = OfText("rank t = rows Y[t] = 1", 16, 0);
  EXPECT_EQ(found.seconds, 0);
  EXPECT_EQ(found.bound, "L3");
}

TEST(Roofline, ExponentialsCanBeTheBound) {
  const Roofline found = OfText(
      "rank t = rows rank d = 1024 tensor X[t, d] arena tensor Y[t, d] arena "
      "Y[t, d] = X[t, d] :: unary exp",
      16, 0);
  EXPECT_EQ(found.bound, "exponentials");
  EXPECT_EQ(found.seconds, 16 * 1024 / 4e9);
}

struct RaiseRow {
  const char* name;
  int64_t rows;
  double resident_bytes;
  double share;              // of the roofline's time that the work took
  const char* name_of_rate;  // empty if none is raised
};
class RaiseTable : public TableTest<RaiseRow> {};

TEST_P(RaiseTable, NoMeasuredTimeIsBelowTheRoofline) {
  const Cascade cascade = Parse(Product(4)).value();
  const Analysis analysis = Analyze(cascade, {{"rows", row().rows}}).value();
  DeviceDescription device = Device();
  const double before = RooflineOf(cascade, analysis, device, row().resident_bytes).seconds;
  const double seconds = before * row().share;
  const std::vector<RaisedRate> raised =
      RaiseCeilings(cascade, analysis, row().resident_bytes, seconds, &device);
  const Roofline after = RooflineOf(cascade, analysis, device, row().resident_bytes);
  EXPECT_LE(after.seconds, seconds * (1 + 1e-9));
  if (row().share >= 1) {
    EXPECT_TRUE(raised.empty());
    EXPECT_EQ(device, Device());
    return;
  }
  EXPECT_NEAR(after.seconds / seconds, 1, 1e-9) << "it is raised to the work's rate, not above it";
  ASSERT_FALSE(raised.empty());
  EXPECT_EQ(raised[0].name, row().name_of_rate);
  EXPECT_NEAR(raised[0].factor * row().share, 1, 1e-9);
}

const RaiseRow kRaiseRows[] = {
    {"ASlowerOpRaisesNothing", 1, 100 * kMib, 1.5, ""},
    {"AnOpAtTheRooflineRaisesNothing", 1, 100 * kMib, 1, ""},
    {"BytesOfACache", 1, 4 * kMib, 0.8, "L3"},
    {"MultiplyAdds", 1024, 100 * kMib, 0.5, "multiply-adds"},
};
SLUICE_TABLE(RaiseTable, kRaiseRows);

// The rows come from the cache and the matrix from memory, so both rates rise. The time is also
// below the time of the multiply-adds, which bound the rest.
TEST(RaiseCeilings, RaisesEachRateThatBoundsTheWork) {
  const Cascade cascade = Parse(Product(4)).value();
  const Analysis analysis = Analyze(cascade, {{"rows", 1}}).value();
  DeviceDescription device = Device();
  const std::vector<RaisedRate> raised =
      RaiseCeilings(cascade, analysis, 100 * kMib, 1e-6, &device);
  ASSERT_EQ(raised.size(), 3u);
  EXPECT_EQ(raised[0].factor, raised[1].factor) << "L3 and memory";
  EXPECT_EQ(raised[2].name, "multiply-adds");
  EXPECT_GT(device.flops_per_second, Device().flops_per_second);
  EXPECT_EQ(device.int8_flops_per_second, Device().int8_flops_per_second);
  EXPECT_EQ(device.exponentials_per_second, Device().exponentials_per_second);
  EXPECT_EQ(device.levels[0], Device().levels[0]);
}

}  // namespace
}  // namespace sluice::einsum
