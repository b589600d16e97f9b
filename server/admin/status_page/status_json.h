// The contents of the status page, as JSON. The functions are pure.
//
// The result is one object, {"daemon": {...}, "models": [{...}]}, whose members are named as in the
// functions below; page.js reads it. Durations are in seconds, ages are counted back from the
// snapshot, and bucket_summary.h defines the ratios. The format is not a stable interface: programs
// should use /metrics or the admin API.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend.h"
#include "engine/engine_stats.h"
#include "engine/options.h"
#include "server/observe/bucket_history.h"
#include "server/observe/recent_activity.h"

namespace sluice {

// The daemon's phase, as its health service reports it. It is ready only in kServing. In kEmpty it
// has no model, and in kFailing the steps of a model fail. kDraining is final.
enum class Phase { kStarting, kEmpty, kServing, kFailing, kDraining };
constexpr auto EnumNamesOf(Phase) {
  using enum Phase;
  return EnumNameTable<Phase>({{kStarting, "starting"},
                               {kEmpty, "empty"},
                               {kServing, "serving"},
                               {kFailing, "failing"},
                               {kDraining, "draining"}});
}

struct DaemonStatus {
  std::string version;
  Phase phase = Phase::kStarting;
  nanoseconds uptime{0};
  BackendInfo backend;
  PolicyKind policy = PolicyKind::kPacked;
  RecentActivity::Refusals refused{};        // since the start
  std::vector<std::string> failed_models{};  // see ModelManager::FailedModels
};

struct ModelStatus {
  ModelStats stats;
  RecentActivity::View recent;
  std::vector<HistoryStretch> history{};  // see BucketHistory::Of
  uint64_t ok = 0, failed = 0;            // requests that have ended
};

// The largest number of sizes in a histogram.
inline constexpr size_t kMaxStatusSizes = 256;

// Returns ASCII text. Names and reasons are escaped as JSON requires; bytes that are not valid
// UTF-8 become U+FFFD.
std::string StatusJson(const DaemonStatus& daemon, std::span<const ModelStatus> models,
                       MonoTime now);

}  // namespace sluice
