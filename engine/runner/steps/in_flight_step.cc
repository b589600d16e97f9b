#include "engine/runner/steps/in_flight_step.h"

#include <algorithm>

namespace sluice {

StepRows StepRows::Part(size_t begin, size_t count) const {
  StepRows part{.sequences = sequences.subspan(begin, count),
                .rows = rows.subspan(begin, count),
                .size = {},
                .bucket = {}};
  for (const WaitingSequence* sequence : part.sequences) {
    part.size.tokens += sequence->tokens;
    ++part.size.sequences;
    part.size.longest = std::max(part.size.longest, sequence->tokens);
  }
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
                           size_t most_sequences)
    : slot(execution_slot), plans(cache), delivery(most_sequences) {
  sequences.reserve(most_sequences);
  rows.reserve(most_sequences);
}

StepRows InFlightStep::ListRows() {
  rows.clear();
  for (WaitingSequence* sequence : sequences) rows.push_back(sequence->paged->row);
  return {.sequences = sequences, .rows = rows, .size = {}, .bucket = {}};
}

}  // namespace sluice
