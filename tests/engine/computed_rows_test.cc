#include "engine/computed_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace sluice {
namespace {

const ComputedRows kMixed = ComputedRows::OfLayers(
    {{.share = 0.25, .slice = 1024, .least = 32}, {.share = 0.5, .slice = 4096}});

// Computes the rows of a layer slice by slice.
int64_t RowsInSlices(const ComputedRows::BucketLayers& layers, int32_t tokens) {
  if (layers.slice == 0) return tokens;
  int64_t rows = 0;
  for (int32_t first = 0; first < tokens; first += layers.slice) {
    int32_t slice = std::max(std::min(tokens - first, layers.slice), layers.least);
    while (TriedRows(slice) != slice) ++slice;
    rows += slice;
  }
  return rows;
}

TEST(ComputedRows, TheLibraryRoundsABucketUp) {
  const ComputedRows library = ComputedRows::OfLibrary();
  // Capacities that a fit to a trace of conversations chose.
  for (const int32_t tokens : {1047, 1112, 1193}) EXPECT_EQ(library.Of(tokens, 900), 1280);
  EXPECT_EQ(library.Of(1024, 1), 1024);
  EXPECT_EQ(library.Of(4096 + 33, 4000), 4096 + 40);
  EXPECT_EQ(library.RoundUp(1025), 1280);
  EXPECT_FALSE(library.batch_only());
}

TEST(ComputedRows, OnlyRowsOfTheBatchOrOfTheBucket) {
  EXPECT_EQ(ComputedRows::OfBatch().Of(1000, 7), 7);
  EXPECT_EQ(ComputedRows::OfBatch().OfBucketLayers(1000), 0);
  EXPECT_TRUE(ComputedRows::OfBatch().batch_only());
  EXPECT_TRUE(ComputedRows::OfBatch().Exact(1047));
  EXPECT_EQ(ComputedRows::OfBucket().Of(1047, 7), 1047);
  EXPECT_TRUE(ComputedRows::OfBucket().Exact(1047));
}

TEST(ComputedRows, AreTheMeanOfLayersByTheirShares) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto bucket = static_cast<int32_t>(1 + random() % 20'000);
    const auto batch = static_cast<int32_t>(1 + random() % bucket);
    double expected = 0.25 * batch;
    for (const ComputedRows::BucketLayers& layers : kMixed.layers()) {
      expected += layers.share * static_cast<double>(RowsInSlices(layers, bucket));
    }
    EXPECT_EQ(kMixed.Of(bucket, batch), std::llround(expected));
  }
}

TEST(ComputedRows, RoundUpGivesTheNextNumberThatEveryLayerComputesExactly) {
  for (const ComputedRows& rows : {kMixed, ComputedRows::OfLibrary()}) {
    int32_t next = 10'000;
    for (int32_t tokens = next; tokens >= 1; --tokens) {
      bool exact = true;
      for (const auto& layers : rows.layers()) exact &= RowsInSlices(layers, tokens) == tokens;
      if (exact) next = tokens;
      if (tokens > 9'000) continue;  // the next exact number may be above the first one
      ASSERT_EQ(rows.RoundUp(tokens), next) << tokens;
      ASSERT_EQ(rows.Exact(tokens), exact) << tokens;
    }
  }
}

TEST(ComputedRowsDeathTest, SharesAndSlicesAreChecked) {
  EXPECT_DEATH(ComputedRows::OfLayers({{.share = 0}}), "share");
  EXPECT_DEATH(ComputedRows::OfLayers({{.share = 0.6}, {.share = 0.6}}), "shares");
  EXPECT_DEATH(ComputedRows::OfLayers({{.slice = 1000}}), "slice");
  EXPECT_DEATH(ComputedRows::OfLayers({{.slice = 16, .least = 32}}), "least");
}

}  // namespace
}  // namespace sluice
