// Compares each family of checkpoints, with weights in bf16 and by the profiles that multiply in
// bf16, with the reference in double of the same weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/model/model.h"
#include "kernels/cuda/bfloat16.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/golden_file.h"
#include "tests/support/reference_model.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {
namespace {

// The largest error of states and logits, as a root mean square relative to the output's, by the
// beginning of a profile's name. A CPU rounds only factors; a GPU keeps all activations in bf16.
struct Bound {
  std::string_view profile;
  double error;
};
constexpr Bound kBounds[] = {{"cpu", 1.5e-2}, {"cuda", 3e-2}};

double BoundOf(std::string_view profile) {
  const auto* const bound = std::ranges::find_if(
      kBounds, [profile](const Bound& each) { return profile.starts_with(each.profile); });
  return bound->error;
}

// Writes the model of a golden with its weights rounded to bf16.
void WriteInBf16(const std::string& golden, const std::string& directory) {
  std::filesystem::copy_file(GoldenPath(golden + "/config.json"), directory + "/config.json");
  const auto model = LoadModel(golden, 1, GoldenPath(golden));
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<TensorBytes> tensors;
  for (const auto& [name, tensor] : (*model)->checkpoint.tensors()) {
    TensorBytes& rounded = tensors.emplace_back(TensorBytes{name, "BF16", tensor.shape, ""});
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const float value = kernels::LoadAsFloat(tensor.data, tensor.dtype, i);
      const auto narrow = kernels::cuda::Narrow<kernels::cuda::BFloat16>(value);
      rounded.data.append(reinterpret_cast<const char*>(&narrow.bits), sizeof(narrow.bits));
    }
  }
  WriteTestFile(directory + "/model.safetensors", SafetensorsFile(tensors));
}

// Adds up squares of errors and of values, by row.
class Squares {
 public:
  // Adds `rows` rows.
  void Add(const std::vector<float>& got, const std::vector<double>& want, size_t rows) {
    ASSERT_EQ(got.size(), want.size());
    const size_t width = got.size() / rows;
    for (size_t i = 0; i < got.size(); ++i) {
      if (i % width == 0) errors_.push_back(0);
      errors_.back() += (got[i] - want[i]) * (got[i] - want[i]);
      values_ += want[i] * want[i];
    }
  }
  // Leaves out the rows with the largest errors, `share` of all.
  void LeaveOut(double share) {
    std::ranges::sort(errors_);
    errors_.resize(errors_.size() - static_cast<size_t>(share * std::ssize(errors_)));
  }
  double relative() const {
    const double errors = std::accumulate(errors_.begin(), errors_.end(), 0.0);
    return std::sqrt(errors / std::max(values_, 1e-30));
  }

 private:
  std::vector<double> errors_;
  double values_ = 0;
};

class FamilyBf16Test : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(FamilyBf16Test, StatesAndLogitsAreWithinTheTable) {
  const auto& [name, profile] = GetParam();
  const std::string golden = "families/" + name;
  const TemporaryDirectory directory;
  WriteInBf16(golden, directory.path());
  const auto model = LoadModel(name, 1, directory.path());
  ASSERT_TRUE(model.ok()) << model.status();
  const GoldenFile expected(GoldenPath(golden + "/expected.safetensors"));
  const std::vector<int32_t> ids = expected.Ints("input_ids");
  std::vector<std::vector<int32_t>> sequences;
  auto first = ids.begin();
  for (const int32_t length : expected.Ints("lengths")) {
    sequences.emplace_back(first, first + length);
    first += length;
  }
  Runner runner(*model, {.threads = 2, .profile = profile, .poison = true},
                {static_cast<int32_t>(ids.size()), static_cast<int32_t>(sequences.size())});
  const std::vector<Answer> answers = runner.Run(sequences);
  Squares states, logits;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const ReferenceAnswer want = RunReference(**model, sequences[s]);
    states.Add(answers[s].states, want.output, sequences[s].size());
    logits.Add(answers[s].logits, want.logits, sequences[s].size());
  }
  if ((*model)->config.experts.count > 0) {
    // A rounded row whose logits are close may have another expert, and a wholly different state.
    states.LeaveOut(0.1);
    logits.LeaveOut(0.1);
  }
  RecordProperty("states", std::to_string(states.relative()));
  EXPECT_LE(states.relative(), BoundOf(profile));
  EXPECT_LE(logits.relative(), BoundOf(profile));
  EXPECT_GT(states.relative(), 1e-6) << "nothing was rounded";
}

std::vector<std::string> Bf16Profiles() {
  std::vector<std::string> profiles = SupportedProfiles();
  std::erase_if(profiles, [](const std::string& name) { return !name.ends_with("-bf16"); });
  return profiles;
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyBf16Test,
                         ::testing::Combine(::testing::ValuesIn(EffortOfTests().families),
                                            ::testing::ValuesIn(Bf16Profiles())),
                         [](const auto& test) {
                           return TestName(std::get<0>(test.param) + "_" + std::get<1>(test.param));
                         });
// A machine may have no profile that multiplies in bf16.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FamilyBf16Test);

}  // namespace
}  // namespace sluice::testing
