#include "kernels/choose_diverse.h"

#include "tests/kernels/common/diverse_bodies.h"

namespace sluice::kernels {
namespace {

constexpr uint64_t kSeed = 20261124;

std::vector<int32_t> Choose(const DiverseCase& of) {
  const auto product = [&](int64_t i, int64_t j) {
    double sum = 0;
    for (int32_t d = 0; d < of.width; ++d) {
      sum += double{of.vectors[i * of.width + d]} * of.vectors[j * of.width + d];
    }
    return sum;
  };
  std::vector<int32_t> chosen(of.count);
  std::vector<double> scratch(DiverseScratch(of.pool(), of.count), NAN);
  ChooseDiverse(of.scores, of.diversity, product, chosen, scratch.data());
  return chosen;
}

std::vector<std::vector<int32_t>> ChooseAll(const std::vector<DiverseCase>& cases) {
  std::vector<std::vector<int32_t>> chosen;
  for (const DiverseCase& of : cases) chosen.push_back(Choose(of));
  return chosen;
}

TEST(DiverseTest, ChoicesEqualTheReference) {
  std::mt19937_64 random(kSeed);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  ExpectDiverseChoicesEqualReference(ChooseAll, random);
}

TEST(DiverseTest, NoDiversityKeepsTheOrder) {
  std::mt19937_64 random(kSeed);
  ExpectNoDiversityKeepsTheOrder(ChooseAll, random);
}

TEST(DiverseTest, ACandidateLikeTheChoiceComesLast) { ExpectTheLikeOfAChoiceComesLast(ChooseAll); }

TEST(DiverseTest, NoCandidatesHaveNoChoice) {
  EXPECT_TRUE(
      Choose({.scores = {}, .vectors = {}, .width = 3, .diversity = 1, .count = 0}).empty());
}

}  // namespace
}  // namespace sluice::kernels
