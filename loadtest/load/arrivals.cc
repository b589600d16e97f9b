#include "loadtest/load/arrivals.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "loadtest/load/lengths.h"

namespace sluice::load {
namespace {

constexpr size_t kMaxArrivals = 20'000'000;

// Draws arrival times, one after the other, in seconds.
class Times {
 public:
  virtual ~Times() = default;
  virtual double Next() = 0;
};

class Exponential final : public Times {
 public:
  Exponential(double rate, uint64_t seed) : random_(seed), gap_(rate) {}
  double Next() override { return now_ += gap_(random_); }

 private:
  std::mt19937_64 random_;
  std::exponential_distribution<double> gap_;
  double now_ = 0;
};

class Constant final : public Times {
 public:
  explicit Constant(double rate) : gap_(1 / rate) {}
  double Next() override { return gap_ * static_cast<double>(next_++); }

 private:
  const double gap_;
  int64_t next_ = 0;
};

// A Markov-modulated Poisson process of two states, one of them silent. It runs a Poisson process
// on a clock that stops while the state is off.
class Bursty final : public Times {
 public:
  Bursty(const WorkloadOptions& options, double rate)
      : random_(options.seed),
        gap_(rate * options.burst_factor),
        on_(1 / options.burst_mean_s),
        off_(1 / (options.burst_mean_s * (options.burst_factor - 1))),
        on_left_(on_(random_)) {}

  double Next() override {
    double gap = gap_(random_);
    while (gap > on_left_) {
      gap -= on_left_;
      now_ += on_left_ + off_(random_);
      on_left_ = on_(random_);
    }
    on_left_ -= gap;
    return now_ += gap;
  }

 private:
  std::mt19937_64 random_;
  std::exponential_distribution<double> gap_, on_, off_;
  double on_left_;
  double now_ = 0;
};

// The times of a trace. When it repeats, a mean gap separates its last row from its first row.
class FromTrace final : public Times {
 public:
  FromTrace(const std::vector<TraceRow>& trace, double rate) : trace_(trace) {
    const double last = trace.back().arrival_s;
    const auto rows = static_cast<double>(trace.size());
    period_ = rows > 1 ? last * rows / (rows - 1) : 1;
    if (rate > 0 && period_ > 0) scale_ = rows / rate / period_;
  }
  double Next() override {
    const double at = (offset_ + trace_[next_].arrival_s) * scale_;
    if (++next_ == trace_.size()) {
      next_ = 0;
      offset_ += period_;
    }
    return at;
  }

 private:
  const std::vector<TraceRow>& trace_;
  double period_;
  double scale_ = 1;
  double offset_ = 0;
  size_t next_ = 0;
};

std::unique_ptr<Times> MakeTimes(const WorkloadOptions& options, const std::vector<TraceRow>& trace,
                                 double rate) {
  switch (options.arrivals) {
    case ArrivalKind::kBursty:
      return std::make_unique<Bursty>(options, rate);
    case ArrivalKind::kConstant:
      return std::make_unique<Constant>(rate);
    case ArrivalKind::kTrace:
      return std::make_unique<FromTrace>(trace, rate);
    case ArrivalKind::kExponential:
      break;
  }
  return std::make_unique<Exponential>(rate, options.seed);
}

bool NeedsTrace(const WorkloadOptions& options) {
  return options.arrivals == ArrivalKind::kTrace || options.lengths == "trace" ||
         options.max_tokens_from_trace;
}

absl::Status Check(const WorkloadOptions& options, const std::vector<TraceRow>& trace,
                   double rate) {
  const auto wrong = [](absl::string_view what) { return absl::InvalidArgumentError(what); };
  if (NeedsTrace(options) && trace.empty()) return wrong("this workload needs --trace");
  if (options.arrivals == ArrivalKind::kTrace && rate == 0) {
    if (trace.size() < 2 || trace.back().arrival_s <= 0) return wrong("the trace has no duration");
  } else if (!(rate > 0 && rate <= 1e7)) {
    return wrong("rate must be above 0 and at most 10 million per second");
  }
  if (options.arrivals == ArrivalKind::kTrace && trace.size() > 1 && trace.back().arrival_s <= 0) {
    return wrong("the trace has no duration");
  }
  if (!(options.burst_factor > 1 && options.burst_factor <= 1000)) {
    return wrong("burst-factor must be above 1 and at most 1000");
  }
  if (!(options.burst_mean_s > 0 && options.burst_mean_s <= 3600)) {
    return wrong("burst-mean must be above 0 and at most 3600 s");
  }
  if (options.cap < 1) return wrong("the cap of the lengths must be at least 1");
  if (options.max_tokens < -1 || options.max_tokens >= options.cap) {
    return wrong("max-tokens must be at least -1 and below the cap of the lengths");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Arrival>> MakeSchedule(const WorkloadOptions& options,
                                                  const std::vector<TraceRow>& trace, double rate,
                                                  nanoseconds duration) {
  SLUICE_RETURN_IF_ERROR(Check(options, trace, rate));
  const int32_t prompt_cap =
      options.max_tokens_from_trace ? options.cap : options.cap - std::max(options.max_tokens, 0);
  std::unique_ptr<Lengths> lengths;
  if (options.lengths != "trace") {
    SLUICE_ASSIGN_OR_RETURN(lengths, MakeLengths(options.lengths, prompt_cap));
  }
  // Lengths use a separate generator, so that they do not depend on how times are drawn.
  std::mt19937_64 random(options.seed + 1);
  const std::unique_ptr<Times> times = MakeTimes(options, trace, rate);
  const double end_s = std::chrono::duration<double>(duration).count();
  std::vector<Arrival> arrivals;
  for (double at = times->Next(); at < end_s; at = times->Next()) {
    if (arrivals.size() == kMaxArrivals) {
      return absl::InvalidArgumentError(
          "rate x duration is more than 20 million requests; reduce one of them");
    }
    const TraceRow row = trace.empty() ? TraceRow{} : trace[arrivals.size() % trace.size()];
    Arrival arrival;
    arrival.at = std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(at));
    arrival.tokens = lengths ? lengths->Next(random) : std::clamp(row.input_tokens, 1, prompt_cap);
    arrival.max_tokens = options.max_tokens_from_trace
                             ? std::min(row.output_tokens, options.cap - arrival.tokens)
                             : options.max_tokens;
    arrivals.push_back(arrival);
  }
  return arrivals;
}

}  // namespace sluice::load
