// The status page: one self-contained HTML page at /, which updates itself from /status.json.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/mutex.h"
#include "server/admin/status_page/status_json.h"
#include "server/inference/serving_context.h"

namespace sluice {

// The text of status_page.{html,css,js}, which the build joins into one page and compiles into the
// binary.
extern const char kStatusPage[];
// The page's Content-Security-Policy: it allows only the page's own script and style, by their
// hashes, and requests to the server that the page came from.
extern const char kStatusPagePolicy[];

// Thread-safe. Takes the same snapshot as /metrics, on the caller's thread, and at most once per
// kMaxAge for all callers together. Its lock is taken before any lock of the engine.
class StatusSource {
 public:
  static constexpr std::chrono::milliseconds kMaxAge{500};

  // `context` outlives the source. `phase` and `refused`, which returns all refusals since the
  // start, are called for each snapshot.
  StatusSource(const ServingContext& context, std::function<Phase()> phase,
               std::function<RecentActivity::Refusals()> refused);

  // Returns the JSON object that status_json.h describes, at most kMaxAge old.
  std::string Json();

 private:
  std::string Describe(MonoTime now) const;

  const ServingContext& context_;
  const std::function<Phase()> phase_;
  const std::function<RecentActivity::Refusals()> refused_;
  const MonoTime start_;

  Mutex mu_;
  std::string json_ ABSL_GUARDED_BY(mu_);  // empty until the first snapshot
  MonoTime described_ ABSL_GUARDED_BY(mu_){};
};

}  // namespace sluice
