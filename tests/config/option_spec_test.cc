#include "base/option_spec.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "config/option.h"
#include "engine/option_specs.h"
#include "server/common/option_specs.h"

namespace sluice {
namespace {

struct NoMembers {};
struct FourMembers {
  std::string text = "a";
  std::vector<int32_t> list{};
  ReviewOptions section;
  double number = 1;
};

TEST(MemberCount, CountsASectionOnce) {
  static_assert(MemberCount<NoMembers>() == 0);
  static_assert(MemberCount<FourMembers>() == 4);
  static_assert(MemberCount<EngineOptions>() == 7);
}

// The names of the members in the specs of S. A section counts as one member.
template <typename S>
std::set<std::string> NamedMembers() {
  std::set<std::string> names;
  for (const OptionSpec<S>& spec : OptionSpecs<S>()) {
    names.insert(spec.path.substr(0, spec.path.find('.')));
  }
  return names;
}

template <typename S>
class OptionStruct : public testing::Test {};

using AllOptionStructs =
    testing::Types<ReviewOptions, LadderOptions, BatchOptions, QueueOptions, WatchdogOptions,
                   KvOptions, HistoryOptions, EngineOptions, CpuOptions, CudaOptions, ModelSpec,
                   ConnectionOptions, GrpcOptions, AdminOptions, TlsOptions, AuthOptions,
                   RateOptions, SecretsOptions, MetricsOptions, HttpOptions, LogOptions,
                   LifecycleOptions, ServerOptions>;
TYPED_TEST_SUITE(OptionStruct, AllOptionStructs);

TYPED_TEST(OptionStruct, HasASpecForEachMember) {
  EXPECT_EQ(NamedMembers<TypeParam>().size(), MemberCount<TypeParam>());
}

TYPED_TEST(OptionStruct, HasNoPathTwice) {
  std::set<std::string> paths;
  for (const OptionSpec<TypeParam>& spec : OptionSpecs<TypeParam>()) {
    EXPECT_TRUE(paths.insert(spec.path).second) << spec.path;
  }
}

// A model has no default for its name and path.
TYPED_TEST(OptionStruct, HasDefaultsInTheirRanges) {
  for (const OptionSpec<TypeParam>& spec : OptionSpecs<TypeParam>()) {
    TypeParam options;
    const OptionValue value = spec.get(options);
    if (std::same_as<TypeParam, ModelSpec> && value == OptionValue("")) continue;
    EXPECT_TRUE(spec.set(value, &options)) << spec.path;
    EXPECT_EQ(spec.get(options), value) << spec.path;
  }
}

TYPED_TEST(OptionStruct, RefusesNumbersJustOutsideTheRange) {
  for (const OptionSpec<TypeParam>& spec : OptionSpecs<TypeParam>()) {
    SCOPED_TRACE(spec.path);
    TypeParam options;
    const std::string before = spec.format(options);
    if (spec.integer.has_value()) {
      EXPECT_FALSE(spec.set(spec.integer->min - 1, &options));
      EXPECT_FALSE(spec.set(spec.integer->max + 1, &options));
      EXPECT_FALSE(spec.parse(absl::StrCat(spec.integer->max + 1), &options));
      EXPECT_FALSE(spec.set(0.5, &options));
    }
    if (spec.real.has_value()) {
      EXPECT_FALSE(spec.set(spec.real->min - 1, &options));
      EXPECT_FALSE(spec.set(spec.real->max * 2, &options));
      EXPECT_FALSE(spec.set(std::numeric_limits<double>::quiet_NaN(), &options));
    }
    EXPECT_EQ(spec.format(options), before);
  }
}

// The list of models is left out, because it is read separately.
TEST(ConfigSpecs, NameEachMember) {
  EXPECT_EQ(NamedMembers<Config>().size() + 1, MemberCount<Config>());
}

TEST(OptionSpec, ReachesAMemberOfASection) {
  const OptionSpec<EngineOptions>& spec = OptionSpecOf<EngineOptions>("ladder.review.min_gain");
  EXPECT_EQ(spec.Flag(), "--ladder.review.min-gain");
  EngineOptions options;
  ASSERT_TRUE(spec.parse("0.25", &options));
  EXPECT_EQ(options.ladder.review.min_gain, 0.25);
  EXPECT_EQ(spec.get(options), OptionValue(0.25));
  EngineOptions other;
  spec.copy(options, &other);
  EXPECT_EQ(other.ladder.review.min_gain, 0.25);
}

TEST(FormatOptions, WritesLinesOfYaml) {
  BatchOptions batch;
  batch.max_queue_delay_us = 2000;
  EXPECT_EQ(FormatOptions(batch, {"policy", "max_queue_delay"}, /*indent=*/2),
            "  policy: packed\n  max_queue_delay: 2ms\n");
}

}  // namespace
}  // namespace sluice
