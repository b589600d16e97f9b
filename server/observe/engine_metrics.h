// The engine's current state and its buckets as metrics, from one snapshot per scrape.
//
// The snapshot needs no cached handles to series. Buckets come and go, and removing a series from a
// prometheus::Family would invalidate its cached handles.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "prometheus/metric_family.h"

namespace sluice {

// Returns the metrics of `engine`, and the number of dropped log lines.
std::vector<prometheus::MetricFamily> EngineMetrics(const Engine& engine, int64_t log_dropped);

}  // namespace sluice
