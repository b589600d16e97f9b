// The interface that receives the engine's events: one record per request and one per batch. The
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
  int64_t useful_tokens;    // tokens of sequences, including recomputed tokens
  int64_t computed_tokens;  // rows that the device computed; see ComputedRows::Of
  int32_t sequences;
  int32_t sampled_rows;
  Trigger trigger;
  Lookup lookup;
  MonoTime start;
  nanoseconds form;  // time of the decision and the layout
  nanoseconds replay;
  nanoseconds deliver;  // time to collect results and call OnTokens
};

struct PlanTrace {
  const Model* model;
  Bucket bucket;
  bool ok;
  nanoseconds duration;
  int64_t memory_bytes;
};

// A file that the engine writes while it serves: engine.history.journal or engine.ladder.file.
enum class WrittenFile { kJournal, kLadder };

// A scheduling thread that no longer makes progress.
struct Hang {
  bool in_step = false;    // whether the thread waits for its device
  nanoseconds watched{0};  // the hang has lasted at least this long
  nanoseconds allowed{0};
};

// Called from engine threads and submitting threads. Implementations are thread-safe and quick, and
// do not call the engine. They override the methods of the events that they need; the defaults do
// nothing.
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
  // A request whose reply has attention diagnostics ended without error. Comes after
  // OnRequestDone.
  virtual void OnDiagnostics(const Model& model, const Reply& reply) {}
  virtual void OnPlan(const PlanTrace& trace) {}
  // No plan serves a step; `lookup`, which is not kHit, gives the reason. Its rows are tried again
  // in parts. A part of one row that no plan serves fails.
  virtual void OnNoPlan(const Model& model, Lookup lookup) {}
  // A review of the ladder ended, whether or not it changed the ladder.
  virtual void OnReview(const Model& model, const ReviewReport& report) {}
  // A model with a choice of kernels was loaded; `kernels` is ExecutableModel::kernels.
  virtual void OnKernels(const Model& model, std::string_view kernels) {}
  // `notice` is one sentence for the log about something that is missing or was lost without an
  // error, such as a table of algorithms, a ladder file that does not apply or could not be
  // written, or lines of the journal.
  virtual void OnNotice(const Model& model, std::string_view notice) {}
  // A write to a file failed, for example because the disk is full. OnNotice has the reason, for
  // the journal only of the first failure in a row.
  virtual void OnWriteFailed(WrittenFile file) {}
  // The journal lost `lines` further lines, because the disk is too slow or full or the file has
  // reached its largest size.
  virtual void OnJournalLinesLost(int64_t lines) {}
  // A replay failed. `failed` is the number of consecutive failed steps, including this one. Steps
  // that are tried again in parts do not count.
  virtual void OnStepFailed(const Model& model, const absl::Status& status, int64_t failed) {}
  // A step succeeded after failed steps, or the model, failing or not, was withdrawn or ended.
  virtual void OnStepsRecovered(const Model& model) {}
  // The scheduling thread hangs, on its device or elsewhere, and will not recover. Called once,
  // before its requests end.
  virtual void OnHang(const Model& model, const Hang& hang) {}
};

}  // namespace sluice
