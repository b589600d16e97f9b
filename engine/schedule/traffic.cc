#include "engine/schedule/traffic.h"

#include <chrono>
#include <cmath>

#include "base/check.h"

namespace sluice {

std::vector<DecayedHistogram::Entry> DecayedHistogram::Entries() const {
  std::vector<Entry> entries;
  entries.reserve(counts_.size());
  counts_.ForEach([&](int32_t tokens, double weight) { entries.push_back({tokens, weight}); });
  return entries;
}

double DecayedHistogram::Entropy() const {
  double bits = 0;
  counts_.ForEach([&, total = total()](int32_t, double weight) {
    const double share = weight / total;
    if (share > 0) bits -= share * std::log2(share);
  });
  return std::max(bits, 0.0);
}

Traffic::Traffic(nanoseconds half_life)
    : lengths_(half_life), batch_tokens_(half_life), usage_(half_life) {
  recent_.reserve(kRecentArrivals);
}

void Traffic::OnArrival(const Arrival& arrival) {
  lengths_.Add(arrival.tokens, arrival.at);
  if (recent_.size() >= kRateArrivals) rate_tokens_ -= Recent(kRateArrivals - 1).tokens;
  rate_tokens_ += arrival.tokens;
  if (recent_.size() < kRecentArrivals) {
    recent_.push_back(arrival);
  } else {
    recent_[next_] = arrival;
  }
  next_ = (next_ + 1) % kRecentArrivals;
}

void Traffic::OnBatch(const BatchSize& size, const Bucket& bucket, MonoTime now) {
  batch_tokens_.Add(size.tokens, now);
  usage_.Add(bucket, now);
}

const Arrival& Traffic::Recent(size_t back) const {
  return recent_[(next_ + kRecentArrivals - 1 - back) % kRecentArrivals];
}

std::vector<Arrival> Traffic::RecentArrivals() const {
  std::vector<Arrival> arrivals;
  arrivals.reserve(recent_.size());
  for (size_t back = recent_.size(); back > 0; --back) arrivals.push_back(Recent(back - 1));
  return arrivals;
}

ArrivalRate Traffic::Rate(MonoTime now) const {
  if (recent_.empty()) return {};
  const Arrival& first = Recent(RateWindow() - 1);
  const std::chrono::duration<double> span = now - first.at;
  if (span.count() <= 0) return {};
  return {.sequences_per_second = static_cast<double>(RateWindow() - 1) / span.count(),
          .tokens_per_second = static_cast<double>(rate_tokens_ - first.tokens) / span.count()};
}

}  // namespace sluice
