// The number of drafted tokens that make decoding faster.
#pragma once

#include <cstdint>

#include "engine/ladder/ladder.h"
#include "engine/schedule/cost_model.h"
#include "engine/schedule/sequence.h"

namespace sluice {

// Returns the expected number of tokens that a step with `drafted` drafted tokens draws and keeps.
// Each drafted token is accepted with probability `acceptance` if all before it are.
double ExpectedTokens(double acceptance, int32_t drafted);

// A step of decodes, and the number of tokens that it is expected to keep.
struct DraftStep {
  BatchSize size{};
  StepShape shape{};
  double expected_tokens = 0;
  double draft_seconds = 0;  // of drafting, before the step
  // The seconds that the device waits for drafts, because the step does not start ahead.
  double wait_seconds = 0;

  // Returns the step with `drafted` tokens more of a sequence, in the ladder's bucket. Requires
  // that a bucket fits.
  DraftStep With(const PagedSequence& sequence, int32_t drafted, const Ladder& ladder) const;
};

// Returns the number of drafted tokens of the sequence, at most `most`, that gives the step the
// most expected tokens per second, including the time to draft them and to wait for them. Returns 0
// if the rate is at most 2 % above the rate without them, because estimates have errors, or if the
// costs are unknown.
int32_t WorthwhileDrafts(const DraftStep& step, const PagedSequence& sequence, int32_t most,
                         const Ladder& ladder, const CostModel& costs);

}  // namespace sluice
