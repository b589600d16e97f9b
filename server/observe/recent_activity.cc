#include "server/observe/recent_activity.h"

#include <memory>
#include <utility>

#include "server/common/durations.h"

namespace sluice {

std::shared_ptr<RecentActivity::OfModel> RecentActivity::For(const Model& model) {
  return models_.Get(model.name, model.version, [] { return std::make_unique<OfModel>(); });
}

RecentActivity::View RecentActivity::Of(const Model& model) {
  const std::shared_ptr<OfModel> recent = For(model);
  MutexLock lock(&recent->mu);
  return {recent->batches.Latest(), recent->requests.Latest(), recent->review};
}

RecentActivity::Refusals RecentActivity::refusals() const {
  Refusals counts;
  for (size_t i = 0; i < counts.size(); ++i) {
    counts[i] = refused_[i].load(std::memory_order_relaxed);
  }
  return counts;
}

void RecentActivity::OnRejected(std::string_view, Reason reason) {
  refused_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

void RecentActivity::OnRequestDone(const Request& request, const absl::Status& status,
                                   const RequestTrace& trace) {
  if (!status.ok()) return;
  Latency latency;
  latency.total = Seconds(trace.done - trace.received);
  latency.queue = Seconds(trace.first_run - trace.queued);
  latency.inter_token = InterTokenSeconds(request, trace);
  if (trace.first_token != MonoTime{}) {
    latency.first_token = Seconds(trace.first_token - trace.received);
  }
  const std::shared_ptr<OfModel> recent = For(*request.spec->model);
  MutexLock lock(&recent->mu);
  recent->requests.Add(latency);
}

void RecentActivity::OnBatch(const BatchTrace& trace) {
  BatchTrace kept = trace;
  kept.model = nullptr;  // the model may be destroyed before this copy
  const std::shared_ptr<OfModel> recent = For(*trace.model);
  MutexLock lock(&recent->mu);
  recent->batches.Add(kept);
}

void RecentActivity::OnReview(const Model& model, const ReviewReport& report) {
  Review review{clock_->Now(), report};
  const std::shared_ptr<OfModel> recent = For(model);
  MutexLock lock(&recent->mu);
  recent->review = std::move(review);
}

}  // namespace sluice
