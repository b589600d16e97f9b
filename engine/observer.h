// Where the engine reports what happened, one record a request and one a batch. The server's
// metrics and logs are observers; nothing else in the engine counts.
#pragma once

#include <string_view>

#include "base/enum_names.h"
#include "engine/backend.h"
#include "engine/engine_stats.h"
#include "engine/request.h"
#include "engine/runner/hang_detector.h"

namespace sluice {

struct BatchTrace {
  const Model* model;
  Bucket bucket;            // that served
  int64_t useful_tokens;    // somebody's real tokens, recomputed ones included
  int64_t computed_tokens;  // rows that kernels worked on; see BackendInfo::row_multiple
  int32_t sequences;
  int32_t sampled_rows;
  Trigger trigger;
  Lookup lookup;
  MonoTime start;
  nanoseconds form;  // decision and layout
  nanoseconds replay;
  nanoseconds deliver;  // results collected, OnTokens called
};

struct PlanTrace {
  const Model* model;
  Bucket bucket;
  bool ok;
  nanoseconds duration;
  int64_t memory_bytes;
};

// Why a request was not admitted.
enum class Rejection {
  kQueueFull,
  kDraining,
  kHung,      // its scheduling thread hangs
  kDeadline,  // passed before it came
  kDeadlineUnreachable,
  kTooLarge,
  kUnknownModel,
};
constexpr auto EnumNamesOf(Rejection) {
  using enum Rejection;
  return EnumNameTable<Rejection>({{kQueueFull, "queue_full"},
                                   {kDraining, "draining"},
                                   {kHung, "hung"},
                                   {kDeadline, "deadline"},
                                   {kDeadlineUnreachable, "deadline_unreachable"},
                                   {kTooLarge, "too_large"},
                                   {kUnknownModel, "unknown_model"}});
}
inline std::string_view RejectionName(Rejection rejection) { return NameOf(rejection); }

// Called from engine threads and submitting threads; implementations are thread-safe and quick, and
// do not call the engine. OnAdmitted comes before anything else about a request, OnRequestDone before
// the sink's OnDone, OnBatch before the OnDone of the requests that the batch completed. A batch whose
// replay failed is not reported; its requests' status tells.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnAdmitted(const Request& request) = 0;
  virtual void OnRejected(std::string_view model, Rejection reason) = 0;
  virtual void OnRequestDone(const Request& request, const absl::Status& status,
                             const RequestTrace& trace) = 0;
  virtual void OnBatch(const BatchTrace& trace) = 0;
  virtual void OnPlan(const PlanTrace& trace) = 0;
  // No plan serves a step, for `lookup`, not kHit. Its rows are tried again in parts; one alone fails.
  virtual void OnNoPlan(const Model& model, Lookup lookup) {}
  // A review of the ladder ended, adopted or not.
  virtual void OnReview(const Model& model, const OptimizeReport& report) = 0;
  // One sentence for the log about what went on without: a table of algorithms that is not there, a ladder file that does not apply or could
  // not be written, a journal that lost lines.
  virtual void OnNotice(const Model& model, std::string_view notice) {}
  // A replay failed. `failed` steps in a row have, this one included, but for those that are tried
  // again in parts.
  virtual void OnStepFailed(const Model& model, const absl::Status& status, int64_t failed) {}
  // A step succeeded after some that had not.
  virtual void OnStepsRecovered(const Model& model) {}
  // The scheduling thread hangs, on its device or elsewhere, and will be of no use again. Called once,
  // before its requests end.
  virtual void OnHang(const Model& model, const Hang& hang) {}
};

}  // namespace sluice
