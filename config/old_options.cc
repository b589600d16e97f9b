#include "config/old_options.h"

#include "absl/strings/str_cat.h"
#include "config/option.h"

namespace sluice {
namespace {

// These durations had the suffix _us, although their values carry units.
constexpr const char* kRenamedDurations[] = {
    "engine.batch.max_queue_delay",
    "engine.batch.priority_step",
    "engine.ladder.review.half_life",
    "engine.ladder.review.interval",
    "engine.ladder.warm_up",
    "engine.queue.max_wait",
    "engine.watchdog.grace",
    "engine.watchdog.hang",
    "server.grpc.connection.age_grace",
    "server.grpc.connection.handshake_timeout",
    "server.grpc.connection.idle_timeout",
    "server.grpc.connection.keepalive_time",
    "server.grpc.connection.keepalive_timeout",
    "server.grpc.connection.max_age",
    "server.grpc.connection.min_ping_interval",
    "server.grpc.stream_idle_timeout",
    "server.grpc.stream_stall_timeout",
    "server.grpc.transfer_timeout",
    "server.lifecycle.drain_delay",
    "server.lifecycle.drain_timeout",
    "server.secrets.poll_interval",
};

}  // namespace

std::string OldOption::Remedy() const {
  if (replacement.empty()) return absl::StrCat("removed: ", reason);
  if (!value.empty()) return absl::StrCat("the value ", value, " is now ", replacement);
  return absl::StrCat("renamed to ", replacement, ", which needs a unit, for example 1s");
}

const std::vector<OldOption>& OldOptions() {
  static const auto& options = *new auto([] {
    std::vector<OldOption> all = {
        {.path = "engine.attention.device", .reason = "the daemon no longer measures the device"},
        {.path = "engine.batch.policy", .value = "cut_and_fill", .replacement = "packed"},
        {.path = "engine.ladder.whole_tiles",
         .reason = "engine.ladder.strategy: hardware_aware uses capacities of whole tiles"},
        {.path = "server.admin.reflection", .reason = "the admin address always has reflection"},
        {.path = "server.log.queue_records", .reason = "8192 records may wait for the writer"},
    };
    for (const char* path : kRenamedDurations) {
      all.push_back({.path = absl::StrCat(path, "_us"), .replacement = path});
    }
    return all;
  }());
  return options;
}

void AppendIfOld(absl::string_view origin, absl::string_view path, absl::string_view value,
                 std::vector<std::string>* old) {
  for (const OldOption& option : OldOptions()) {
    const bool is_old = option.value.empty() ? FindOption(path) == nullptr : option.value == value;
    if (option.path != path || !is_old) continue;
    old->push_back(absl::StrCat(origin, ": ", path, ": ", option.Remedy()));
  }
}

}  // namespace sluice
