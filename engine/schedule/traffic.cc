#include "engine/schedule/traffic.h"

#include <chrono>
#include <cmath>

#include "base/check.h"

namespace sluice {
namespace {

constexpr double kRescaleHalfLives = 8;
constexpr double kNothing = 1.0 / 1024;

}  // namespace

void DecayedHistogram::Add(int32_t tokens, MonoTime now) {
  if (scaled_.empty()) origin_ = latest_ = now;
  latest_ = std::max(latest_, now);
  if (Age(latest_) > kRescaleHalfLives) Rescale();
  const double grown = std::exp2(Age(latest_));
  scaled_[tokens] += grown;
  scaled_total_ += grown;
}

double DecayedHistogram::Age(MonoTime time) const {
  return std::chrono::duration<double>(time - origin_) / std::chrono::duration<double>(half_life_);
}

double DecayedHistogram::Shrink() const { return std::exp2(-Age(latest_)); }

void DecayedHistogram::Rescale() {
  const double shrink = Shrink();
  scaled_total_ = 0;
  for (auto it = scaled_.begin(); it != scaled_.end();) {
    it->second *= shrink;
    scaled_total_ += it->second;
    if (it->second >= kNothing) {
      ++it;
      continue;
    }
    scaled_total_ -= it->second;
    it = scaled_.erase(it);
  }
  origin_ = latest_;
}

std::vector<TokenWeight> DecayedHistogram::Entries() const {
  std::vector<TokenWeight> entries;
  entries.reserve(scaled_.size());
  const double shrink = Shrink();
  for (const auto& [tokens, count] : scaled_) entries.push_back({tokens, count * shrink});
  return entries;
}

double DecayedHistogram::Entropy() const {
  double bits = 0;
  for (const TokenWeight& entry : Entries()) {
    const double share = entry.weight / total();
    if (share > 0) bits -= share * std::log2(share);
  }
  return std::max(bits, 0.0);
}

Traffic::Traffic(nanoseconds half_life) : lengths_(half_life), batch_tokens_(half_life) {
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
