#include "server/daemon/edge_metrics.h"

#include <string>

#include "proto/metric_names.h"
#include "server/common/callback_times.h"
#include "server/common/metric_snapshot.h"

namespace sluice {
namespace {

void AddListener(const char* listener, const PortStats& port, MetricSnapshot* snapshot) {
  const MetricSnapshot::Labels labels = {{"listener", listener}};
  const ListenerStats& stats = port.connections;
  const auto refused = [&](const char* reason, int64_t count) {
    snapshot->Counter(metric::kConnectionsRefused, {{"listener", listener}, {"reason", reason}},
                      static_cast<double>(count));
  };
  snapshot->Gauge(metric::kConnectionsOpen, labels, static_cast<double>(stats.open));
  refused("limit", stats.refused);
  refused("memory", stats.refused_for_memory);
  refused("accept_failed", stats.failed_accepts);
  for (const auto& [end, name] : EnumNamesOf(HandshakeEnd{})) {
    snapshot->Counter(metric::kHandshakesFailed,
                      {{"listener", listener}, {"reason", std::string(name)}},
                      static_cast<double>(stats.failed_handshakes[static_cast<size_t>(end)]));
  }
  snapshot->Counter(metric::kConnectionsBrokenOff, labels, static_cast<double>(stats.broken_off));
  snapshot->Counter(metric::kCallsRefused, labels, static_cast<double>(port.refused_calls));
}

void AddWaits(const char* listener, const ServingContext::Waits& waits, MetricSnapshot* snapshot) {
  const auto displaced = [&](const char* wait, const TransferWatch& watch) {
    snapshot->Counter(metric::kCallsDisplaced, {{"listener", listener}, {"wait", wait}},
                      static_cast<double>(watch.displaced()));
  };
  displaced("message", waits.transfers);
  displaced("idle_stream", waits.idle_streams);
}

void AddCaller(const CallerStats& stats, MetricSnapshot* snapshot) {
  const MetricSnapshot::Labels labels = {{"caller", stats.caller}};
  snapshot->Counter(metric::kCallerRequests, labels, static_cast<double>(stats.requests));
  snapshot->Counter(metric::kCallerTokens, labels, static_cast<double>(stats.tokens));
  snapshot->Counter(metric::kCallerRefused, labels, static_cast<double>(stats.refused));
}

void AddMemory(const MemoryLimits& limits, const ServingContext& context,
               MetricSnapshot* snapshot) {
  for (const MemoryLine& line : limits.lines) {
    snapshot->Gauge(metric::kMemoryLimitBytes, {{"use", line.use}},
                    static_cast<double>(line.bytes));
  }
  snapshot->Gauge(metric::kMemoryLimitBytes, {{"use", "all"}}, static_cast<double>(limits.limit));
  const auto used = [&](const char* use, int64_t bytes) {
    snapshot->Gauge(metric::kMemoryBytes, {{"use", use}}, static_cast<double>(bytes));
  };
  used("all", context.overload.resident());
  used("parsed_requests", context.parsed.used());
  used("unread_answers", context.unread.used());
  snapshot->Gauge(metric::kOverload, {}, static_cast<double>(context.overload.level()));
}

void AddCallbacks(const CallbackTimes& times, MetricSnapshot* snapshot) {
  for (const auto& [event, name] : EnumNamesOf(CallbackTimes::Event{})) {
    const MetricSnapshot::Labels labels = {{"event", std::string(name)}};
    const CallbackTimes::EventCounts counts = times.Of(event);
    snapshot->Counter(metric::kCallbacks, labels, static_cast<double>(counts.all));
    snapshot->Counter(metric::kCallbackSeconds, labels, Seconds(counts.total));
    snapshot->Counter(metric::kSlowCallbacks, labels, static_cast<double>(counts.slow));
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> EdgeMetrics(
    const ServingContext& context, std::span<const std::pair<const char*, PortStats>> ports,
    const Callers& callers, const MemoryLimits& limits) {
  MetricSnapshot snapshot;
  snapshot.Gauge(metric::kInstanceInfo, {{"id", context.instance}}, 1);
  for (const auto& [name, stats] : ports) AddListener(name, stats, &snapshot);
  AddCallbacks(CallbackTimes::OfProcess(), &snapshot);
  snapshot.Counter(metric::kTransfersCancelled, {},
                   static_cast<double>(context.inference.transfers.cancelled() +
                                       context.admin.transfers.cancelled() +
                                       context.probes.transfers.cancelled()));
  snapshot.Counter(metric::kIdleStreamsEnded, {},
                   static_cast<double>(context.inference.idle_streams.cancelled() +
                                       context.admin.idle_streams.cancelled()));
  AddWaits("grpc", context.inference, &snapshot);
  AddWaits("admin", context.admin, &snapshot);
  AddWaits("health", context.probes, &snapshot);
  AddMemory(limits, context, &snapshot);
  snapshot.Counter(
      metric::kAnswersCut, {},
      static_cast<double>(context.inference.transfers.cut() + context.admin.transfers.cut()));
  for (const CallerStats& stats : callers.Stats()) AddCaller(stats, &snapshot);
  snapshot.Counter(metric::kUnauthenticated, {{"reason", "token_unknown"}},
                   static_cast<double>(callers.unknown_tokens()));
  snapshot.Counter(metric::kUnauthenticated, {{"reason", "credential_missing"}},
                   static_cast<double>(callers.missing_credentials()));
  snapshot.Gauge(metric::kModelsFailed, {},
                 static_cast<double>(context.models.FailedModels().size()));
  return snapshot.Take();
}

}  // namespace sluice
