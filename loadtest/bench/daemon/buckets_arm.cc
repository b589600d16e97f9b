#include "loadtest/bench/daemon/buckets_arm.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/http_get.h"
#include "loadtest/load/run.h"
#include "loadtest/load/stats.h"

namespace sluice::loadtest {
namespace {

std::vector<std::string> Flags(const ArmOptions& options) {
  std::vector<std::string> flags = {
      "--engine.batch.policy",           std::string(NameOf(options.policy)),
      "--engine.batch.max-queue-delay",  absl::StrCat(options.max_queue_delay_us, "us"),
      "--engine.ladder.strategy",        std::string(NameOf(options.strategy)),
      "--engine.ladder.review.interval", "0"};
  if (options.max_buckets > 0) {
    flags.insert(flags.end(), {"--engine.ladder.max-buckets", absl::StrCat(options.max_buckets)});
  }
  if (IsPadded(options.policy)) {  // columns at powers of two
    flags.insert(flags.end(), {"--engine.ladder.ratio", "2", "--engine.ladder.min-tokens", "1",
                               "--engine.ladder.max-buckets", "1024"});
  }
  return flags;
}

}  // namespace

std::vector<ArmOptions> BucketArms(bool strategies) {
  constexpr int64_t kDelayUs = 5000;
  using enum PolicyKind;
  using enum StrategyKind;
  if (strategies) {
    return {{"one_bucket", "one_bucket", kPacked, kGeometric, 0, /*max_buckets=*/1},
            {"geometric", "geometric", kPacked, kGeometric},
            {"memory_optimal", "memory_optimal", kPacked, kMemoryOptimal},
            {"hardware_aware", "hardware_aware", kPacked, kHardwareAware},
            {"adaptive", "adaptive", kPacked, kAdaptive}};
  }
  return {
      {"static_padded", "static_padded", kStaticPadded, kGeometric},
      {"static_padded_5ms", "static_padded", kStaticPadded, kGeometric, kDelayUs},
      {"padded_buckets", "padded_buckets", kPaddedBuckets, kGeometric},
      {"padded_buckets_5ms", "padded_buckets", kPaddedBuckets, kGeometric, kDelayUs},
      {"fifo_geometric", "fifo_geometric", kFifoPacked, kGeometric},
      {"packed_geometric", "packed_geometric", kPacked, kGeometric},
      {"packed_adaptive", "packed_adaptive", kPacked, kAdaptive},
  };
}

absl::StatusOr<std::unique_ptr<Arm>> Arm::Start(const ArmOptions& options,
                                                const std::string& sluiced,
                                                const std::string& model) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Daemon> daemon,
                          Daemon::Start(sluiced, model, Flags(options)));
  return std::unique_ptr<Arm>(new Arm(options, std::move(daemon)));
}

Arm::Arm(ArmOptions options, std::unique_ptr<Daemon> daemon)
    : options_(std::move(options)), daemon_(std::move(daemon)) {}

absl::StatusOr<Arm::Account> Arm::Read() const {
  SLUICE_ASSIGN_OR_RETURN(const std::string page, client::HttpGet(daemon_->metrics_address(),
                                                                  "/metrics", absl::Seconds(10)));
  SLUICE_ASSIGN_OR_RETURN(load::Reading reading, load::ParseReading(page, kModel));
  SLUICE_ASSIGN_OR_RETURN(const absl::Duration cpu, daemon_->process().CpuTime());
  return Account{std::move(reading), cpu};
}

absl::StatusOr<Measurement> Arm::Measure(const load::PayloadPool& pool, const Traffic& traffic,
                                         load::nanoseconds warm_up, load::AnswerBook* answers) {
  SLUICE_ASSIGN_OR_RETURN(const Account before, Read());
  load::Live live;
  const load::PhaseData data =
      traffic.outstanding > 0
          ? load::RunClosedLoop({}, daemon_->channels(), pool, traffic.payloads,
                                traffic.outstanding, traffic.duration, answers, &live)
          : load::RunOpenLoop({}, daemon_->channels(), pool, traffic.arrivals, traffic.payloads,
                              traffic.duration, answers, &live);
  SLUICE_ASSIGN_OR_RETURN(const Account after, Read());

  const load::PhaseStats stats = load::Analyse(data, warm_up, load::Objective());
  Measurement result;
  result.ran = true;
  result.sequences_per_s = stats.answered_per_s;
  result.tokens_per_s = stats.tokens_per_s;
  const auto ms = [](load::nanoseconds time) { return 1e-6 * static_cast<double>(time.count()); };
  result.p50_ms = ms(stats.latency.p50);
  result.p99_ms = ms(stats.latency.p99);
  result.lateness_p99_ms = ms(stats.lateness.p99);
  result.calls = std::ssize(data.calls);
  for (const load::CallRecord& call : data.calls) {
    result.failed += call.outcome == load::Outcome::kOk ? 0 : 1;
  }
  result.wrong = stats.wrong;
  result.batches = after.reading.batches - before.reading.batches;
  result.useful_tokens = after.reading.useful_tokens - before.reading.useful_tokens;
  result.computed_tokens = after.reading.computed_tokens - before.reading.computed_tokens;
  result.bucket_tokens = after.reading.bucket_tokens - before.reading.bucket_tokens;
  result.captures = after.reading.captures - before.reading.captures;
  result.cpu_s = absl::ToDoubleSeconds(after.cpu - before.cpu);
  return result;
}

absl::Status Arm::RunOneByOne(const load::PayloadPool& pool, load::AnswerBook* answers) {
  std::vector<uint32_t> all(pool.payloads().size());
  std::iota(all.begin(), all.end(), 0);
  absl::Span<const uint32_t> left = all;
  while (!left.empty()) {
    load::Live live;
    const load::PhaseData data = load::RunClosedLoop({}, daemon_->channels(), pool, left, 1,
                                                     std::chrono::seconds(1), answers, &live);
    for (const load::CallRecord& call : data.calls) {
      if (call.outcome == load::Outcome::kOk) continue;
      const std::string reason =
          data.errors.empty() ? "" : data.errors.begin()->second.first_message;
      return absl::InternalError(absl::StrCat(options_.name, ": a request sent by itself ended as ",
                                              std::string(NameOf(call.outcome)), " ", reason));
    }
    left.remove_prefix(std::min(left.size(), data.calls.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<admin::v1::RunReviewResponse> Arm::Review() const {
  return connection().Review(kModel, "", /*force=*/false);
}

absl::StatusOr<admin::v1::ModelBuckets> Arm::Buckets() const {
  SLUICE_ASSIGN_OR_RETURN(const admin::v1::GetBucketsResponse buckets,
                          connection().Buckets(kModel, ""));
  if (buckets.models_size() != 1) return absl::InternalError("GetBuckets lacks the model");
  return buckets.models(0);
}

}  // namespace sluice::loadtest
