// The status page: one self-contained HTML page at /, which updates itself from /status.json.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "engine/engine.h"
#include "server/admin/status_page/status_json.h"
#include "server/observe/bucket_history.h"
#include "server/observe/recent_activity.h"
#include "server/observe/statistics.h"

namespace sluice {

// The text of status_page.{html,css,js}, which the build joins into one page and compiles into the
// binary.
extern const char kStatusPage[];
// The page's Content-Security-Policy: it allows only the page's own script and style, by their
// hashes, and requests to the server that the page came from.
extern const char kStatusPagePolicy[];

// Thread-safe. Takes the same snapshot as /metrics does, on the thread of the caller, and at most
// once per kMaxAge however many callers there are. Its lock is taken before any of the engine's.
class StatusSource {
 public:
  static constexpr std::chrono::milliseconds kMaxAge{500};

  // The parts that the source reads. They are not owned and outlive it. `phase` is called for each
  // snapshot.
  struct Parts {
    const Engine* engine;
    const Clock* clock;
    Statistics* statistics;
    RecentActivity* activity;
    const BucketHistory* history;
    std::function<Phase()> phase;
  };
  StatusSource(std::string version, const EngineOptions& options, Parts parts);

  // Returns the JSON object that status_json.h describes, at most kMaxAge old.
  std::string Json();

 private:
  std::string Describe(MonoTime now) const;

  const std::string version_;
  const PolicyKind policy_;
  const Parts parts_;
  const MonoTime start_;

  Mutex mu_;
  std::string json_ ABSL_GUARDED_BY(mu_);  // empty until the first snapshot
  MonoTime described_ ABSL_GUARDED_BY(mu_){};
};

}  // namespace sluice
