// The latest events of each model, and the refusals since the start, for the status page. Metrics
// hold sums since the start.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/enum_names.h"
#include "base/mutex.h"
#include "base/reason.h"
#include "engine/observer.h"
#include "server/common/per_model.h"

namespace sluice {

// The most recently added values, in an array of fixed size.
template <typename T, size_t kCapacity>
class Ring {
 public:
  void Add(T value) { values_[count_++ % kCapacity] = std::move(value); }
  // Returns the values, the latest first.
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

// Thread-safe. The observing methods do not allocate for a model that was seen before. Of copies
// about 60 KB under the lock of those methods, so its callers must limit how often they call it.
class RecentActivity final : public Observer {
 public:
  static constexpr size_t kBatches = 64;
  static constexpr size_t kRequests = 1024;

  // The durations of a successful request, in seconds.
  struct Latency {
    double total = 0;                     // from arrival to the end
    double queue = 0;                     // from acceptance to the first batch
    std::optional<double> first_token{};  // from arrival
    std::optional<double> inter_token{};  // see InterTokenSeconds
  };
  struct Review {
    MonoTime at{};
    ReviewReport report{};
  };
  struct View {
    std::vector<BatchTrace> batches{};  // latest first; their `model` is nullptr
    std::vector<Latency> requests{};    // latest first
    std::optional<Review> review{};     // the latest review that has ended
  };

  // `clock` is not owned.
  explicit RecentActivity(const Clock* clock) : clock_(clock) {}

  View Of(const Model& model);

  // The requests that were refused before they were admitted, by Reason.
  using Refusals = std::array<int64_t, CountEnumerators<Reason>()>;
  Refusals refusals() const;

  // Drops models in the same way as PerModel::Retire.
  void Retire(IsServed is_served, MonoTime now, nanoseconds keep) {
    models_.Retire(is_served, now, keep);
  }

  void OnRejected(std::string_view model, Reason reason) override;
  void OnRequestDone(const Request& request, const absl::Status& status,
                     const RequestTrace& trace) override;
  void OnBatch(const BatchTrace& trace) override;
  void OnReview(const Model& model, const ReviewReport& report) override;

 private:
  struct OfModel {
    Mutex mu;
    Ring<BatchTrace, kBatches> batches ABSL_GUARDED_BY(mu);
    Ring<Latency, kRequests> requests ABSL_GUARDED_BY(mu);
    std::optional<Review> review ABSL_GUARDED_BY(mu);
  };

  std::shared_ptr<OfModel> For(const Model& model);

  const Clock* const clock_;
  PerModel<OfModel> models_;
  std::array<std::atomic<int64_t>, CountEnumerators<Reason>()> refused_{};
};

}  // namespace sluice
