// The contents of the status page, as JSON. Pure.
//
// One object: {"daemon": {...}, "models": [{...}]}, members as the functions below name them, which
// is what status_page.js reads. Durations are in seconds, ages count back from the snapshot, ratios
// are those of bucket_summary.h. Not a stable interface: programs use /metrics or the admin API.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/backend.h"
#include "engine/engine_stats.h"
#include "engine/options.h"
#include "server/observe/recent_activity.h"

namespace sluice {

// The daemon's phase as its health service tells it; kDraining is final.
enum class Phase { kStarting, kServing, kDraining };
constexpr auto EnumNamesOf(Phase) {
  using enum Phase;
  return EnumNameTable<Phase>(
      {{kStarting, "starting"}, {kServing, "serving"}, {kDraining, "draining"}});
}

struct DaemonStatus {
  std::string version;
  Phase phase = Phase::kStarting;
  nanoseconds uptime{0};
  BackendInfo backend;
  PolicyKind policy = PolicyKind::kCutAndFill;
  StrategyKind strategy = StrategyKind::kAdaptive;
};

struct ModelStatus {
  ModelStats stats;
  RecentActivity::View recent;
  uint64_t ok = 0, failed = 0;  // requests that ended
};

// The most sizes that a histogram has.
inline constexpr size_t kMaxStatusSizes = 256;

// Returns ASCII. Names and reasons are escaped as JSON wants it; bytes that are no UTF-8 become
// U+FFFD.
std::string StatusJson(const DaemonStatus& daemon, std::span<const ModelStatus> models,
                       MonoTime now);

}  // namespace sluice
