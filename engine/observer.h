// The interface to which the engine reports events: one record per request and one per batch. The
// server's metrics and logs are observers; no other part of the engine counts events for them.
#pragma once

#include <string_view>

#include "base/reason.h"
#include "engine/backend.h"
#include "engine/engine_stats.h"
#include "engine/request.h"

namespace sluice {

struct BatchTrace {
  const Model* model;
  Bucket bucket;            // the bucket that served
  int64_t useful_tokens;    // tokens of sequences, recomputed ones included
  int64_t computed_tokens;  // rows that kernels computed; see BackendInfo::row_multiple
  int32_t sequences;
  int32_t sampled_rows;
  Trigger trigger;
  Lookup lookup;
  MonoTime start;
  nanoseconds form;  // decision and layout
  nanoseconds replay;
  nanoseconds deliver;  // the collection of results and the calls of OnTokens
};

struct PlanTrace {
  const Model* model;
  Bucket bucket;
  bool ok;
  nanoseconds duration;
  int64_t memory_bytes;
};

// A scheduling thread that no longer makes progress.
struct Hang {
  bool in_step = false;    // whether the thread waits for its device
  nanoseconds watched{0};  // the least time that the hang has lasted
  nanoseconds allowed{0};
};

// Called from engine threads and submitting threads. Implementations are thread-safe and quick, do
// not call the engine, and override the methods whose events they need: all others do nothing.
// OnAdmitted comes before anything else about a request, OnRequestDone before the sink's OnDone,
// and OnBatch before the OnDone of the requests that the batch completed. A batch whose replay
// failed is not reported; its requests end with the error.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnAdmitted(const Request& request) {}
  // A request was refused before it was admitted. `model` is empty unless it names a served model,
  // so that callers cannot make up metric labels.
  virtual void OnRejected(std::string_view model, Reason reason) {}
  virtual void OnRequestDone(const Request& request, const absl::Status& status,
                             const RequestTrace& trace) {}
  virtual void OnBatch(const BatchTrace& trace) {}
  // A request ended without error whose reply has diagnostics of attention. Comes after
  // OnRequestDone.
  virtual void OnDiagnostics(const Model& model, const Reply& reply) {}
  virtual void OnPlan(const PlanTrace& trace) {}
  // No plan serves a step; `lookup`, which is not kHit, says why. Its rows are tried again in
  // parts; a row that is alone in its part fails.
  virtual void OnNoPlan(const Model& model, Lookup lookup) {}
  // A review of the ladder ended, whether or not it changed the ladder.
  virtual void OnReview(const Model& model, const ReviewReport& report) {}
  // A model was loaded that has a choice of kernels; `kernels` is ExecutableModel::kernels.
  virtual void OnKernels(const Model& model, std::string_view kernels) {}
  // `notice` is one sentence for the log about something that is missing or was lost without an
  // error: a table of algorithms, a ladder file that does not apply or could not be written, lines
  // of the journal.
  virtual void OnNotice(const Model& model, std::string_view notice) {}
  // A replay failed. `failed` is the number of consecutive failed steps, this one included; steps
  // that are tried again in parts do not count.
  virtual void OnStepFailed(const Model& model, const absl::Status& status, int64_t failed) {}
  // A step succeeded after one or more that failed.
  virtual void OnStepsRecovered(const Model& model) {}
  // The scheduling thread hangs, on its device or elsewhere, and will not recover. Called once,
  // before its requests end.
  virtual void OnHang(const Model& model, const Hang& hang) {}
};

}  // namespace sluice
