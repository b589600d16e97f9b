// The interface to which the engine reports events, one record a request and one a batch. The
// metrics and logs of the server are observers; nothing else in the engine counts.
#pragma once

#include <string_view>

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

// The reasons for which a request is not admitted.
enum class Rejection {
  kQueueFull,
  kDraining,
  kHung,      // the scheduling thread of the model hangs
  kDeadline,  // the deadline passed before the request came
  kDeadlineUnreachable,
  kTooLarge,
  kUnknownModel,
};
std::string_view RejectionName(Rejection rejection);

// Called from engine threads and submitting threads. Implementations are thread-safe and quick, and
// do not call the engine. OnAdmitted comes before any other call for a request, OnRequestDone
// before the sink's OnDone, and OnBatch before the OnDone of the requests that the batch completed.
// A batch whose replay failed is not reported except by OnStepFailed and the status of its
// requests.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnAdmitted(const Request& request) = 0;
  virtual void OnRejected(std::string_view model, Rejection reason) = 0;
  virtual void OnRequestDone(const Request& request, const absl::Status& status,
                             const RequestTrace& trace) = 0;
  virtual void OnBatch(const BatchTrace& trace) = 0;
  virtual void OnPlan(const PlanTrace& trace) = 0;
  // No plan serves a step, and `lookup`, which is not kHit, says why. The rows are tried again in
  // parts; a row alone fails.
  virtual void OnNoPlan(const Model& model, Lookup lookup) {}
  // A review of the ladder ended, adopted or not.
  virtual void OnReview(const Model& model, const OptimizeReport& report) = 0;
  // A sentence for the log about something that is missing: a table of algorithms that is not
  // there, a ladder file that does not apply or could not be written, a journal that lost lines.
  virtual void OnNotice(const Model& model, std::string_view notice) {}
  // A replay failed. `failed` is the number of failed steps in a row, this one included, without
  // those that are tried again in parts.
  virtual void OnStepFailed(const Model& model, const absl::Status& status, int64_t failed) {}
  // A step succeeded after steps that had failed.
  virtual void OnStepsRecovered(const Model& model) {}
  // The scheduling thread hangs, on its device or elsewhere, and will not recover. Called once,
  // before the requests of the model end.
  virtual void OnHang(const Model& model, const Hang& hang) {}
};

}  // namespace sluice
