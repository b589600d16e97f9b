// Where the engine reports what happened, one record a request and one a batch. The server's
// metrics and logs are observers; nothing else in the engine counts.
#pragma once

#include <string_view>

#include "engine/backend.h"
#include "engine/request.h"

namespace sluice {

enum class Trigger {  // why a batch was launched now
  kFull,              // no further sequence fits the largest bucket
  kDelay,             // a request waited max_queue_delay, or its deadline allows no more
  kIdle,              // nothing is gained by waiting
  kDrain,             // shutting down
};
std::string_view TriggerName(Trigger trigger);

enum class Lookup {  // result of the plan cache
  kHit,              // the ladder's own bucket was ready
  kMissNotCaptured,  // its plan is still being prepared; a larger one served
  kMissEvicted,
  kMissOverCapacity,  // larger than every bucket
};
std::string_view LookupName(Lookup lookup);  // "hit", "not_captured", "evicted", "over_capacity"

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
enum class Rejection { kQueueFull, kDraining, kDeadline, kTooLarge, kUnknownModel };
std::string_view RejectionName(Rejection rejection);

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
};

}  // namespace sluice
