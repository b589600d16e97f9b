#include "engine/runner/steps/in_flight_step.h"

#include <algorithm>

namespace sluice {

StepRows StepRows::Part(size_t begin, size_t count) const {
  StepRows part{.sequences = sequences.subspan(begin, count),
                .rows = rows.subspan(begin, count),
                .size = {},
                .bucket = {}};
  for (const WaitingSequence* sequence : part.sequences) part.size.Add(sequence->tokens);
  return part;
}

StepNeeds StepRows::Needs() const {
  StepNeeds needs{.size = size};
  for (const RequestRow* row : rows) {
    const ActiveRequest& active = *row->owner;
    if (active.Wants(kOutputTopCandidates) && active.request.spec->diversity == 0) {
      needs.num_top = std::max(needs.num_top, active.request.spec->num_top);
    }
  }
  return needs;
}

InFlightStep::InFlightStep(ExecutionSlot* execution_slot, const PlanCache* cache,
                           size_t max_sequences)
    : slot(execution_slot), plans(cache), delivery(max_sequences) {
  sequences.reserve(max_sequences);
  rows.reserve(max_sequences);
  outcomes.reserve(max_sequences);
}

StepRows InFlightStep::ListRows() {
  rows.clear();
  for (WaitingSequence* sequence : sequences) rows.push_back(RowOf(sequence));
  return {.sequences = sequences, .rows = rows, .size = {}, .bucket = {}};
}

}  // namespace sluice
