#include "client/history_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"

namespace sluice::client {
namespace {

namespace v1 = admin::v1;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void AddBucket(int32_t tokens, v1::HistoryStretch* stretch) {
  v1::Bucket* const bucket = stretch->add_ladder();
  bucket->set_tokens(tokens);
  bucket->set_rows(4);
}

// Returns a model of `minutes` intervals with one batch each. Its bucket 32x4 becomes 48x4 at
// minute `changes_at`.
v1::ModelBuckets ModelOf(int minutes, int changes_at) {
  v1::ModelBuckets model;
  for (int i = 0; i < minutes; ++i) {
    v1::HistoryStretch* const each = model.add_history();
    each->set_begin_age_seconds(60 * (minutes - i));
    each->set_end_age_seconds(60 * (minutes - i - 1));
    each->set_batches(1);
    each->set_hits(1);
    each->set_useful_tokens(i < changes_at ? 16 : 48);
    each->set_computed_tokens(each->useful_tokens());
    each->set_bucket_tokens(i < changes_at ? 32 : 48);
    each->set_length_p50(10 + i);
    if (i == 0 || i == changes_at) {
      AddBucket(i == 0 ? 32 : 48, each);
      AddBucket(64, each);
    }
  }
  return model;
}

std::vector<std::string> Lines(const v1::ModelBuckets& model) {
  return absl::StrSplit(HistoryText(model), '\n', absl::SkipEmpty());
}

TEST(HistoryText, HasALineForEachIntervalAndTheLadderChanges) {
  const std::vector<std::string> lines = Lines(ModelOf(3, 2));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[1], AllOf(HasSubstr("3 min"), HasSubstr("50.0%"), HasSubstr("2 buckets"),
                              HasSubstr(" 10 "), Not(HasSubstr("+"))));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("50.0%"), Not(HasSubstr("+"))));
  EXPECT_THAT(lines[3], AllOf(HasSubstr("2 buckets +48x4 -32x4"), HasSubstr("[##########] 100.0%"),
                              HasSubstr(" 12 ")));
}

TEST(HistoryText, JoinsNeighboursIfThereAreMoreIntervalsThanLines) {
  const std::vector<std::string> lines = Lines(ModelOf(240, 5));
  ASSERT_EQ(lines.size(), 25u);
  // Ten minutes: 5 x 16 and 5 x 48 useful tokens in 5 x 32 and 5 x 48.
  EXPECT_THAT(lines[1], AllOf(HasSubstr("4 h"), HasSubstr("80.0%"), HasSubstr(" 10 "),
                              HasSubstr("2 buckets"), Not(HasSubstr("+"))));
  EXPECT_THAT(lines[2], AllOf(HasSubstr("100.0%"), Not(HasSubstr("+"))));
  EXPECT_THAT(lines[24], HasSubstr(" 249 "));
}

TEST(HistoryText, ReportsAMissingHistory) {
  EXPECT_THAT(HistoryText({}), HasSubstr("No history yet"));
  v1::ModelBuckets idle;
  AddBucket(64, idle.add_history());
  EXPECT_THAT(HistoryText(idle), AllOf(HasSubstr("1 bucket"), Not(HasSubstr("%"))));
}

}  // namespace
}  // namespace sluice::client
