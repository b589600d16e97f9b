#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/read_file.h"
#include "base/status_macros.h"
#include "base/write_file.h"
#include "engine/model/model.h"
#include "loadtest/bench/daemon/benchmarks.h"
#include "loadtest/bench/daemon/buckets_arm.h"
#include "loadtest/bench/daemon/buckets_reference.h"
#include "loadtest/bench/daemon/buckets_report.h"
#include "loadtest/bench/daemon/buckets_workload.h"
#include "loadtest/load/commit.h"
#include "loadtest/load/report_json.h"

namespace sluice::loadtest {
namespace {

using nlohmann::json;

load::nanoseconds ToChrono(absl::Duration duration) { return absl::ToChronoNanoseconds(duration); }

// The open loop offers these shares of two peaks: the slowest arm's and the best arm's. Some loads
// are therefore low enough for the padded arms and others suit the packed arms.
constexpr double kShares[] = {0.4, 0.8};
// The largest share of its own peak that an arm receives; above it, the queue would only grow. It
// is above 1 because a peak is measured once, possibly while the machine was busy with other work.
constexpr double kMostShare = 1.25;
// The adaptive ladder must settle within this number of reviews.
constexpr int kMostReviews = 8;

class BucketsBench {
 public:
  BucketsBench(const BucketsOptions& options, std::shared_ptr<const Model> model,
               std::vector<TraceRow> trace)
      : options_(options),
        model_(std::move(model)),
        workload_(std::move(trace), static_cast<int32_t>(model_->config.max_positions),
                  static_cast<int32_t>(model_->config.vocab_size), options.seed) {}

  absl::Status Run();
  json Report() const;
  std::string Tables() const { return BucketsTables(result_); }

 private:
  absl::Status StartArms();
  // Records the answer to each request, sent one by one.
  absl::Status LearnAnswers();
  // Reviews the adaptive ladder under the traffic of a round until it no longer changes.
  absl::Status Settle();
  absl::Status FindLoads();
  absl::Status RunRound(int round);
  absl::StatusOr<Traffic> MakeTraffic(double rate);
  absl::StatusOr<Measurement> Measure(size_t arm, const Traffic& traffic);
  absl::Status Finish();

  const BucketsOptions& options_;
  const std::shared_ptr<const Model> model_;
  BucketsWorkload workload_;
  std::vector<std::unique_ptr<Arm>> arms_;
  load::AnswerBook answers_;
  std::vector<double> peaks_;  // requests per second of each arm, before the rounds
  BucketsResult result_;
  json settling_ = json::array();
  std::vector<json> buckets_;  // of each arm, at the end
  ReferenceError reference_;
};

absl::Status BucketsBench::Run() {
  for (const auto step : {&BucketsBench::StartArms, &BucketsBench::LearnAnswers,
                          &BucketsBench::FindLoads, &BucketsBench::Settle}) {
    SLUICE_RETURN_IF_ERROR((this->*step)());
  }
  for (int round = 0; round < options_.rounds; ++round) {
    SLUICE_RETURN_IF_ERROR(RunRound(round));
  }
  return Finish();
}

absl::Status BucketsBench::StartArms() {
  for (const ArmOptions& options : BucketArms(options_.strategies)) {
    SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Arm> arm,
                            Arm::Start(options, options_.sluiced, options_.model));
    arms_.push_back(std::move(arm));
    result_.arms.push_back(options);
  }
  return absl::OkStatus();
}

absl::Status BucketsBench::LearnAnswers() {
  // A phase has enough requests to include every length of the trace.
  SLUICE_RETURN_IF_ERROR(workload_.Open(20'000, std::chrono::seconds(1)).status());
  answers_.Prepare(workload_.pool().payloads());
  return arms_.back()->RunOneByOne(workload_.pool(), &answers_);
}

absl::StatusOr<Traffic> BucketsBench::MakeTraffic(double rate) {
  const load::nanoseconds duration = ToChrono(options_.warm_up + options_.phase);
  absl::StatusOr<Traffic> traffic =
      rate > 0 ? workload_.Open(rate, duration) : workload_.Closed(options_.outstanding, duration);
  if (traffic.ok()) answers_.Prepare(workload_.pool().payloads());
  return traffic;
}

absl::StatusOr<Measurement> BucketsBench::Measure(size_t arm, const Traffic& traffic) {
  SLUICE_ASSIGN_OR_RETURN(
      Measurement measured,
      arms_[arm]->Measure(workload_.pool(), traffic, ToChrono(options_.warm_up), &answers_));
  std::cerr << absl::StrFormat("%-20s %8.1f/s  %8.1f/s  %8.0f tokens/s  p50 %7.2f  p99 %7.2f ms\n",
                               arms_[arm]->options().name, traffic.rate, measured.sequences_per_s,
                               measured.tokens_per_s, measured.p50_ms, measured.p99_ms);
  return measured;
}

absl::Status BucketsBench::FindLoads() {
  SLUICE_ASSIGN_OR_RETURN(const Traffic traffic, MakeTraffic(0));
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    SLUICE_ASSIGN_OR_RETURN(const Measurement measured, Measure(arm, traffic));
    peaks_.push_back(measured.sequences_per_s);
  }
  const auto [slowest, best] = std::minmax_element(peaks_.begin(), peaks_.end());
  result_.loads.emplace_back();
  for (double peak : {*slowest, *best}) {
    for (double share : kShares) {
      result_.loads.emplace_back();
      result_.loads.back().rate = std::max(1.0, std::round(share * peak));
    }
  }
  for (LoadResult& load : result_.loads) load.arms.resize(arms_.size());
  return absl::OkStatus();
}

absl::Status BucketsBench::Settle() {
  for (int review = 0; review < kMostReviews; ++review) {
    for (const LoadResult& load : result_.loads) {
      SLUICE_ASSIGN_OR_RETURN(const Traffic traffic, MakeTraffic(load.rate));
      SLUICE_RETURN_IF_ERROR(Measure(arms_.size() - 1, traffic).status());
    }
    SLUICE_ASSIGN_OR_RETURN(const admin::v1::RunReviewResponse reviewed, arms_.back()->Review());
    std::cerr << "review: " << reviewed.reason() << "\n";
    settling_.push_back({{"changed", reviewed.changed()},
                         {"gain", reviewed.gain()},
                         {"reason", reviewed.reason()}});
    if (!reviewed.changed()) break;
  }
  return absl::OkStatus();
}

absl::Status BucketsBench::RunRound(int round) {
  for (LoadResult& load : result_.loads) {
    SLUICE_ASSIGN_OR_RETURN(const Traffic traffic, MakeTraffic(load.rate));
    for (size_t i = 0; i < arms_.size(); ++i) {
      // The order rotates, so that an arm does not always follow the same arm.
      const size_t arm = (i + static_cast<size_t>(round)) % arms_.size();
      load.arms[arm].emplace_back();
      if (load.rate > kMostShare * peaks_[arm]) continue;
      SLUICE_ASSIGN_OR_RETURN(load.arms[arm].back(), Measure(arm, traffic));
    }
  }
  return absl::OkStatus();
}

absl::Status BucketsBench::Finish() {
  for (const auto& arm : arms_) {
    SLUICE_ASSIGN_OR_RETURN(const admin::v1::ModelBuckets buckets, arm->Buckets());
    json capacities = json::array();
    for (const auto& use : buckets.buckets()) {
      if (use.in_ladder()) capacities.push_back(use.bucket().tokens());
    }
    const auto& law = buckets.cost_law();
    buckets_.push_back({{"profile", buckets.profile()},
                        {"memory_overhead", buckets.memory_overhead()},
                        {"bucket_fill", buckets.bucket_fill()},
                        {"executed_efficiency", buckets.executed_efficiency()},
                        {"hit_rate", buckets.hit_rate()},
                        {"plan_memory_bytes", buckets.plan_memory_bytes()},
                        {"slot_memory_bytes", buckets.slot_memory_bytes()},
                        {"shape_entropy_bits", buckets.shape_entropy_bits()},
                        {"ladder_tokens", capacities},
                        {"cost_law",
                         {{"base", law.base()},
                          {"per_bucket_token", law.per_bucket_token()},
                          {"per_computed_token", law.per_computed_token()},
                          {"per_context_token", law.per_context_token()},
                          {"per_distinct_position", law.per_distinct_position()},
                          {"per_sampled_row", law.per_sampled_row()}}}});
  }
  const auto longest = static_cast<int32_t>(model_->config.max_positions);
  SLUICE_ASSIGN_OR_RETURN(
      reference_,
      CompareWithReference(arms_.back()->connection(), *model_,
                           {1, 2, 7, longest / 8, longest / 4, longest}, options_.seed));
  return absl::OkStatus();
}

json BucketsBench::Report() const {
  json host = load::HostJson();
  host.erase("name");
  json report = {{"benchmark", "buckets"},
                 {"commit", std::string(load::kCommit)},
                 {"host", host},
                 {"rounds", options_.rounds},
                 {"phase_s", absl::ToDoubleSeconds(options_.phase)},
                 {"warm_up_s", absl::ToDoubleSeconds(options_.warm_up)},
                 {"outstanding", options_.outstanding},
                 {"seed", options_.seed},
                 {"lengths",
                  {{"cap", options_.cap},
                   {"positions", model_->config.max_positions},
                   {"distinct", workload_.DistinctLengths()},
                   {"mean", workload_.MeanLength()}}},
                 {"distinct_requests", workload_.pool().payloads().size()},
                 {"settling", settling_},
                 {"comparison", ComparisonJson(result_)},
                 {"reference",
                  {{"values", reference_.values},
                   {"largest_absolute_error", reference_.absolute},
                   {"largest_relative_error", reference_.relative}}}};
  for (size_t arm = 0; arm < arms_.size(); ++arm) {
    report["arms"].push_back(ArmJson(result_, arm));
    report["arms"].back()["buckets"] = buckets_[arm];
  }
  return report;
}

absl::StatusOr<std::vector<TraceRow>> ReadScaled(const std::string& path, int32_t cap,
                                                 int64_t positions) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<std::vector<TraceRow>> trace = ParseTrace(text);
  if (!trace.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", trace.status().message()));
  }
  if (positions > cap) {
    return absl::InvalidArgumentError(
        absl::StrCat("--cap is ", cap, ", must be at least the model's ", positions, " positions"));
  }
  return ScaleTrace(*std::move(trace), cap, static_cast<int32_t>(positions));
}

}  // namespace

absl::StatusOr<json> RunBuckets(const BucketsOptions& options) {
  if (options.rounds < 1 || options.outstanding < 1 || options.phase <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("rounds, outstanding and seconds must be above 0");
  }
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, LoadModel("model", 1, options.model));
  SLUICE_ASSIGN_OR_RETURN(std::vector<TraceRow> trace,
                          ReadScaled(options.trace, options.cap, model->config.max_positions));
  BucketsBench bench(options, std::move(model), std::move(trace));
  SLUICE_RETURN_IF_ERROR(bench.Run());
  if (!options.table.empty()) {
    SLUICE_RETURN_IF_ERROR(WriteFile(options.table, bench.Tables()));
  }
  return bench.Report();
}

}  // namespace sluice::loadtest
