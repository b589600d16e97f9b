#include "server/protocol/text/text_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_backend.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

RequestSpec SpecOf(const std::vector<int32_t>& lengths, int64_t labels) {
  ModelConfig config = FakeConfig();
  config.serving.classifier.labels = labels;
  RequestSpec spec;
  spec.model = FakeModel(config);
  spec.lengths = lengths;
  return spec;
}

// A text of 7 tokens in windows of 4, with one template token before and two after, and a text of
// 1. Windows 0, 1 and 2 have the tokens 0 to 3, 2 to 5 and 4 to 6.
TEST(TextWindowsTest, TokensHaveTheScoresOfTheWindowWithMoreContext) {
  const TextWindows windows{.counts = {3, 1}, .overlap = 2, .before = 1, .behind = 2};
  const RequestSpec spec = SpecOf({7, 7, 6, 4}, 1);
  EXPECT_THAT(LengthsOfTexts(windows, spec.lengths), ElementsAre(10, 4));
  EXPECT_THAT(SpecOfTexts(windows, spec)->lengths, ElementsAre(10, 4));
  Reply reply;
  reply.token_scores = {10, 0,   1,   2,   3,   11, 12,  // window 0
                        20, 102, 103, 104, 105, 21, 22, 30, 204, 205, 206, 31, 32, 40, 300, 41, 42};
  EXPECT_THAT(ReplyOfTexts(windows, spec, reply).token_scores,
              ElementsAre(10, 0, 1, 2, 103, 104, 205, 206, 31, 32, 40, 300, 41, 42));
}

TEST(TextWindowsTest, TheMiddleOfAnOddOverlapBelongsToTheFirstWindow) {
  const TextWindows windows{.counts = {2}, .overlap = 1};
  const RequestSpec spec = SpecOf({3, 2}, 2);
  Reply reply;
  reply.token_scores = {0, 1, 2, 3, 4, 5, 14, 15, 6, 7};
  EXPECT_THAT(ReplyOfTexts(windows, spec, reply).token_scores, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(TextWindowsTest, TextsHaveTheMeanScoresOfTheirWindows) {
  const TextWindows windows{.counts = {2, 1}, .overlap = 1};
  const RequestSpec spec = SpecOf({4, 4, 2}, 2);
  Reply reply;
  reply.scores = {1, 2, 3, 6, 5, 7};
  EXPECT_THAT(ReplyOfTexts(windows, spec, reply).scores, ElementsAre(2, 4, 5, 7));
}

}  // namespace
}  // namespace sluice
