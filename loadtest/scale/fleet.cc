#include "loadtest/scale/fleet.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/ladder/strategy.h"
#include "loadtest/scale/replica.h"
#include "loadtest/scale/signals.h"

namespace sluice::loadtest {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

MonoTime At(double seconds) { return MonoTime(nanoseconds(std::llround(seconds * 1e9))); }

class Fleet {
 public:
  Fleet(std::span<const Arrival> arrivals, const FleetOptions& options, Ladder ladder)
      : arrivals_(arrivals), options_(options), random_(options.seed) {
    model_.batch = options.batch;
    model_.ladder = std::make_shared<const Ladder>(std::move(ladder));
    model_.costs = options.costs;
    model_.warm = CostModel(options.costs.rows);
    model_.on_done = [this](MonoTime arrived, MonoTime end) { Done(arrived, end); };
    for (const Bucket& bucket : model_.ladder->buckets()) {
      const StepShape full{.bucket = bucket, .computed_tokens = bucket.tokens};
      for (int i = 0; i < 3; ++i) model_.warm.Observe(full, options.costs(full));
    }
    if (options.rule) autoscaler_.emplace(*options.rule);
    if (options.rule) {
      for (const ScalingTarget& target : options.rule->targets) {
        window_seconds_ = std::max(window_seconds_, target.window_seconds);
      }
    }
    end_seconds_ = Seconds(arrivals.back().at - MonoTime());
    bins_.resize(static_cast<size_t>(end_seconds_ / options.bin_seconds) + 1);
  }

  FleetResult Run() {
    Scale(options_.replicas, /*ready_at=*/0);
    result_.least = result_.most = options_.replicas;
    for (const Arrival& arrival : arrivals_) {
      const double now = Seconds(arrival.at - MonoTime());
      AdvanceTo(now);
      Replica& replica = Choose(arrival.at);
      replica.Arrive(arrival.tokens);
    }
    AdvanceTo(end_seconds_);
    // Lets the remaining sequences end. That time does not count as load.
    for (const auto& member : members_) member->replica.RunUntil(MonoTime::max() - nanoseconds(1));
    return Finish();
  }

 private:
  struct Member {
    Member(const ReplicaModel* model, double ready) : replica(model), ready_at(ready) {}
    Replica replica;
    Samples samples;
    double busy = 0;  // the busy seconds of a bin
    double ready_at;
    double leaves_at = kNever;
  };
  struct Bin {
    std::vector<double> latencies;
    double replica_seconds = 0, busy_seconds = 0;
  };

  Bin& BinAt(double seconds) {
    return bins_[std::min(static_cast<size_t>(seconds / options_.bin_seconds), bins_.size() - 1)];
  }

  void Done(MonoTime arrived, MonoTime end) {
    BinAt(Seconds(arrived - MonoTime())).latencies.push_back(Seconds(end - arrived));
  }

  // Runs the scrapes and syncs up to `time`. A sync runs before a scrape at the same time, so the
  // autoscaler uses the scrape before that.
  void AdvanceTo(double time) {
    while (std::min(next_scrape_, next_sync_) <= time) {
      const double now = std::min(next_scrape_, next_sync_);
      Account(now);
      if (next_sync_ <= now) Sync(now);
      if (next_scrape_ <= now) Scrape(now);
      RemoveEnded(now);
    }
    Account(time);
  }

  void Account(double now) {
    BinAt(accounted_).replica_seconds += static_cast<double>(members_.size()) * (now - accounted_);
    result_.replica_hours += static_cast<double>(members_.size()) * (now - accounted_) / 3600;
    accounted_ = now;
  }

  void Scrape(double now) {
    next_scrape_ += options_.scrape_seconds;
    for (const auto& member : members_) {
      if (member->ready_at > now) continue;
      member->replica.RunUntil(At(now));
      BinAt(now).busy_seconds += member->replica.BusySeconds() -
                                 std::exchange(member->busy, member->replica.BusySeconds());
      member->samples.Add(now, member->replica.DrainSeconds(), member->replica.BusySeconds());
      member->samples.Keep(now, window_seconds_);
    }
  }

  void Sync(double now) {
    next_sync_ += options_.sync_seconds;
    if (!autoscaler_) return;
    std::vector<double> sums;
    for (const ScalingTarget& target : options_.rule->targets) {
      double& sum = sums.emplace_back(0);
      for (const auto& member : members_) sum += member->samples.Over(now, target);
      for (const auto& [samples, until] : gone_) sum += samples.Over(now, target);
    }
    const int before = wanted_;
    Scale(autoscaler_->Decide(now, wanted_, sums), now + options_.startup_seconds, now);
    if (wanted_ != before) ++result_.changes;
    result_.least = std::min(result_.least, wanted_);
    result_.most = std::max(result_.most, wanted_);
  }

  void Scale(int count, double ready_at, double now = 0) {
    for (; wanted_ < count; ++wanted_) {
      members_.push_back(std::make_unique<Member>(&model_, ready_at));
    }
    // Members are sorted by age, so the replicas that are not ready are among the last.
    for (auto it = members_.rbegin(); wanted_ > count; ++it) {
      if ((*it)->leaves_at != kNever) continue;
      (*it)->leaves_at = now;
      --wanted_;
    }
  }

  void RemoveEnded(double now) {
    std::erase_if(gone_, [&](const auto& gone) { return gone.second < now; });
    std::erase_if(members_, [&](std::unique_ptr<Member>& member) {
      const bool ended = member->leaves_at + options_.drain_delay_seconds <= now &&
                         member->replica.outstanding() == 0;
      if (ended) gone_.emplace_back(std::move(member->samples), now + window_seconds_);
      return ended;
    });
  }

  // Returns the replica for a new sequence, from the state of both candidates at `at`.
  Replica& Choose(MonoTime at) {
    const double now = Seconds(at - MonoTime());
    serving_.clear();
    for (const auto& member : members_) {
      if (member->ready_at <= now && member->leaves_at == kNever)
        serving_.push_back(&member->replica);
    }
    Replica* const first = serving_[random_() % serving_.size()];
    Replica* const second = serving_[random_() % serving_.size()];
    first->RunUntil(at);
    second->RunUntil(at);
    return first->outstanding() <= second->outstanding() ? *first : *second;
  }

  FleetResult Finish() {
    std::vector<double> all;
    for (size_t i = 0; i < bins_.size(); ++i) {
      Bin& bin = bins_[i];
      std::ranges::sort(bin.latencies);
      all.insert(all.end(), bin.latencies.begin(), bin.latencies.end());
      const double begin = static_cast<double>(i) * options_.bin_seconds;
      const double seconds = std::min(options_.bin_seconds, end_seconds_ - begin);
      result_.bins.push_back({.begin_seconds = begin,
                              .arrivals = std::ssize(bin.latencies),
                              .p50_seconds = Quantile(bin.latencies, 0.5),
                              .p99_seconds = Quantile(bin.latencies, 0.99)});
      if (seconds <= 0 || bin.replica_seconds <= 0) continue;
      result_.bins.back().replicas = bin.replica_seconds / seconds;
      result_.bins.back().busy_share = bin.busy_seconds / bin.replica_seconds;
    }
    std::ranges::sort(all);
    result_.p50_seconds = Quantile(all, 0.5);
    result_.p99_seconds = Quantile(all, 0.99);
    const auto within = std::ranges::upper_bound(all, options_.objective_seconds) - all.begin();
    result_.share_within = static_cast<double>(within) / static_cast<double>(all.size());
    return std::move(result_);
  }

  const std::span<const Arrival> arrivals_;
  const FleetOptions& options_;
  ReplicaModel model_;
  std::optional<Autoscaler> autoscaler_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Member>> members_;  // oldest first
  std::vector<Replica*> serving_;                 // scratch
  // The samples of removed members, and the time until which they are kept.
  std::vector<std::pair<Samples, double>> gone_;
  int wanted_ = 0;
  double window_seconds_ = 0, end_seconds_ = 0;
  double next_scrape_ = 0, next_sync_ = 0, accounted_ = 0;
  std::vector<Bin> bins_;
  FleetResult result_;
};

absl::Status CheckFleet(std::span<const Arrival> arrivals, const FleetOptions& options) {
  if (arrivals.empty()) return absl::InvalidArgumentError("nothing arrives");
  if (options.replicas < 1) return absl::InvalidArgumentError("a fleet needs at least 1 replica");
  for (const double seconds : {options.scrape_seconds, options.sync_seconds, options.bin_seconds}) {
    if (!(seconds > 0)) return absl::InvalidArgumentError("every interval must be above 0");
  }
  for (const Arrival& arrival : arrivals) {
    if (arrival.tokens < 1 || arrival.tokens > options.batch.max_batch_tokens) {
      return absl::InvalidArgumentError(absl::StrCat("a sequence of ", arrival.tokens,
                                                     " tokens; max_batch_tokens is ",
                                                     options.batch.max_batch_tokens));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FleetResult> RunFleet(std::span<const Arrival> arrivals,
                                     const FleetOptions& options) {
  SLUICE_RETURN_IF_ERROR(CheckFleet(arrivals, options));
  const LadderLimits limits{.max_tokens = options.batch.max_batch_tokens,
                            .max_sequences = options.batch.max_batch_sequences};
  SLUICE_ASSIGN_OR_RETURN(Ladder ladder,
                          BuildLadder({.strategy = StrategyKind::kGeometric}, limits));
  return Fleet(arrivals, options, std::move(ladder)).Run();
}

}  // namespace sluice::loadtest
