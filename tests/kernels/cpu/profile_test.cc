#include "kernels/cpu/profile.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/kernels/cpu/op_test.h"

namespace sluice::kernels {
namespace {

struct CapCase {
  const char* cap;
  InstructionSets has;
  InstructionSets kept;
};

TEST(ProfileTest, ACapOnlyRemovesInstructionSets) {
  constexpr InstructionSets kAvx2 = kHasAvx2;
  constexpr InstructionSets kAvx512 = kAvx2 | kHasAvx512;
  constexpr InstructionSets kVnni = kAvx512 | kHasAvx512Vnni;
  constexpr InstructionSets kBf16 = kVnni | kHasAvx512Bf16;
  constexpr InstructionSets kAmx = kBf16 | kHasAmxBf16 | kHasAmxInt8;
  constexpr InstructionSets kAvxVnni = kAvx2 | kHasAvxVnni;
  constexpr CapCase kCases[] = {
      {"", 0, 0},
      {"", kAvx2, kAvx2},
      {"", kAmx, kAmx},
      {"avx2", 0, 0},
      {"avx2", kAvx2, kAvx2},
      {"avx2", kAvx512, kAvx2},
      {"avx2", kBf16, kAvx2},
      {"avx2", kAmx, kAvx2},
      {"avx2", kAvxVnni, kAvx2},
      {"avxvnni", 0, 0},
      {"avxvnni", kAvx2, kAvx2},
      {"avxvnni", kAvxVnni, kAvxVnni},
      {"avxvnni", kAmx, kAvx2},
      {"avxvnni", kAmx | kHasAvxVnni, kAvxVnni},
      {"avx512", 0, 0},
      {"avx512", kAvxVnni, kAvx2},
      {"avx512", kAvx2, kAvx2},
      {"avx512", kAvx512, kAvx512},
      {"avx512", kVnni, kVnni},
      {"avx512", kBf16, kVnni},
      {"avx512", kAvx512 | kHasAvx512Bf16, kAvx512},
      {"avx512", kAmx, kVnni},
  };
  for (const auto& [cap, has, kept] : kCases) {
    EXPECT_EQ(Capped(has, cap).value(), kept) << "cap '" << cap << "' of sets " << has;
  }
}

TEST(ProfileTest, AnUnknownCapIsAnError) {
  for (const char* cap : {"avx", "AVX2", "avx2 ", "avx512,avx2", "none"}) {
    const absl::Status status = Capped(kHasAvx2, cap).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << cap;
    EXPECT_EQ(status.message(), "environment SLUICE_TEST_ISA: '" + std::string(cap) +
                                    "' is unknown; expected avx2, avxvnni or avx512");
  }
}

#ifndef __aarch64__
TEST(ProfileTest, Avx2MultipliesInt8ByAvxVnniIfTheProcessorHasIt) {
  if (!ProfileSupported(Profile::kAvx2F32)) GTEST_SKIP() << "not applicable: needs AVX2";
  if (Int8UnitOf(Profile::kAvx2F32) == Int8Unit::kPairsAvx2) {
    GTEST_SKIP() << "not applicable: needs AVX-VNNI";
  }
  EXPECT_EQ(Int8UnitOf(Profile::kAvx2F32), Int8Unit::kDotsAvx2);
  EXPECT_NE(Int8UnitOf(BestProfile()), Int8Unit::kPairsAvx2);
}
#endif

TEST(ProfileTest, ReportsTheProfilesThatThisMachineCannotTest) {
  for (Profile profile : kProfiles) {
    if (ProfileSupported(profile)) continue;
    std::printf("NOT TESTED HERE: %s (this machine lacks the instructions)\n",
                std::string(ProfileName(profile)).c_str());
  }
  EXPECT_TRUE(ProfileSupported(Profile::kPortableF32));
}

// Returns the error for the name of a profile that this machine cannot run.
absl::Status LacksInstructions(std::string_view name) {
  std::string error =
      "numerics profile '" + std::string(name) + "' needs instructions that this machine lacks";
  if (const char* const cap = std::getenv(kInstructionCapVariable); cap != nullptr && *cap != 0) {
    error.append(" or that SLUICE_TEST_ISA=").append(cap).append(" hides");
  }
  return absl::FailedPreconditionError(error + "; use auto or f32");
}

TEST(ProfileTest, ParsesTheNamesThatItPrints) {
  for (Profile profile : kProfiles) {
    const absl::StatusOr<Profile> parsed = ParseProfile(ProfileName(profile));
    if (ProfileSupported(profile)) {
      ASSERT_TRUE(parsed.ok()) << parsed.status();
      EXPECT_EQ(*parsed, profile);
    } else {
      EXPECT_EQ(parsed.status(), LacksInstructions(ProfileName(profile)));
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
    EXPECT_EQ(profile.status(), LacksInstructions("bf16"));
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
