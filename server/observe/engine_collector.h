// The engine's present state and its buckets as metrics, from one snapshot per scrape.
//
// The snapshot needs no cached handles to series. Buckets come and go, and removing a series from a
// prometheus::Family would destroy what a cached handle points to.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/engine.h"
#include "prometheus/metric_family.h"

namespace sluice {

class EngineCollector {
 public:
  // `engine` outlives the collector. `log_dropped` is called at each scrape.
  EngineCollector(const Engine* engine, std::function<int64_t()> log_dropped)
      : engine_(engine), log_dropped_(std::move(log_dropped)) {}

  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  const Engine* const engine_;
  const std::function<int64_t()> log_dropped_;
};

}  // namespace sluice
