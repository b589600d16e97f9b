#include "server/admin/status_page/status_page.h"

#include <utility>
#include <vector>

namespace sluice {

StatusSource::StatusSource(std::string version, const EngineOptions& options, Parts parts)
    : version_(std::move(version)),
      policy_(options.batch.policy),
      parts_(std::move(parts)),
      start_(parts_.clock->Now()) {}

std::string StatusSource::Json() {
  MutexLock lock(&mu_);
  const MonoTime now = parts_.clock->Now();
  if (json_.empty() || now - described_ >= kMaxAge) {
    json_ = Describe(now);
    described_ = now;
  }
  return json_;
}

std::string StatusSource::Describe(MonoTime now) const {
  std::vector<ModelStatus> models;
  for (ModelStats& stats : parts_.engine->Stats()) {
    const inference::ModelStatistics ended = parts_.statistics->Describe(stats);
    RecentActivity::View recent = parts_.activity->Of(*stats.model);
    std::vector<HistoryStretch> history = parts_.history->Of(stats, now);
    models.push_back({.stats = std::move(stats),
                      .recent = std::move(recent),
                      .history = std::move(history),
                      .ok = ended.inference_stats().success().count(),
                      .failed = ended.inference_stats().fail().count()});
  }
  return StatusJson({.version = version_,
                     .phase = parts_.phase(),
                     .uptime = now - start_,
                     .backend = parts_.engine->backend_info(),
                     .policy = policy_},
                    models, now);
}

}  // namespace sluice
