#include "client/entities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(EntitiesTest, NeighboursOfOneTypeAreOneEntity) {
  EXPECT_THAT(EntitiesOf(std::vector<LabelledToken>{{"O", 0.9},  // has no bytes
                                                    {"B-PER", 0.5, 0, 4},
                                                    {"I-PER", 1.0, 5, 9},
                                                    {"O", 0.9, 10, 12},
                                                    {"I-PER", 0.25, 13, 17}}),
              ElementsAre(Entity{"PER", 0.75, 0, 9}, Entity{"PER", 0.25, 13, 17}));
}

TEST(EntitiesTest, AnotherTypeStartsAnotherEntity) {
  EXPECT_THAT(
      EntitiesOf(std::vector<LabelledToken>{
          {"I-LOC", 1, 0, 4}, {"I-ORG", 1, 5, 9}, {"date", 1, 10, 14}, {"date", 1, 15, 17}}),
      ElementsAre(Entity{"LOC", 1, 0, 4}, Entity{"ORG", 1, 5, 9}, Entity{"date", 1, 10, 17}));
}

TEST(EntitiesTest, ABeginLabelWithinAWordDoesNotStartAnEntity) {
  EXPECT_THAT(EntitiesOf(std::vector<LabelledToken>{
                  {"B-LOC", 1, 0, 4}, {"B-LOC", 1, 4, 6}, {"B-LOC", 1, 7, 9}}),
              ElementsAre(Entity{"LOC", 1, 0, 6}, Entity{"LOC", 1, 7, 9}));
}

TEST(EntitiesTest, TokensLabelledOFormNoEntity) {
  EXPECT_THAT(EntitiesOf({}), IsEmpty());
  EXPECT_THAT(EntitiesOf(std::vector<LabelledToken>{{"O", 1, 0, 4}, {"B-LOC", 1}}), IsEmpty());
}

}  // namespace
}  // namespace sluice::client
