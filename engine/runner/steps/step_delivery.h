// Delivers the results of a step to its requests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/runner/requests/active_request.h"
#include "engine/runner/steps/execution_slot.h"

namespace sluice {

// The outcome of a step for a row.
enum class RowOutcome : uint8_t { kDropped, kContinues, kFinished, kNotFinite, kNoMemory };

// The tokens that a step drew for its requests. An object is reused for later steps, and allocates
// only when a step is larger than all earlier steps.
class StepDelivery {
 public:
  explicit StepDelivery(size_t max_rows);

  // Collects the result of each row of the step, except rows with outcome kDropped. Keeps the drawn
  // token, and decides the row's outcome and its finish reason. `rows` are the rows assigned to
  // `slot`; `now` is recorded as the time of a request's first token.
  void Collect(std::span<RequestRow* const> rows, std::span<RowOutcome> outcomes, MonoTime now,
               ExecutionSlot* slot);

  // Calls OnTokens once for each request that requested tokens and has new ones; the rows of a
  // request are adjacent. Requires that the requests still exist, and that no later step of their
  // rows was finished.
  void Send();

 private:
  struct RequestTokens {
    ActiveRequest* request;
    int64_t count;  // number of its tokens in tokens_, after the tokens of earlier parts
  };

  // Returns the outcome of the row, and appends its kept tokens.
  RowOutcome CollectRow(size_t i, RequestRow* row, ExecutionSlot* slot);
  // Returns the outcome of the row after its draw with this index in the step, and appends the
  // token if it is kept.
  RowOutcome CollectDraw(RequestRow* row, int32_t draw, const kernels::SampleResult& drawn);

  std::vector<GeneratedToken> tokens_;
  std::vector<RequestTokens> parts_;
  std::string text_;
};

}  // namespace sluice
