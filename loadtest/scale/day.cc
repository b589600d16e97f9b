#include "loadtest/scale/day.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "loadtest/simulate/workload.h"

namespace sluice::loadtest {
namespace {

// The load at the beginning of each hour.
constexpr std::array<double, 24> kHours = {.35, .28, .23, .20, .20, .23, .32, .50,
                                           .72, .88, .96, 1.0, .95, .92, .94, .97,
                                           .95, .90, .85, .88, .90, .82, .65, .48};
constexpr double kRampSeconds = 60;

class Rate {
 public:
  Rate(const DayOptions& options, std::mt19937_64* random)
      : options_(options), surges_(options.surges) {
    std::uniform_real_distribution<double> begin(0, Duration());
    for (double& at : surges_) at = begin(*random);
  }

  double Duration() const { return options_.hours * 3600; }
  double Most() const { return options_.surge; }
  // Returns the rate divided by the peak rate.
  double At(double time) const {
    double factor = 1;
    for (const double begin : surges_) {
      const double in =
          std::min(time - begin, begin + options_.surge_seconds - time) / kRampSeconds;
      factor = std::max(factor, 1 + (options_.surge - 1) * std::clamp(in, 0.0, 1.0));
    }
    return DayShape(time / Duration()) * factor;
  }

 private:
  const DayOptions& options_;
  std::vector<double> surges_;
};

}  // namespace

double DayShape(double share) {
  const double hour = std::clamp(share, 0.0, 1.0) * kHours.size();
  const auto before = static_cast<size_t>(hour);
  const double part = hour - static_cast<double>(before);
  return std::lerp(kHours[before % kHours.size()], kHours[(before + 1) % kHours.size()], part);
}

std::vector<Arrival> MakeDay(const DayOptions& options, std::mt19937_64* random) {
  constexpr size_t kSample = 1 << 16;
  const std::vector<int32_t> lengths =
      MakeLengths(Lengths::kLogNormal, kSample, options.cap, random);
  const double mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / kSample;
  const Rate rate(options, random);
  // The process is thinned: arrivals come at the highest rate, and each is kept with the
  // probability of its time.
  const double most = rate.Most() * options.peak_tokens_per_second / mean;
  std::exponential_distribution<double> gap(most);
  std::uniform_real_distribution<double> chance(0, rate.Most());
  std::vector<Arrival> arrivals;
  for (double now = gap(*random); now < rate.Duration(); now += gap(*random)) {
    if (chance(*random) >= rate.At(now)) continue;
    arrivals.push_back({.at = MonoTime(nanoseconds(std::llround(now * 1e9))),
                        .tokens = lengths[(*random)() % kSample]});
  }
  return arrivals;
}

}  // namespace sluice::loadtest
