// Times of traces, as metrics, admin API and status page show them.
#pragma once

#include <optional>

#include "base/clock.h"
#include "engine/request.h"

namespace sluice {

// Mean time between the generated tokens of a request that succeeded; none when no row has two.
// Rows advance together, so steps, not tokens, are what it divides by.
inline std::optional<double> InterTokenSeconds(const Request& request, const RequestTrace& trace) {
  const int64_t per_row = trace.generated_tokens / request.rows();
  if (trace.first_token == MonoTime{} || per_row < 2) return std::nullopt;
  return Seconds(trace.done - trace.first_token) / static_cast<double>(per_row - 1);
}

}  // namespace sluice
