// The scheduling decisions about the last requests.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "engine/engine_stats.h"
#include "engine/request.h"
#include "engine/schedule/batch_former.h"

namespace sluice {

// The latest decisions to wait, up to the number that a request keeps. Used only by the scheduling
// thread.
class RecentWaits {
 public:
  static constexpr size_t kWaits = 64;

  void Add(const ExplainedWait& wait) { waits_[count_++ % kWaits] = wait; }
  bool AnySince(MonoTime since) const {
    return count_ > 0 && waits_[(count_ - 1) % kWaits].at >= since;
  }
  // Returns the waits at `since` or later, in order.
  std::vector<ExplainedWait> Since(MonoTime since) const;

 private:
  std::array<ExplainedWait, kWaits> waits_;
  size_t count_ = 0;
};

// The decisions about one request so far. Used only by the scheduling thread.
struct RequestHistory {
  static constexpr size_t kSteps = 64, kWaits = 64;  // the first ones are kept

  // Adds a step. If it has the same tokens, batch, bucket, trigger, lookup and co-batched requests
  // as the last step, and no wait was added since, merges it into the last step instead.
  void Add(const ExplainedStep& step);
  // Adds the waits decided since the last call.
  void AddWaits(const RecentWaits& recent, MonoTime queued);

  std::vector<ExplainedWait> waits;
  std::vector<ExplainedStep> steps;

 private:
  MonoTime seen_{};        // waits before this time were added
  bool waited_ = false;    // whether a wait was added since the last step
  bool complete_ = false;  // whether a step was dropped; later steps are not kept
};

// A ring buffer of the latest ended requests. Thread-safe.
class DecisionHistory {
 public:
  // Keeps at most `requests` requests; may be 0.
  explicit DecisionHistory(size_t requests) : capacity_(requests) {
    hashes_.reserve(requests);
    explanations_.reserve(requests);
  }

  // Adds a request that ended. A request without an id is not kept.
  void Add(const Request& request, const absl::Status& status, const RequestTrace& trace,
           RequestHistory history);

  // Returns the latest request with this id, or NotFound.
  absl::StatusOr<Explanation> Find(std::string_view request_id) const;

 private:
  const size_t capacity_;
  mutable Mutex mu_;
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;  // index of the next entry
  // Their memory is reserved, because Add runs on the scheduling thread.
  std::vector<size_t> hashes_ ABSL_GUARDED_BY(mu_);             // of the ids, for Find
  std::vector<Explanation> explanations_ ABSL_GUARDED_BY(mu_);  // with the same indices
};

}  // namespace sluice
