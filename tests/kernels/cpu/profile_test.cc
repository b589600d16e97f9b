#include "kernels/cpu/profile.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {
namespace {

TEST(ProfileTest, ReportsTheProfilesThatThisMachineCannotTest) {
  for (Profile profile : kProfiles) {
    if (ProfileSupported(profile)) continue;
    std::printf("NOT TESTED HERE: %s (this machine lacks the instructions)\n",
                std::string(ProfileName(profile)).c_str());
  }
  EXPECT_TRUE(ProfileSupported(Profile::kPortableF32));
}

TEST(ProfileTest, ParsesTheNamesThatItPrints) {
  for (Profile profile : kProfiles) {
    const absl::StatusOr<Profile> parsed = ParseProfile(ProfileName(profile));
    if (ProfileSupported(profile)) {
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(*parsed, profile);
    } else {
      EXPECT_EQ(parsed.status().code(), absl::StatusCode::kFailedPrecondition);
    }
  }
}

TEST(ProfileTest, F32IsTheLastSupportedF32Profile) {
  const Profile best = ParseProfile("f32").value();
  EXPECT_EQ(best, BestProfile());
  EXPECT_FALSE(MultipliesInBf16(best));
  for (const Profile profile : SupportedProfiles()) {
    EXPECT_TRUE(profile <= best || MultipliesInBf16(profile)) << ProfileName(profile);
  }
}

TEST(ProfileTest, AutoMultipliesInBF16WhereThatIsSupported) {
  const Profile chosen = ParseProfile("auto").value();
  EXPECT_TRUE(ProfileSupported(chosen));
  if (ProfileSupported(Profile::kAmxBf16)) {
    EXPECT_EQ(chosen, Profile::kAmxBf16);
  } else if (chosen != Profile::kAvx512Bf16) {
    EXPECT_EQ(chosen, BestProfile());
  }
  EXPECT_TRUE(chosen == BestProfile() || MultipliesInBf16(chosen));
}

TEST(ProfileTest, BF16IsTheLastSupportedProfileIfItMultipliesInBF16) {
  const absl::StatusOr<Profile> profile = ParseProfile("bf16");
  const Profile last = SupportedProfiles().back();
  if (MultipliesInBf16(last)) {
    EXPECT_EQ(profile.value(), last);
  } else {
    EXPECT_EQ(profile.status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(ProfileTest, AnUnknownNameListsTheKnownOnes) {
  const absl::Status status = ParseProfile("cpu-avx3").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  for (const char* word : {"cpu-avx3", "auto", "f32", "cpu-portable-f32", "cpu-avx2-f32",
                           "cpu-avx512-f32", "cpu-avx512-bf16", "cpu-amx-bf16"}) {
    EXPECT_NE(message.find(word), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace sluice::kernels
