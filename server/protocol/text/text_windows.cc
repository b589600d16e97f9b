#include "server/protocol/text/text_windows.h"

#include "base/check.h"

namespace sluice {
namespace {

// Appends the rows [first, end) of a window to the scores of the text.
void AppendRows(const std::vector<float>& scores, int64_t labels, int64_t first, int64_t end,
                std::vector<float>* out) {
  out->insert(out->end(), scores.begin() + first * labels, scores.begin() + end * labels);
}

void AppendMean(const std::vector<float>& scores, int64_t labels, int64_t first, int64_t windows,
                std::vector<float>* out) {
  for (int64_t label = 0; label < labels; ++label) {
    double sum = 0;
    for (int64_t window = first; window < first + windows; ++window) {
      sum += scores[window * labels + label];
    }
    out->push_back(static_cast<float>(sum / static_cast<double>(windows)));
  }
}

}  // namespace

std::vector<int32_t> LengthsOfTexts(const TextWindows& windows,
                                    const std::vector<int32_t>& lengths) {
  std::vector<int32_t> merged;
  const int32_t shared = windows.overlap + windows.before + windows.behind;
  auto window = lengths.begin();
  for (const int32_t count : windows.counts) {
    int32_t& length = merged.emplace_back(-(count - 1) * shared);
    for (int32_t i = 0; i < count; ++i) length += *window++;
  }
  SLUICE_CHECK(window == lengths.end());
  return merged;
}

std::shared_ptr<const RequestSpec> SpecOfTexts(const TextWindows& windows,
                                               const RequestSpec& spec) {
  const auto merged = std::make_shared<RequestSpec>(spec);
  merged->lengths = LengthsOfTexts(windows, spec.lengths);
  return merged;
}

Reply ReplyOfTexts(const TextWindows& windows, const RequestSpec& spec, const Reply& reply) {
  const int64_t labels = ServedClassifier(spec).labels;
  const int64_t to_first = windows.behind + windows.overlap / 2;
  const int64_t to_second = windows.before + windows.overlap - windows.overlap / 2;
  Reply merged;
  merged.finish.resize(windows.counts.size());
  int64_t window = 0, row = 0;  // the current window, and the current row of its tokens
  for (const int32_t count : windows.counts) {
    if (!reply.scores.empty()) AppendMean(reply.scores, labels, window, count, &merged.scores);
    for (int32_t i = 0; i < count; ++i) {
      const int64_t length = spec.lengths[window++];
      const int64_t first = row + (i == 0 ? 0 : to_second);
      const int64_t end = row + length - (i + 1 == count ? 0 : to_first);
      row += length;
      if (!reply.token_scores.empty()) {
        AppendRows(reply.token_scores, labels, first, end, &merged.token_scores);
      }
    }
  }
  return merged;
}

}  // namespace sluice
