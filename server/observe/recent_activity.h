// What happened lately, for the status page: metrics have sums since the start, this has the latest
// events one by one.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/observer.h"
#include "server/common/per_model.h"

namespace sluice {

// The latest values that were added, in a fixed place.
template <typename T, size_t kCapacity>
class Ring {
 public:
  void Add(const T& value) { values_[count_++ % kCapacity] = value; }
  // Latest first.
  std::vector<T> Latest() const {
    std::vector<T> latest;
    const size_t size = count_ < kCapacity ? count_ : kCapacity;
    latest.reserve(size);
    for (size_t age = 1; age <= size; ++age) latest.push_back(values_[(count_ - age) % kCapacity]);
    return latest;
  }

 private:
  std::array<T, kCapacity> values_{};
  size_t count_ = 0;
};

// Thread-safe. The observing methods do not allocate once a model has been seen. Of copies some
// 60 KB under the same lock, so its callers limit how often they call it.
class RecentActivity final : public Observer {
 public:
  static constexpr size_t kBatches = 64;
  static constexpr size_t kRequests = 1024;

  // Of a request that succeeded, in seconds.
  struct Latency {
    double total = 0;                     // from arrival to the end
    double queue = 0;                     // from acceptance to the first batch
    std::optional<double> first_token{};  // from arrival
    std::optional<double> inter_token{};  // see InterTokenSeconds
  };
  struct Review {
    MonoTime at{};
    OptimizeReport report{};
  };
  struct View {
    std::vector<BatchTrace> batches{};  // latest first; their model is not set
    std::vector<Latency> requests{};    // latest first
    std::optional<Review> review{};     // the latest that ended
  };

  // `clock` is not owned.
  explicit RecentActivity(const Clock* clock) : clock_(clock) {}

  View Of(const Model& model);

  void OnRequestDone(const Request& request, const absl::Status& status,
                     const RequestTrace& trace) override;
  void OnBatch(const BatchTrace& trace) override;
  void OnReview(const Model& model, const OptimizeReport& report) override;

 private:
  struct OfModel {
    Mutex mu;
    Ring<BatchTrace, kBatches> batches ABSL_GUARDED_BY(mu);
    Ring<Latency, kRequests> requests ABSL_GUARDED_BY(mu);
    std::optional<Review> review ABSL_GUARDED_BY(mu);
  };

  OfModel& For(const Model& model);

  const Clock* const clock_;
  PerModel<OfModel> models_;
};

}  // namespace sluice
