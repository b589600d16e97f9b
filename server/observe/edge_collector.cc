#include "server/observe/edge_collector.h"

#include <string>

#include "proto/metric_names.h"
#include "server/common/metric_snapshot.h"

namespace sluice {
namespace {

void AddListener(const ListenerStats& stats, MetricSnapshot* snapshot) {
  const MetricSnapshot::Labels labels = {{"listener", stats.listener}};
  const auto refused = [&](const char* reason, int64_t count) {
    snapshot->Counter(metric::kConnectionsRefused,
                      {{"listener", stats.listener}, {"reason", reason}},
                      static_cast<double>(count));
  };
  snapshot->Gauge(metric::kConnectionsOpen, labels, static_cast<double>(stats.open));
  refused("limit", stats.refused);
  refused("accept_failed", stats.failed_accepts);
  snapshot->Counter(metric::kConnectionsBrokenOff, labels, static_cast<double>(stats.broken_off));
}

void AddCaller(const CallerStats& stats, MetricSnapshot* snapshot) {
  const MetricSnapshot::Labels labels = {{"caller", stats.caller}};
  snapshot->Counter(metric::kCallerRequests, labels, static_cast<double>(stats.requests));
  snapshot->Counter(metric::kCallerTokens, labels, static_cast<double>(stats.tokens));
  snapshot->Counter(metric::kCallerRefused, labels, static_cast<double>(stats.refused));
}

}  // namespace

std::vector<prometheus::MetricFamily> EdgeCollector::Collect() const {
  MetricSnapshot snapshot;
  for (const ListenerStats& stats : ports_->Stats()) AddListener(stats, &snapshot);
  snapshot.Counter(metric::kTransfersCancelled, {}, static_cast<double>(transfers_->cancelled()));
  snapshot.Counter(metric::kIdleStreamsEnded, {}, static_cast<double>(idle_streams_->cancelled()));
  const MetricSnapshot::Labels unread = {{"use", "unread_answers"}};
  snapshot.Gauge(metric::kMemoryBytes, unread, static_cast<double>(unread_->used()));
  snapshot.Gauge(metric::kMemoryLimitBytes, unread, static_cast<double>(unread_->limit()));
  for (const CallerStats& stats : callers_->Stats()) AddCaller(stats, &snapshot);
  snapshot.Counter(metric::kUnauthenticated, {{"reason", "token_unknown"}},
                   static_cast<double>(callers_->unknown_tokens()));
  snapshot.Counter(metric::kUnauthenticated, {{"reason", "credential_missing"}},
                   static_cast<double>(callers_->missing_credentials()));
  return snapshot.Take();
}

}  // namespace sluice
