#include "client/history_view.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/buckets_view.h"
#include "client/table.h"

namespace sluice::client {
namespace {

namespace v1 = admin::v1;
using Buckets = google::protobuf::RepeatedPtrField<v1::Bucket>;

constexpr int kMaxCurveLines = 24;
constexpr int kBarWidth = 10;

std::vector<std::string> NamesOf(const Buckets& buckets) {
  std::vector<std::string> names;
  for (const v1::Bucket& bucket : buckets) names.push_back(BucketName(bucket));
  return names;
}

// Appends the names that `ladder` has and `other` lacks, with a sign before each.
void AppendMissing(const std::vector<std::string>& ladder, const std::vector<std::string>& other,
                   const char* sign, std::string* text) {
  for (const std::string& name : ladder) {
    if (std::ranges::find(other, name) == other.end()) absl::StrAppend(text, " ", sign, name);
  }
}

std::string LadderText(const std::vector<std::string>& before,
                       const std::vector<std::string>& ladder) {
  std::string text = Counted(std::ssize(ladder), "bucket", "buckets");
  if (before.empty()) return text;
  AppendMissing(ladder, before, "+", &text);
  AppendMissing(before, ladder, "-", &text);
  return text;
}

std::string ShareText(int64_t part, int64_t whole) {
  if (whole == 0) return "-";
  const double share = static_cast<double>(part) / static_cast<double>(whole);
  return absl::StrCat(Bar(share, kBarWidth), " ", Percent(share));
}

// Adds up intervals. Lengths and ladder come from the last one.
v1::HistoryStretch Joined(const v1::ModelBuckets& model, int begin, int end) {
  v1::HistoryStretch sum;
  for (int i = begin; i < end; ++i) {
    const v1::HistoryStretch& each = model.history(i);
    if (i == begin) sum.set_begin_age_seconds(each.begin_age_seconds());
    sum.set_batches(sum.batches() + each.batches());
    sum.set_hits(sum.hits() + each.hits());
    sum.set_useful_tokens(sum.useful_tokens() + each.useful_tokens());
    sum.set_bucket_tokens(sum.bucket_tokens() + each.bucket_tokens());
    sum.set_computed_tokens(sum.computed_tokens() + each.computed_tokens());
    sum.set_length_p50(each.length_p50());
    sum.set_length_p90(each.length_p90());
    sum.set_length_p99(each.length_p99());
    if (each.ladder_size() > 0) *sum.mutable_ladder() = each.ladder();
  }
  return sum;
}

}  // namespace

std::string HistoryText(const v1::ModelBuckets& model) {
  if (model.history().empty()) return "No history yet. It starts when the model is ready.\n";
  Table table({"SINCE", "BATCHES", "BUCKET FILL", "EXECUTED EFF", "HITS", "LENGTH P50", "P90",
               "P99", "LADDER"});
  const int size = model.history_size();
  const int lines = std::min(size, kMaxCurveLines);
  std::vector<std::string> ladder;
  for (int line = 0; line < lines; ++line) {
    const v1::HistoryStretch sum = Joined(model, line * size / lines, (line + 1) * size / lines);
    const std::vector<std::string> before = ladder;
    if (sum.ladder_size() > 0) ladder = NamesOf(sum.ladder());
    const auto length = [](int64_t tokens) {
      return tokens == 0 ? std::string("-") : absl::StrCat(tokens);
    };
    table.AddRow({AgeText(sum.begin_age_seconds()), absl::StrCat(sum.batches()),
                  ShareText(sum.useful_tokens(), sum.bucket_tokens()),
                  ShareText(sum.useful_tokens(), sum.computed_tokens()),
                  ShareText(sum.hits(), sum.batches()), length(sum.length_p50()),
                  length(sum.length_p90()), length(sum.length_p99()), LadderText(before, ladder)});
  }
  return table.Render();
}

}  // namespace sluice::client
