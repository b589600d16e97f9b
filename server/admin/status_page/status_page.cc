#include "server/admin/status_page/status_page.h"

#include <utility>
#include <vector>

namespace sluice {

StatusSource::StatusSource(const ServingContext& context, std::function<Phase()> phase,
                           std::function<RecentActivity::Refusals()> refused)
    : context_(context),
      phase_(std::move(phase)),
      refused_(std::move(refused)),
      start_(context.clock->Now()) {}

std::string StatusSource::Json() {
  MutexLock lock(&mu_);
  const MonoTime now = context_.clock->Now();
  if (json_.empty() || now - described_ >= kMaxAge) {
    json_ = Describe(now);
    described_ = now;
  }
  return json_;
}

std::string StatusSource::Describe(MonoTime now) const {
  std::vector<ModelStatus> models;
  for (ModelStats& stats : context_.engine->Stats()) {
    const inference::ModelStatistics ended = context_.statistics->Describe(stats);
    RecentActivity::View recent = context_.activity->Of(*stats.model);
    std::vector<HistoryStretch> history = context_.history.Of(stats, now);
    models.push_back({.stats = std::move(stats),
                      .recent = std::move(recent),
                      .history = std::move(history),
                      .ok = ended.inference_stats().success().count(),
                      .failed = ended.inference_stats().fail().count()});
  }
  return StatusJson({.version = context_.version,
                     .phase = phase_(),
                     .uptime = now - start_,
                     .backend = context_.engine->backend_info(),
                     .policy = context_.engine_options.batch.policy,
                     .refused = refused_(),
                     .failed_models = context_.models.FailedModels()},
                    models, now);
}

}  // namespace sluice
