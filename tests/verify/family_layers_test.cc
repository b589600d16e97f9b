// Compares every layer of each family with what transformers computes (tests/goldens/families), as
// `sluice verify` does.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/model.h"
#include "tests/support/golden_file.h"
#include "verify/comparison.h"

namespace sluice::verify {
namespace {

using sluice::testing::FamilyGoldens;
using sluice::testing::GoldenFile;
using sluice::testing::GoldenPath;

constexpr double kTolerance = 1e-5;
// The tolerance of logits and scores, in which the errors of a state's features add up.
constexpr double kHeadTolerance = 2e-5;

// Returns rows of sequences, one behind the other, as [n, longest, width].
Array Padded(const GoldenFile& file, const std::string& name, const std::vector<int32_t>& lengths) {
  const std::vector<float> values = file.Floats(name);
  const int64_t width = file.Shape(name)[1];
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  Array array = {.shape = {std::ssize(lengths), longest, width}, .values = {}};
  auto from = values.begin();
  for (const int32_t length : lengths) {
    array.values.insert(array.values.end(), from, from + length * width);
    array.values.resize(array.values.size() + (longest - length) * width);
    from += length * width;
  }
  return array;
}

class FamilyLayersTest : public ::testing::TestWithParam<std::string> {};

TEST_P(FamilyLayersTest, EveryLayerEqualsThatOfTransformers) {
  const std::string name = "families/" + GetParam();
  const auto model = LoadModel(name, 1, GoldenPath(name));
  ASSERT_TRUE(model.ok()) << model.status();
  const GoldenFile file(GoldenPath(name + "/expected.safetensors"));
  const std::vector<int32_t> lengths = file.Ints("lengths"), ids = file.Ints("input_ids");
  Golden golden;
  auto first = ids.begin();
  for (const int32_t length : lengths) {
    golden.sequences.emplace_back(first, first + length);
    first += length;
  }
  const int64_t layers = (*model)->config.layers;
  for (int64_t k = 0; k <= layers; ++k) {
    const std::string state = "state_" + std::to_string(k);
    golden.outputs[state] = Padded(file, state, lengths);
  }
  if (file.Has("states")) golden.outputs["final"] = Padded(file, "states", lengths);
  for (const char* const output : {"logits", "token_scores"}) {
    if (file.Has(output)) golden.outputs[output] = Padded(file, output, lengths);
  }
  if (file.Has("scores")) {
    const std::vector<float> scores = file.Floats("scores");
    golden.sequence_outputs["scores"] = {.shape = file.Shape("scores"),
                                         .values = {scores.begin(), scores.end()}};
  }
  const auto comparison = Compare(*model, golden, {});
  ASSERT_TRUE(comparison.ok()) << comparison.status();
  EXPECT_TRUE(comparison->unknown.empty());
  EXPECT_TRUE(comparison->unproven.empty());
  EXPECT_EQ(comparison->missing_answer, "");
  EXPECT_GT(std::ssize(comparison->outputs), layers);
  for (const Worst& worst : comparison->outputs) {
    EXPECT_LE(worst.error, worst.name.starts_with("state_") ? kTolerance : kHeadTolerance)
        << worst.name << " of sequence " << worst.sequence << " at " << worst.position << ": "
        << worst.got << ", not " << worst.want;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyLayersTest, ::testing::ValuesIn(FamilyGoldens()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace sluice::verify
