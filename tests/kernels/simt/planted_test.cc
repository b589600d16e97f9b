// The features of device code, and the faults that the emulator catches. Each fault is planted in a
// kernel that works without it.
#include "tests/kernels/simt/planted_fixture.h"

#include <numeric>
#include <random>
#include <tuple>

namespace sluice::kernels::cuda::planted {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

std::vector<float> Ascending(int n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

TEST_P(PlantedTest, EveryElementIsVisitedOnceByAnyNumberOfBlocks) {
  const std::vector<float> in = Ascending(300);
  for (int32_t n : {0, 1, 63, 64, 65, 300}) {
    for (int32_t blocks : {1, 2, 7}) {
      float* out = lab_.Room<float>(300);
      AddCount(lab_.stream(), lab_.Put(in), lab_.Put<int32_t>({n}), blocks, out);
      const std::vector<float> got = n > 0 ? lab_.Get(out, n) : std::vector<float>();
      for (int32_t i = 0; i < n; ++i) EXPECT_EQ(got[i], in[i] + static_cast<float>(n));
      ASSERT_EQ(Fault(), "");
    }
  }
}

TEST_P(PlantedTest, AnIndexOutOfBoundsIsCaughtWithItsThread) {
  AddOneTooMany(lab_.stream(), lab_.Put(Ascending(70)), lab_.Put<int32_t>({70}), 2,
                lab_.Room<float>(70));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("kernel Add, block 1, thread 6"),
                             HasSubstr("up to 4 bytes past the end of a buffer of 280")));
}

TEST_P(PlantedTest, ReadingUnwrittenMemoryIsCaught) {
  AddCount(lab_.stream(), lab_.Room<float>(10), lab_.Put<int32_t>({10}), 1, lab_.Room<float>(10));
  EXPECT_THAT(Fault(), HasSubstr("reads unwritten memory"));
}

TEST_P(PlantedTest, AScalarFrozenAtCaptureGoesStaleAndOneOnTheDeviceDoesNot) {
  const float* in = lab_.Put(Ascending(8));
  int32_t* n = lab_.Put<int32_t>({4});
  float *fresh = lab_.Room<float>(8), *stale = lab_.Room<float>(8);
  lab_.stream().BeginCapture();
  AddCount(lab_.stream(), in, n, 1, fresh);
  AddFrozenCount(lab_.stream(), in, 4, 1, stale);
  auto graph = lab_.stream().EndCapture().value();

  lab_.Write<int32_t>(n, std::vector<int32_t>{8});
  lab_.stream().Run(*graph);
  EXPECT_EQ(lab_.Get(fresh, 8), (std::vector<float>{9, 10, 11, 12, 13, 14, 15, 16}));
  EXPECT_EQ(lab_.Get(stale, 4), (std::vector<float>{5, 6, 7, 8}));
  // The stale launch left elements unwritten, so the next read of them is caught.
  AddCount(lab_.stream(), stale, n, 1, fresh);
  EXPECT_THAT(Fault(), HasSubstr("reads unwritten memory"));
}

TEST_P(PlantedTest, AMissingBarrierIsCaughtInAnyOrderOfThreads) {
  float* out = lab_.Room<float>(128);
  Reverse(lab_.stream(), lab_.Put(Ascending(128)), Sync::kBlock, out);
  EXPECT_EQ(lab_.Get(out, 2), (std::vector<float>{128, 127}));
  ReverseInWarps(lab_.stream(), lab_.Put(Ascending(128)), Sync::kWarp, out);
  EXPECT_EQ(lab_.Get(out, 2), (std::vector<float>{32, 31}));
  ASSERT_EQ(Fault(), "");

  Reverse(lab_.stream(), lab_.Put(Ascending(128)), Sync::kNone, out);
  EXPECT_THAT(Fault(), AllOf(HasSubstr("kernel Reverse, block 0"),
                             testing::AnyOf(HasSubstr("reads unwritten memory"),
                                            HasSubstr("with no barrier between"))));
}

TEST_P(PlantedTest, ABarrierOfTheWarpDoesNotOrderOtherWarps) {
  Reverse(lab_.stream(), lab_.Put(Ascending(128)), Sync::kWarp, lab_.Room<float>(128));
  EXPECT_THAT(Fault(), testing::AnyOf(HasSubstr("with no barrier between"),
                                      HasSubstr("reads unwritten memory")));
}

TEST_P(PlantedTest, CollectivesExchangeTheLanesValues) {
  float* out = lab_.Room<float>(4);
  WarpSums(lab_.stream(), lab_.Put(Ascending(128)), out);
  EXPECT_EQ(lab_.Get(out, 4), (std::vector<float>{528, 1552, 2576, 3600}));
}

TEST_P(PlantedTest, ACollectiveThatLanesDoNotReachIsCaught) {
  ShuffleWithReturnedLanes(lab_.stream(), lab_.Put(Ascending(128)), lab_.Room<float>(4));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("LonelyShuffle"), HasSubstr("waits at the collective"),
                             HasSubstr("planted.cu"), HasSubstr("it has returned")));
}

TEST_P(PlantedTest, ADivergentBarrierIsCaught) {
  DivergentBarrier(lab_.stream(), true, lab_.Room<float>(128));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("waits at the barrier"), HasSubstr("it has returned")));
}

TEST_P(PlantedTest, BarriersAtDifferentPlacesAreCaught) {
  DivergentBarrier(lab_.stream(), false, lab_.Room<float>(128));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("waits at the barrier"), HasSubstr("it waits at")));
}

TEST_P(PlantedTest, AsynchronousCopiesArriveAndFillWithZeros) {
  const std::vector<float> in = Ascending(150);
  float* out = lab_.Room<float>(256);
  DoubleByCopies(lab_.stream(), lab_.Put(in), 150, Wait::kBeforeBarrier, out);
  const std::vector<float> got = lab_.Get(out, 256);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(got[i], i < 150 ? 2 * in[i] : 0) << i;
}

TEST_P(PlantedTest, ACopyNotWaitedForIsCaught) {
  DoubleByCopies(lab_.stream(), lab_.Put(Ascending(256)), 256, Wait::kNone, lab_.Room<float>(256));
  EXPECT_THAT(Fault(), HasSubstr("the target of an asynchronous copy"));
}

TEST_P(PlantedTest, AWaitWithoutABarrierDoesNotShowACopyToOtherThreads) {
  DoubleByCopies(lab_.stream(), lab_.Put(Ascending(256)), 256, Wait::kOnly, lab_.Room<float>(256));
  EXPECT_NE(Fault(), "");
}

TEST_P(PlantedTest, BulkCopiesArriveInPhases) {
  const std::vector<float> in = Ascending(256);
  for (const BulkUse use : {BulkUse::kRight, BulkUse::kByWarps, BulkUse::kWritten}) {
    float* out = lab_.Room<float>(256);
    DoubleInBulk(lab_.stream(), lab_.Put(in), use, out);
    const std::vector<float> got = lab_.Get(out, 256);
    for (int i = 0; i < 256; ++i) EXPECT_EQ(got[i], 2 * in[i / 128 * 128 + 127 - i % 128]) << i;
  }
}

TEST_P(PlantedTest, FaultsOfBulkCopiesAreCaught) {
  // The order of the threads decides which of several faults comes first.
  const char *const unwritten = "unwritten memory", *const unseen = "has not waited for";
  const std::tuple<BulkUse, const char*, const char*> faults[] = {
      {BulkUse::kWaitInOneThread, unwritten, unseen},
      {BulkUse::kNoWait, unwritten, unseen},
      {BulkUse::kNoBarrierBeforeInit, unwritten, "an arrival that no thread prepared"},
      {BulkUse::kNoBarrierBetween, "after the next one started", "with no barrier between"},
      {BulkUse::kHalfTheBlock, "for copies that not all threads start", ""},
      {BulkUse::kNoWaitAtTheEnd, "ends before its bulk copies have arrived", ""},
      {BulkUse::kByOthers, "by other threads than the arrival was prepared for", ""},
      {BulkUse::kWrittenUnshared, "wrote and has not shared with copies before a barrier", ""},
      {BulkUse::kSharedTooLate, "wrote and has not shared with copies before a barrier", ""},
  };
  for (const auto& [use, what, or_what] : faults) {
    DeviceLab lab(simt::MakeSimtDevice({.seed = GetParam()}));
    DoubleInBulk(lab.stream(), lab.Put(Ascending(256)), use, lab.Room<float>(256));
    const std::string fault(lab.Finish().message());
    EXPECT_THAT(fault, HasSubstr("kernel Bulk")) << static_cast<int>(use);
    const bool named = fault.find(what) != std::string::npos ||
                       (*or_what != '\0' && fault.find(or_what) != std::string::npos);
    EXPECT_TRUE(named) << static_cast<int>(use) << ": " << fault;
  }
}

TEST_P(PlantedTest, ABulkCopyFromOrToAnOddAddressIsCaught) {
  DoubleInBulk(lab_.stream(), lab_.Put(Ascending(257)) + 1, BulkUse::kRight, lab_.Room<float>(256));
  EXPECT_THAT(Fault(), HasSubstr("copies in bulk from or to a misaligned address"));
}

TEST_P(PlantedTest, SharedMemoryIsAlignedFromLaunchToLaunch) {
  for (int i = 0; i < 3; ++i) {
    auto* out = lab_.Room<int32_t>(1 + 64 * i);
    PlaceOfShared(lab_.stream(), out);
    EXPECT_EQ(lab_.Get(out, 1)[0], 0);
  }
}

TEST_P(PlantedTest, FencesShowSumsToTheLastBlock) {
  float* out = lab_.Room<float>(1);
  SumOverBlocks(lab_.stream(), lab_.Put(Ascending(64 * 5)), 5, FenceUse::kRight,
                lab_.Room<float>(5), lab_.Put<int32_t>({0}), out);
  EXPECT_EQ(lab_.Get(out, 1)[0], 320 * 321 / 2);
}

TEST_P(PlantedTest, AMissingFenceIsCaught) {
  for (const FenceUse use : {FenceUse::kNotBefore, FenceUse::kNotAfter, FenceUse::kBeforeTheBarrier,
                             FenceUse::kNoBarrierAfter}) {
    DeviceLab lab(simt::MakeSimtDevice({.seed = GetParam()}));
    SumOverBlocks(lab.stream(), lab.Put(Ascending(64 * 5)), 5, use, lab.Room<float>(5),
                  lab.Put<int32_t>({0}), lab.Room<float>(1));
    EXPECT_THAT(std::string(lab.Finish().message()),
                AllOf(HasSubstr("kernel Sum"), testing::AnyOf(HasSubstr("with no barrier between"),
                                                              HasSubstr("unwritten memory"))))
        << static_cast<int>(use);
  }
}

TEST_P(PlantedTest, ALaunchThatWaitsMayOverlapTheOneBefore) {
  float* values = lab_.Put(Ascending(128));
  AddIndexOverlapping(lab_.stream(), WaitPlace::kFirst, values);
  const std::vector<float> got = lab_.Get(values, 128);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(got[i], static_cast<float>(2 * i + 1));
}

TEST_P(PlantedTest, AnOverlappingLaunchThatWaitsTooLateOrNeverIsCaught) {
  for (const WaitPlace place : {WaitPlace::kAfterReading, WaitPlace::kAfterWriting,
                                WaitPlace::kInHalfTheBlock, WaitPlace::kNowhere}) {
    DeviceLab lab(simt::MakeSimtDevice({.seed = GetParam()}));
    AddIndexOverlapping(lab.stream(), place, lab.Put(Ascending(128)));
    const bool touches = place == WaitPlace::kAfterReading || place == WaitPlace::kAfterWriting;
    EXPECT_THAT(std::string(lab.Finish().message()),
                AllOf(HasSubstr("kernel Overlap"),
                      HasSubstr(touches ? "touches global memory before it has waited"
                                        : "ends without waiting for the launch before")));
  }
}

TEST_P(PlantedTest, WideAccessesMoveAllBytes) {
  const std::vector<float> in = Ascending(128);
  float* out = lab_.Room<float>(128);
  MoveByFours(lab_.stream(), lab_.Put(in), out);
  EXPECT_EQ(lab_.Get(out, 128), in);
}

TEST_P(PlantedTest, AWideReadAtAnAddressThatIsNotAlignedIsCaught) {
  MoveByFours(lab_.stream(), lab_.Put(Ascending(130)) + 1, lab_.Room<float>(128));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("kernel Move"), HasSubstr("16 bytes at an address")));
}

TEST_P(PlantedTest, AWideWriteAtAnAddressThatIsNotAlignedIsCaught) {
  MoveByFours(lab_.stream(), lab_.Put(Ascending(128)), lab_.Room<float>(130) + 2);
  EXPECT_THAT(Fault(), AllOf(HasSubstr("kernel Move"), HasSubstr("16 bytes at an address")));
}

TEST_P(PlantedTest, AWideAccessBeyondTheEndIsCaught) {
  MoveByFours(lab_.stream(), lab_.Put(Ascending(128)), lab_.Room<float>(127));
  EXPECT_THAT(Fault(), HasSubstr("up to 4 bytes past the end"));
}

TEST_P(PlantedTest, AtomicAdditionsAddUpAndPlainOnesRace) {
  int32_t* counter = lab_.Put<int32_t>({5});
  Count(lab_.stream(), true, 3, counter);
  EXPECT_EQ(lab_.Get(counter, 1)[0], 5 + 3 * 64);
  Count(lab_.stream(), false, 3, counter);
  EXPECT_THAT(Fault(), AllOf(HasSubstr("kernel Count"), HasSubstr("no barrier between")));
}

TEST_P(PlantedTest, LanesAreMatched) {
  std::mt19937_64 random(GetParam());
  std::vector<uint32_t> in(32);
  for (uint32_t& value : in) value = random() % 7 + (random() % 2 == 0 ? 0xFFFFFF00u : 0);
  auto* const equal = lab_.Room<int32_t>(32);
  MatchLanesOf(lab_.stream(), lab_.Put(in), false, equal);
  const std::vector<int32_t> got = lab_.Get(equal, 32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(got[i], std::ranges::count(in, in[i])) << i;
}

TEST_P(PlantedTest, AMatchThatLanesDoNotReachIsCaught) {
  std::vector<uint32_t> in(32, 5);
  in[9] = 0;
  MatchLanesOf(lab_.stream(), lab_.Put(in), true, lab_.Room<int32_t>(32));
  EXPECT_THAT(Fault(), AllOf(HasSubstr("kernel Match"), HasSubstr("waits at the collective"),
                             HasSubstr("it has returned")));
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlantedTest, testing::Values(1, 2, 3, 4, 5));

}  // namespace
}  // namespace sluice::kernels::cuda::planted
