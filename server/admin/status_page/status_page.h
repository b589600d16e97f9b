// The status page: one self-contained HTML page at /, and /status.json, from which it renews
// itself.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "engine/engine.h"
#include "server/admin/status_page/status_json.h"
#include "server/observe/recent_activity.h"
#include "server/observe/statistics.h"

namespace sluice {

// The text of status_page.{html,css,js}, made one page and part of the binary by the build.
extern const char kStatusPage[];
// Its Content-Security-Policy: nothing but its own script and style, by their hashes, and the
// requests that it sends here.
extern const char kStatusPagePolicy[];

// Thread-safe. Takes the snapshot that /metrics takes, on the thread of the caller, at most once in
// kMaxAge however many callers there are. Its lock comes before all of the engine's.
class StatusSource {
 public:
  static constexpr std::chrono::milliseconds kMaxAge{500};

  // Not owned; they outlive the source. `phase` is called at each snapshot.
  struct Parts {
    const Engine* engine;
    const Clock* clock;
    Statistics* statistics;
    RecentActivity* activity;
    std::function<Phase()> phase;
  };
  StatusSource(std::string version, const EngineOptions& options, Parts parts);

  // Returns what status_json.h describes, not older than kMaxAge.
  std::string Json();

 private:
  std::string Describe(MonoTime now) const;

  const std::string version_;
  const PolicyKind policy_;
  const StrategyKind strategy_;
  const Parts parts_;
  const MonoTime start_;

  Mutex mu_;
  std::string json_ ABSL_GUARDED_BY(mu_);  // empty: none yet
  MonoTime described_ ABSL_GUARDED_BY(mu_){};
};

}  // namespace sluice
