// Metrics that are read at each scrape instead of being counted as events happen.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "prometheus/metric_family.h"
#include "proto/metric_names.h"

namespace sluice {

// Collects samples. Take returns their families in the order of their first samples.
class MetricSnapshot {
 public:
  using Labels = std::vector<prometheus::ClientMetric::Label>;

  void Gauge(const metric::Metric& metric, const Labels& labels, double value) {
    Add(metric, prometheus::MetricType::Gauge, labels).gauge.value = value;
  }
  void Counter(const metric::Metric& metric, const Labels& labels, double value) {
    Add(metric, prometheus::MetricType::Counter, labels).counter.value = value;
  }
  // `counts` has one more entry than `bounds`, for the observations above all bounds.
  void Histogram(const metric::Metric& metric, const Labels& labels, std::span<const double> bounds,
                 std::span<const int64_t> counts, double sum) {
    prometheus::ClientMetric::Histogram& out =
        Add(metric, prometheus::MetricType::Histogram, labels).histogram;
    out.sample_sum = sum;
    for (size_t i = 0; i < counts.size(); ++i) {
      out.sample_count += counts[i];
      out.bucket.push_back(
          {.cumulative_count = out.sample_count,
           .upper_bound = i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity()});
    }
  }
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& Add(const metric::Metric& metric, prometheus::MetricType type,
                                const Labels& labels) {
    size_t at = 0;
    while (at < families_.size() && families_[at].name != metric.name) ++at;
    if (at == families_.size()) families_.push_back({metric.name, metric.help, type, {}});
    families_[at].metric.emplace_back().label = labels;
    return families_[at].metric.back();
  }

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace sluice
