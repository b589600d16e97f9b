// The engine accepts validated requests, groups them into step batches and runs the batches.
//
//   std::unique_ptr<Engine> engine = Engine::Create(options, &backend, Clock::Real(), &observer);
//   engine->Serve(LoadModel("name", /*version=*/1, "/models/name").value());
//   auto spec = std::make_shared<RequestSpec>();
//   spec->model = engine->Resolve("name", /*version=*/"").value();
//   spec->lengths = {3};
//   spec->max_tokens = 8;
//   Request request;
//   request.spec = std::move(spec);
//   request.tokens = {5, 17, 3};
//   auto id = engine->Submit(std::move(request), sink, Clock::Real()->Now());
//   // If ok, sink->OnTokens is called as tokens are generated, then sink->OnDone once.
//
// Concurrency contract
//   * All methods are thread-safe. Submit, Cancel and Stats never block on a running batch.
//   * Submit either returns an error, and the sink is never called, or admits the request, and
//     OnDone is called exactly once: admitted = ok + error + cancelled + expired.
//   * A waiting request that is cancelled, or whose deadline passes, never runs. If the request is
//     in a running batch, its result is dropped at the end of the batch.
//   * Each served model has one scheduling thread, which forms batches, replays plans and calls
//     sinks. Background threads review ladders, prepare plans and publish them atomically.
//   * If the device has no memory for a step, the step runs again in parts. After any other failure
//     of a step, its requests fail. If a step hangs (see WatchdogOptions), the model's watchdog
//     thread ends all requests of the model with Unavailable, and no more requests of the model are
//     admitted.
//   * Drain stops admission. It returns when every admitted request is done, or at `deadline`; the
//     remaining requests then end with Unavailable. The destructor drains with a deadline of now.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/backend.h"
#include "engine/engine_stats.h"
#include "engine/ladder_choice.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/request.h"

namespace sluice {

using RequestId = uint64_t;  // never 0

// A change of the served models. A withdrawn model is no longer resolved. Its accepted requests
// finish on it, then its memory is freed; until then both models exist.
struct ModelChange {
  // Each replaces the served model of the same name and version, if there is one.
  std::vector<std::shared_ptr<const Model>> serve;
  std::vector<std::shared_ptr<const Model>> withdraw;  // each is served
  // The ladders of models in `serve`; a model without an entry has the ladder of EngineOptions.
  std::map<const Model*, LadderChoice> ladders{};
  // Called if a model of `serve` cannot be prepared. If it returns true, the other models are
  // served without it, and the served models of its name are not withdrawn. If it returns false or
  // is empty, the change fails.
  std::function<bool(const Model&, const absl::Status&)> leave_out{};
};

// Returns the error of Exchange for a model that the options rule out on the backend, as far as it
// can be known without the weights and the free memory. The message names the option. `ladder` is
// the model's own.
absl::Status CheckOptions(const EngineOptions& options, const Model& model,
                          const LadderChoice& ladder, const Backend& backend);

class Engine {
 public:
  // `backend`, `clock` and `observer` are not owned and outlive the engine.
  static std::unique_ptr<Engine> Create(const EngineOptions& options, Backend* backend,
                                        Clock* clock, Observer* observer);
  virtual ~Engine() = default;

  // While the current models are served, loads each model of `serve` onto the backend and warms it
  // up: prepares the plan of the largest bucket, and prepares and times the others that
  // options.ladder.warm_up_us allows (all of them for a padded ladder). Then serves the new models
  // and withdraws the models in `withdraw` in one step. After an error nothing has changed. Returns
  // Unavailable (draining), NotFound (a snapshot to withdraw is not served), or an error from
  // loading or warm-up. Concurrent calls run one after another.
  virtual absl::Status Exchange(const ModelChange& change) = 0;
  absl::Status Serve(std::shared_ptr<const Model> model) {
    return Exchange({.serve = {std::move(model)}, .withdraw = {}});
  }

  // Returns the served snapshot of NAME, or of NAME:ADAPTER if it serves the adapter; an empty
  // version means the highest version. If there is none, returns NotFound, which names the missing
  // model, version or adapter.
  virtual absl::StatusOr<std::shared_ptr<const Model>> Resolve(std::string_view name,
                                                               std::string_view version) const = 0;
  // A served name: NAME or NAME:ADAPTER.
  struct Named {
    std::shared_ptr<const Model> model;
    // The classifier of the adapter, for RequestSpec::head; nullptr if it has none of its own.
    std::shared_ptr<const ClassifierConfig> head{};
  };
  // Like Resolve, with the adapter's classifier.
  virtual absl::StatusOr<Named> Find(std::string_view name, std::string_view version) const;
  virtual std::vector<std::shared_ptr<const Model>> Models() const = 0;
  // Returns the number of served models, or the number after an Exchange in progress if that is
  // larger.
  virtual int64_t MostModels() const { return std::ssize(Models()); }

  // Serves an adapter of a served snapshot, in place of the one with its name. The requests of a
  // replaced or unloaded adapter finish on it. An adapter may be evicted from memory and is then
  // read again for the next request that needs it; such requests are admitted at once and wait.
  // Returns NotFound if the snapshot is not served or has no such adapter, FailedPrecondition if it
  // takes no adapters, ResourceExhausted if the adapter exceeds their memory, and the errors of
  // reading and of the device.
  virtual absl::Status LoadAdapter(const Model& model, const AdapterSource& adapter);
  virtual absl::Status UnloadAdapter(const Model& model, std::string_view adapter);
  // Returns the names of the adapters in order, also of those that are not in memory now; none if
  // the snapshot is not served.
  virtual std::vector<std::string> Adapters(const Model& model) const { return {}; }

  // Submits a request. `model` and `head` of its spec come from Find; `received` starts its trace.
  // Returns ResourceExhausted (the queue is full, or with the reason "deadline_unreachable" if the
  // deadline would pass in the queue), Unavailable (draining, or the model's device hangs, or the
  // adapter was replaced by one with other labels), DeadlineExceeded (the deadline has passed),
  // InvalidArgument (a row has more tokens than the model has positions, or the request is larger
  // than the queue) or NotFound (the snapshot is no longer served: resolve the name again).
  virtual absl::StatusOr<RequestId> Submit(Request request, std::shared_ptr<Sink> sink,
                                           MonoTime received) = 0;

  // A request, and the receiver of its results.
  struct Submission {
    Request request;
    std::shared_ptr<Sink> sink;
  };
  using MakeSubmission = absl::FunctionRef<absl::StatusOr<Submission>(const Named& named)>;
  // Resolves the name and submits the result of `make` for the snapshot, with one look-up. The
  // snapshot accepts the request even if it is withdrawn during the call. Returns the errors of
  // Resolve, of `make` and of Submit.
  virtual absl::StatusOr<RequestId> ResolveAndSubmit(std::string_view name,
                                                     std::string_view version, MakeSubmission make,
                                                     MonoTime received);

  // Lets an overloaded daemon refuse a request before it reads the request. If an earlier request
  // was refused because of the length of the queue, and Submit would still refuse every request
  // of this owner (Request::turn_owner) with this priority and deadline, returns that error and
  // counts a refusal. Otherwise, or if the model is not served, returns OK, and Submit decides.
  virtual absl::Status StandingRefusal(std::string_view name, std::string_view version,
                                       std::string_view owner, int priority, MonoTime received,
                                       MonoTime deadline) {
    return absl::OkStatus();
  }

  // Ends the request with Cancelled soon. Has no effect if the request is unknown or done.
  virtual void Cancel(RequestId id) = 0;

  virtual void Drain(MonoTime deadline) = 0;

  // Returns the statistics of the served models, and of each withdrawn model until its requests
  // have ended, unless a newer model has the same name and version.
  virtual std::vector<ModelStats> Stats() const = 0;

  // Replaces the model's ladder. From now on, the options in `choice` override the configuration;
  // an empty choice returns to the configuration. Requests are served on the old ladder while the
  // new plans are prepared. With `keep`, the choice is written to the ladder file and is used after
  // a restart. After an error the ladder is unchanged, unless the error says that only the write
  // for `keep` failed. Returns NotFound, InvalidArgument (names an option), FailedPrecondition (no
  // ladder file for `keep`, or static_padded), or the error of preparing a plan or of the write.
  virtual absl::StatusOr<ReviewReport> ChooseLadder(std::string_view name, std::string_view version,
                                                    const LadderChoice& choice, bool keep);

  // Tries every strategy on the recent traffic, with the measured costs of steps. May take seconds.
  // The name and version are as in Resolve. Returns NotFound, or FailedPrecondition if too few
  // requests have arrived or the ladder cannot be chosen.
  virtual absl::StatusOr<StrategyTrials> TryStrategies(std::string_view name,
                                                       std::string_view version) const;

  // Reviews the ladder now. Returns once a better ladder is in use, or if none was found. With
  // `force`, any gain is enough. May take seconds; concurrent calls for one model run one after
  // another. The name and version are as in Resolve. Returns NotFound, or FailedPrecondition for
  // the policy static_padded, whose ladder is fixed.
  virtual absl::StatusOr<ReviewReport> Review(std::string_view name, std::string_view version,
                                              bool force) = 0;

  // Returns ExecutableModel::DescribeStep of a served model, or NotFound. The name and version are
  // as in Resolve.
  virtual absl::StatusOr<StepDescription> DescribeStep(std::string_view name,
                                                       std::string_view version,
                                                       const StepSizes& step, bool profile) const;

  // Explains the latest ended request with this id to the model of that name, or to any model if
  // the name is empty. Returns NotFound if its history is not kept (HistoryOptions::requests).
  virtual absl::StatusOr<Explanation> Explain(std::string_view request_id,
                                              std::string_view model) const = 0;
  virtual const BackendInfo& backend_info() const = 0;
};

}  // namespace sluice
