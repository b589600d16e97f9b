// The engine: accepts validated requests, groups them into step batches and runs these.
//
// Concurrency contract
//   * All methods are thread-safe. Submit, Cancel and Stats never block on a running batch.
//   * Submit either returns an error, in which case the sink is never called, or admits the
//     request, in which case OnDone is called exactly once: admitted = ok + error + cancelled +
//     expired.
//   * A request that is cancelled or whose deadline has passed while it waits is never run; while a
//     batch runs, its result is dropped at the batch's end.
//   * Each served model has one scheduling thread, which forms batches, replays plans and calls
//     sinks. Plans are prepared on a background thread and published atomically.
//   * Drain stops admission and returns when every admitted request is done or at `deadline`; what
//     is left then ends with Unavailable. The destructor drains with no time left.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/clock.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/request.h"

namespace sluice {

using RequestId = uint64_t;  // never 0

// A point-in-time view for metrics and the admin API.
struct BucketStats {
  Bucket bucket;
  bool ready = false;  // its plan is published
  int64_t batches = 0;
  int64_t hits = 0;  // batches served by this bucket that it was the ladder's choice for
  int64_t useful_tokens = 0;
  int64_t computed_tokens = 0;
  int64_t bucket_tokens = 0;  // batches * bucket.tokens
  int64_t sequences = 0;
  int64_t memory_bytes = 0;
  double cost_seconds = 0;  // decayed mean of replay time; 0: never ran
};

struct ModelStats {
  std::shared_ptr<const Model> model;
  std::vector<BucketStats> buckets;  // ascending
  int64_t waiting_requests = 0;
  int64_t running_requests = 0;
  int64_t queued_tokens = 0;  // that the next steps of the waiting sequences compute
  int64_t queued_bytes = 0;   // held by requests that wait or run
  nanoseconds oldest_age{0};  // of what waits
  // Time to compute all that was admitted at the measured cost, if nothing ends before max_tokens.
  nanoseconds estimated_drain{0};
  int64_t steps = 0;
  int64_t plan_memory_bytes = 0;
  int64_t slot_memory_bytes = 0;
  int64_t weight_bytes = 0;
};

class Engine {
 public:
  // `backend`, `clock` and `observer` are not owned and outlive the engine.
  static std::unique_ptr<Engine> Create(const EngineOptions& options, Backend* backend,
                                        Clock* clock, Observer* observer);
  virtual ~Engine() = default;

  // Loads onto the backend, prepares and times every plan of the initial ladder (warm-up), then
  // serves. Replaces no model: AlreadyExists for a served (name, version).
  virtual absl::Status Serve(std::shared_ptr<const Model> model) = 0;

  // The served snapshot; empty version: the highest. NotFound names what is missing.
  virtual absl::StatusOr<std::shared_ptr<const Model>> Resolve(std::string_view name,
                                                               std::string_view version) const = 0;
  virtual std::vector<std::shared_ptr<const Model>> Models() const = 0;

  // `request.model` comes from Resolve. Errors: ResourceExhausted (queue full), Unavailable
  // (draining), DeadlineExceeded (already passed), InvalidArgument (a row is longer than the model's
  // positions, hence than the largest bucket), NotFound (the model is not served).
  // `received` starts the request's trace.
  virtual absl::StatusOr<RequestId> Submit(Request request, std::shared_ptr<Sink> sink,
                                           MonoTime received) = 0;

  // Ends the request with Cancelled, soon; no effect when it is unknown or done.
  virtual void Cancel(RequestId id) = 0;

  virtual void Drain(MonoTime deadline) = 0;

  virtual std::vector<ModelStats> Stats() const = 0;
  virtual const BackendInfo& backend_info() const = 0;
};

}  // namespace sluice
