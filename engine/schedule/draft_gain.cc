#include "engine/schedule/draft_gain.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

constexpr double kClearlyBetter = 1.02;

}  // namespace

double ExpectedTokens(double acceptance, int32_t drafted) {
  double expected = 1;
  double all_before = 1;
  for (int32_t i = 0; i < drafted; ++i) expected += all_before *= acceptance;
  return expected;
}

DraftStep DraftStep::With(const PagedSequence& sequence, int32_t drafted,
                          const Ladder& ladder) const {
  DraftStep step = *this;
  step.size.tokens += drafted;
  step.size.longest = std::max(size.longest, 1 + drafted);
  const int32_t first = sequence.first_position;
  step.shape.bucket = *ladder.Choose(step.size);
  step.shape.computed_tokens += drafted;
  step.shape.context_tokens +=
      sequence.reach.ContextOf(first, 1 + drafted) - sequence.reach.ContextOf(first, 1);
  step.shape.distinct_positions += drafted;
  step.shape.sampled_rows += drafted;
  step.expected_tokens += ExpectedTokens(sequence.acceptance, drafted) - 1;
  step.draft_seconds += sequence.first_draft_seconds + drafted * sequence.draft_seconds +
                        std::exchange(step.wait_seconds, 0);
  return step;
}

int32_t WorthwhileDrafts(const DraftStep& step, const PagedSequence& sequence, int32_t most,
                         const Ladder& ladder, const CostModel& costs) {
  const double seconds = costs.Estimate(step.shape);
  if (seconds <= 0) return 0;
  double best_rate = kClearlyBetter * step.expected_tokens / (seconds + step.draft_seconds);
  int32_t best = 0;
  for (int32_t drafted = 1; drafted <= most; ++drafted) {
    const DraftStep longer = step.With(sequence, drafted, ladder);
    const double rate =
        longer.expected_tokens / (costs.Estimate(longer.shape) + longer.draft_seconds);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = drafted;
  }
  return best;
}

}  // namespace sluice
