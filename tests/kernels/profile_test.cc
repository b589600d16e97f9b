#include "kernels/cpu/profile.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/kernels/op_test.h"

namespace sluice::kernels {
namespace {

TEST(ProfileTest, SaysWhichProfilesTheTestsOfThisBinaryLeaveOut) {
  for (Profile profile : {Profile::kPortableF32, Profile::kAvx2F32, Profile::kAvx512F32}) {
    if (ProfileSupported(profile)) continue;
    std::printf("NOT TESTED HERE: %s (this machine lacks the instructions)\n",
                std::string(ProfileName(profile)).c_str());
  }
  EXPECT_TRUE(ProfileSupported(Profile::kPortableF32));
}

TEST(ProfileTest, ParsesTheNamesThatItPrints) {
  for (Profile profile : {Profile::kPortableF32, Profile::kAvx2F32, Profile::kAvx512F32}) {
    const absl::StatusOr<Profile> parsed = ParseProfile(ProfileName(profile));
    if (ProfileSupported(profile)) {
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(*parsed, profile);
    } else {
      EXPECT_EQ(parsed.status().code(), absl::StatusCode::kFailedPrecondition);
    }
  }
}

TEST(ProfileTest, AutoIsTheLastSupported) {
  EXPECT_EQ(ParseProfile("auto").value(), BestProfile());
  EXPECT_EQ(BestProfile(), SupportedProfiles().back());
}

TEST(ProfileTest, AnUnknownNameListsTheKnownOnes) {
  const absl::Status status = ParseProfile("cpu-avx3").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  for (const char* word :
       {"cpu-avx3", "auto", "cpu-portable-f32", "cpu-avx2-f32", "cpu-avx512-f32"}) {
    EXPECT_NE(message.find(word), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace sluice::kernels
