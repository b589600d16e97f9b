#include "cascades/probe_runs.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

namespace sluice {
namespace {

using kernels::Profile;
using kernels::ProfileSupported;

TEST(Probe, ReturnsTheAmountOfWork) {
  alignas(64) const std::array<std::byte, 1024> memory{};
  for (const Profile profile : kernels::kProfiles) {
    if (!ProfileSupported(profile)) continue;
    SCOPED_TRACE(ProfileName(profile));
    EXPECT_GT(RunMultiplyAdds(profile, 1), 0);
    EXPECT_EQ(RunMultiplyAdds(profile, 6), 6 * RunMultiplyAdds(profile, 1));
    EXPECT_GT(RunInt8MultiplyAdds(profile, 1), RunMultiplyAdds(profile, 1));
    EXPECT_EQ(RunInt8MultiplyAdds(profile, 6), 6 * RunInt8MultiplyAdds(profile, 1));
    EXPECT_EQ(RunReads(profile, memory.data(), 1024), 1024);
    EXPECT_EQ(RunReads(profile, memory.data(), 1023), 768);
    EXPECT_EQ(RunReads(profile, memory.data(), 255), 0);
    EXPECT_GT(RunExponentials(profile, 1), 0);
    EXPECT_EQ(RunExponentials(profile, 3), 3 * RunExponentials(profile, 1));
  }
}

TEST(Probe, WiderProfilesDoMoreWorkAStep) {
  EXPECT_EQ(RunMultiplyAdds(Profile::kPortableF32, 1), 2 * 4 * 12);
  if (ProfileSupported(Profile::kAvx2F32)) {
    EXPECT_EQ(RunMultiplyAdds(Profile::kAvx2F32, 1), 2 * 8 * 12);
  }
  if (ProfileSupported(Profile::kAvx512F32)) {
    EXPECT_EQ(RunMultiplyAdds(Profile::kAvx512F32, 1), 2 * 16 * 12);
  }
}

TEST(Probe, ALaunchEndsWithAnyNumberOfThreads) {
  for (const int threads : {1, 2, 5}) {
    kernels::ThreadPool pool(threads);
    for (int i = 0; i < 20; ++i) RunLaunch(&pool);
  }
}

}  // namespace
}  // namespace sluice
