// From the results of a step to what its requests receive.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/active_request.h"
#include "engine/execution_slot.h"

namespace sluice {

// Kept from one step to the next, so that only the largest one yet allocates.
struct DeliveryScratch {
  std::vector<GeneratedToken> tokens;
  std::string text;
};

// Collects each row of the step, `rows` as assigned to `slot`, except those marked kDropped: keeps
// the drawn token, decides the row's outcome and its finish reason. Calls OnTokens once for each
// request (whose rows are adjacent) that wants tokens and got some. `now` is the time of a first
// token.
void DeliverStep(std::span<Row* const> rows, MonoTime now, ExecutionSlot* slot,
                 DeliveryScratch* scratch);

}  // namespace sluice
