// Durations that metrics, the admin API and the status page derive from traces.
#pragma once

#include <optional>

#include "base/clock.h"
#include "engine/request.h"

namespace sluice {

// Returns the mean time between the generated tokens of a request that succeeded, or nullopt if no
// row has two. Rows advance together, so the time is divided by the number of steps, not of tokens.
inline std::optional<double> InterTokenSeconds(const Request& request, const RequestTrace& trace) {
  const int64_t per_row = trace.generated_tokens / request.rows();
  if (trace.first_token == MonoTime{} || per_row < 2) return std::nullopt;
  return Seconds(trace.done - trace.first_token) / static_cast<double>(per_row - 1);
}

}  // namespace sluice
