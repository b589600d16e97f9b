#include "engine/journal/machine_pace.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/container/btree_map.h"

namespace sluice {
namespace {

int64_t WindowOf(nanoseconds since) { return since / MachinePace::kWindow; }

// Returns the mean pace of each window, from the spans that begin in it.
absl::btree_map<int64_t, double> PaceOfWindows(const std::vector<WorkSpan>& spans) {
  absl::btree_map<int64_t, std::pair<double, double>> sums;  // measured and expected seconds
  for (const WorkSpan& span : spans) {
    auto& [took, expected] = sums[WindowOf(span.begin)];
    took += span.seconds;
    expected += span.expected_seconds;
  }
  absl::btree_map<int64_t, double> pace;
  for (const auto& [window, sum] : sums) pace[window] = sum.first / sum.second;
  return pace;
}

}  // namespace

MachinePace::MachinePace(std::vector<WorkSpan> spans) {
  std::erase_if(spans, [](const WorkSpan& span) {
    return !(span.seconds > 0 && span.expected_seconds > 0 && span.begin < span.end &&
             span.begin >= nanoseconds::zero());
  });
  if (spans.empty()) return;
  std::ranges::stable_sort(spans, {}, &WorkSpan::begin);
  const absl::btree_map<int64_t, double> windows = PaceOfWindows(spans);
  const auto between_spans = [&](nanoseconds since) {
    const auto next = windows.upper_bound(WindowOf(since));
    return next == windows.begin() ? next->second : std::prev(next)->second;
  };
  nanoseconds at{};
  knots_.push_back({0, 0});
  const auto go_on = [&](nanoseconds until, double pace) {
    if (until <= at) return;
    const auto time = static_cast<double>((until - std::exchange(at, until)).count());
    knots_.push_back({knots_.back().time + time, knots_.back().work + time / pace});
  };
  for (size_t i = 0; i < spans.size(); ++i) {
    const WorkSpan& span = spans[i];
    const nanoseconds next = i + 1 < spans.size() ? spans[i + 1].begin : nanoseconds::max();
    go_on(span.begin, between_spans(at));
    go_on(std::min(span.end, next), span.seconds / span.expected_seconds);
  }
}

double MachinePace::At(double Knot::*from, double value, double Knot::*to) const {
  const double runs = std::floor(value / knots_.back().*from);
  value = std::max(0.0, value - runs * knots_.back().*from);  // rounding may make it negative
  auto next = std::ranges::upper_bound(knots_, value, {}, from);
  if (next == knots_.end()) --next;
  const Knot &high = *next, &low = *std::prev(next);
  const double share = (value - low.*from) / (high.*from - low.*from);
  return runs * knots_.back().*to + low.*to + share * (high.*to - low.*to);
}

nanoseconds MachinePace::Stretch(nanoseconds since, nanoseconds work) const {
  if (knots_.empty()) return work;
  const auto begin = static_cast<double>(since.count());
  const double done = At(&Knot::time, begin, &Knot::work) + static_cast<double>(work.count());
  return nanoseconds(std::llround(At(&Knot::work, done, &Knot::time) - begin));
}

double MachinePace::Between(nanoseconds begin, nanoseconds end) const {
  if (knots_.empty()) return 1;
  const auto from = static_cast<double>(begin.count()), to = static_cast<double>(end.count());
  const double work = At(&Knot::time, to, &Knot::work) - At(&Knot::time, from, &Knot::work);
  return work > 0 ? (to - from) / work : 1;
}

}  // namespace sluice
