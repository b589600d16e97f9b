// Sends the requests of one phase and records each call.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "loadtest/load/arrivals.h"
#include "loadtest/load/cpu_meter.h"
#include "loadtest/load/outcome.h"
#include "loadtest/load/payload.h"
#include "loadtest/load/transport.h"

namespace sluice::load {

struct RunOptions {
  bool streaming = false;
  int streams = 1;                               // per channel
  int senders = 1;                               // threads that send, each with a part of the load
  nanoseconds deadline{0};                       // of a call, from its scheduled time; 0 means none
  nanoseconds drain = std::chrono::seconds(30);  // the time for calls to end after the last arrival
  int64_t max_in_flight = 100'000;               // arrivals above it count as not sent
  bool send_on_refusal = false;                  // closed loop: if false, an error ends the lane
};

// Counts that a display may read while the phase runs.
struct Live {
  std::atomic<int64_t> sent{0};
  std::atomic<int64_t> done{0};
  std::atomic<int64_t> missed{0};  // calls in `done` that are not kOk
};

struct PhaseData {
  std::vector<CallRecord> calls;  // in an open loop, in the order of arrival
  nanoseconds duration{0};        // the time in which requests arrived
  Errors errors;
  CpuUse cpu;  // of this process, from the start to the last arrival
};

// Runs an open loop: sends call i at arrivals[i].at, even if earlier calls are unanswered, and
// measures its latency from that time. `payloads[i]` indexes `pool`. Returns when every call has
// ended, at most `drain` after `duration`. `answers` may be null.
PhaseData RunOpenLoop(const RunOptions& options, const Channels& channels, const PayloadPool& pool,
                      absl::Span<const Arrival> arrivals, absl::Span<const uint32_t> payloads,
                      nanoseconds duration, AnswerBook* answers, Live* live);

// Runs a closed loop: `concurrency` calls are always in flight, and a new one is sent when one
// ends. Such a client slows down with the server, so its latency does not predict the latency under
// a load that does not slow down. It measures the cost of a call and the capacity.
PhaseData RunClosedLoop(const RunOptions& options, const Channels& channels,
                        const PayloadPool& pool, absl::Span<const uint32_t> payloads,
                        int concurrency, nanoseconds duration, AnswerBook* answers, Live* live);

}  // namespace sluice::load
