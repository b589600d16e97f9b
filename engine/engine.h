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
//     sinks. Ladders are reviewed and plans prepared on background threads and published atomically.
//   * A step for which the device has no memory is run again in parts; one that fails otherwise fails
//     its requests. While a step hangs (see WatchdogOptions) the model's watchdog ends all of the model's
//     requests with Unavailable, on its own thread and in the scheduling thread's place, and no more of
//     them are admitted.
//   * Drain stops admission and returns when every admitted request is done or at `deadline`; what
//     is left then ends with Unavailable. The destructor drains with no time left.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/backend.h"
#include "engine/engine_stats.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/request.h"

namespace sluice {

using RequestId = uint64_t;  // never 0

// A withdrawn model is no longer resolved. What it has accepted finishes on it, then its memory is
// free again; meanwhile both exist.
struct ModelChange {
  std::vector<std::shared_ptr<const Model>> serve;  // each also withdraws one of its name, version
  std::vector<std::shared_ptr<const Model>> withdraw;  // served snapshots
};

class Engine {
 public:
  // `backend`, `clock` and `observer` are not owned and outlive the engine.
  static std::unique_ptr<Engine> Create(const EngineOptions& options, Backend* backend,
                                        Clock* clock, Observer* observer);
  virtual ~Engine() = default;

  // Loads each model of `serve` onto the backend, prepares and times every plan of its initial ladder
  // (warm-up), beside all that is served meanwhile; then serves them and withdraws others, in one
  // step. After an error everything is as it was: Unavailable (draining), NotFound (a snapshot to
  // withdraw is not served), or what loading and warm-up say. Calls take turns.
  virtual absl::Status Exchange(const ModelChange& change) = 0;
  absl::Status Serve(std::shared_ptr<const Model> model) {
    return Exchange({.serve = {std::move(model)}, .withdraw = {}});
  }

  // The served snapshot; empty version: the highest. NotFound names what is missing.
  virtual absl::StatusOr<std::shared_ptr<const Model>> Resolve(std::string_view name,
                                                               std::string_view version) const = 0;
  virtual std::vector<std::shared_ptr<const Model>> Models() const = 0;

  // `request.model` comes from Resolve. Errors: ResourceExhausted (queue full, or the deadline would
  // pass in it; the latter with the reason "deadline_unreachable"), Unavailable (draining, or the
  // model's device hangs), DeadlineExceeded (already passed), InvalidArgument (a row is longer than the
  // model's positions, hence than the largest bucket, or the request is larger than the queue),
  // NotFound (the snapshot is no longer served: resolve the name again). `received` starts the request's trace.
  virtual absl::StatusOr<RequestId> Submit(Request request, std::shared_ptr<Sink> sink,
                                           MonoTime received) = 0;

  // Ends the request with Cancelled, soon; no effect when it is unknown or done.
  virtual void Cancel(RequestId id) = 0;

  virtual void Drain(MonoTime deadline) = 0;

  // Of a withdrawn model until its requests have ended, unless another has its name and version.
  virtual std::vector<ModelStats> Stats() const = 0;

  // Reviews the ladder now and returns when the changed one is in use (or there is none). `force`
  // adopts any gain. May take seconds; concurrent calls for one model take turns. Arguments as
  // Resolve's. Errors: NotFound; FailedPrecondition for a padded policy, whose ladder is fixed.
  virtual absl::StatusOr<OptimizeReport> Optimize(std::string_view name, std::string_view version,
                                                  bool force) = 0;

  // Of the latest request with this id among the last that ended; NotFound.
  virtual absl::StatusOr<Explanation> Explain(std::string_view request_id) const = 0;
  virtual const BackendInfo& backend_info() const = 0;
};

}  // namespace sluice
