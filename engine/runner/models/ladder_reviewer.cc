#include "engine/runner/models/ladder_reviewer.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/thread_priority.h"
#include "engine/review/ladder_benchmark.h"
#include "engine/review/strategies.h"
#include "engine/runner/models/memory_limit.h"

namespace sluice {
namespace {

absl::Status CheckChoice(PolicyKind policy) {
  if (policy != PolicyKind::kStaticPadded) return absl::OkStatus();
  return absl::FailedPreconditionError("the ladder of static_padded has one column and is fixed");
}

// Returns `value` of the prepared bucket, or interpolates it by the number of tokens.
double Interpolate(const std::vector<BucketStats>& known, int32_t tokens,
                   double (*value)(const BucketStats&)) {
  const auto above = std::partition_point(
      known.begin(), known.end(), [&](const BucketStats& at) { return at.bucket.tokens < tokens; });
  if (above == known.end()) return value(known.back());
  if (above == known.begin() || above->bucket.tokens == tokens) return value(*above);
  const BucketStats& below = *std::prev(above);
  const double share = static_cast<double>(tokens - below.bucket.tokens) /
                       (above->bucket.tokens - below.bucket.tokens);
  return value(below) + share * (value(*above) - value(below));
}

PlanCost PlanCostFrom(std::vector<BucketStats> stats) {
  std::erase_if(stats, [](const BucketStats& bucket) { return !bucket.ready; });
  // The buckets of a padded ladder ascend in positions, not in tokens.
  std::ranges::stable_sort(stats, {},
                           [](const BucketStats& bucket) { return bucket.bucket.tokens; });
  SLUICE_CHECK(!stats.empty());  // the maximum is always ready
  const auto known = std::make_shared<const std::vector<BucketStats>>(std::move(stats));
  return {.capture_seconds =
              [known](const Bucket& bucket) {
                return Interpolate(*known, bucket.tokens, [](const BucketStats& at) {
                  return std::chrono::duration<double>(at.prepare_time).count();
                });
              },
          .memory_bytes =
              [known](const Bucket& bucket) {
                return static_cast<int64_t>(Interpolate(
                    *known, bucket.tokens,
                    [](const BucketStats& at) { return static_cast<double>(at.memory_bytes); }));
              }};
}

// Returns the options with the memory that is left for plans: memory_limit_bytes minus the
// activations, which the maximum needs with any ladder.
LadderOptions WithoutActivations(LadderOptions options, const Ladder& ladder,
                                 const std::vector<BucketStats>& known) {
  if (options.memory_limit_bytes == 0) return options;
  const auto largest = std::ranges::find(known, ladder.largest(), &BucketStats::bucket);
  SLUICE_CHECK(largest != known.end());
  options.memory_limit_bytes =
      std::max<int64_t>(options.memory_limit_bytes - largest->activation_bytes, 1);
  return options;
}

std::vector<Bucket> BucketsOf(const Ladder& ladder) {
  return {ladder.buckets().begin(), ladder.buckets().end()};
}

}  // namespace

LadderReviewer::LadderReviewer(ModelRunner* runner, LaterPlans* later_plans,
                               const EngineOptions& options, std::optional<LadderFile> file,
                               LadderChoice kept, Clock* clock, Observer* observer)
    : runner_(runner),
      later_plans_(later_plans),
      options_(options),
      file_(std::move(file)),
      clock_(clock),
      observer_(observer),
      ladder_(*Apply(kept, options.ladder)),
      kept_(std::move(kept)) {
  MutexLock turn(&turn_mu_);
  StartReviews();
}

LadderReviewer::~LadderReviewer() {
  thread_.reset();
  Save().IgnoreError();
}

LadderOptions LadderReviewer::ladder_options() const {
  MutexLock lock(&mu_);
  return ladder_;
}

bool LadderReviewer::ReviewsByItself() const {
  const LadderOptions ladder = ladder_options();
  const PolicyKind policy = options_.batch.policy;
  const bool fits =
      ladder.strategy == StrategyKind::kAdaptive && LadderMatters(runner_->limits().rows, policy);
  return (fits || ladder.min_bucket_usage > 0) && ladder.review.interval_us > 0 &&
         policy != PolicyKind::kStaticPadded;
}

void LadderReviewer::StartReviews() {
  if (thread_.has_value() || !ReviewsByItself()) return;
  thread_.emplace(clock_, std::chrono::microseconds(options_.ladder.review.interval_us),
                  [this] { ReviewNewArrivals(); });
}

void LadderReviewer::ReviewNewArrivals() {
  LowerThreadPriority();
  if (!ReviewsByItself()) return;
  const uint64_t arrivals = runner_->Arrivals();
  if (std::exchange(reviewed_arrivals_, arrivals) == arrivals) return;
  const absl::StatusOr<ReviewReport> report = Review(/*force=*/false);
  SLUICE_CHECK(report.ok());  // the policy has a choice of ladder
}

absl::StatusOr<ReviewReport> LadderReviewer::Review(bool force) {
  SLUICE_RETURN_IF_ERROR(CheckChoice(options_.batch.policy));
  MutexLock turn(&turn_mu_);
  later_plans_->Finish();
  const ModelRunner::ReviewState state = runner_->StateForReview();
  // If the largest bucket is eager, memory may have become free. It serves either way.
  runner_->plans()->Prepare(state.ladder->largest()).IgnoreError();
  const std::vector<BucketStats> known = runner_->plans()->Stats();
  LadderReview review = ReviewLadder(WithoutActivations(ladder_options(), *state.ladder, known),
                                     options_.batch, runner_->limits(), *state.ladder, state.costs,
                                     state.traffic, PlanCostFrom(known), force);
  ReviewReport report;
  const absl::Status adopted = Adopt(state, std::move(review), &report);
  if (!adopted.ok()) {
    report.reason = absl::StrCat("a plan could not be prepared: ", adopted.message());
  }
  observer_->OnReview(*runner_->model(), report);
  if (report.changed) Save().IgnoreError();
  return report;
}

absl::StatusOr<ReviewReport> LadderReviewer::Choose(const LadderChoice& choice, bool keep) {
  SLUICE_RETURN_IF_ERROR(CheckChoice(options_.batch.policy));
  if (keep && !file_.has_value()) {
    return absl::FailedPreconditionError(
        "keep: engine.ladder.file is empty, so the choice cannot be kept. Set engine.ladder.file");
  }
  SLUICE_ASSIGN_OR_RETURN(LadderOptions chosen, Apply(choice, options_.ladder));
  MutexLock turn(&turn_mu_);
  later_plans_->Finish();
  const ModelRunner::ReviewState state = runner_->StateForReview();
  const std::vector<BucketStats> known = runner_->plans()->Stats();
  SLUICE_ASSIGN_OR_RETURN(LadderReview review,
                          AdoptLadder(WithoutActivations(chosen, *state.ladder, known),
                                      options_.batch, runner_->limits(), *state.ladder, state.costs,
                                      state.traffic, PlanCostFrom(known)));
  ReviewReport report;
  SLUICE_RETURN_IF_ERROR(Adopt(state, std::move(review), &report));
  const auto largest = std::ranges::find(known, state.ladder->largest(), &BucketStats::bucket);
  const std::string unmet = UnmetLimitText(chosen.memory_limit_bytes, largest->bucket,
                                           largest->memory_bytes + largest->activation_bytes);
  if (!unmet.empty()) absl::StrAppend(&report.reason, ". ", unmet);
  LadderChoice formerly_kept;
  {
    MutexLock lock(&mu_);
    ladder_ = std::move(chosen);
    formerly_kept = kept_;
    if (keep) kept_ = choice;
  }
  StartReviews();
  observer_->OnReview(*runner_->model(), report);
  const absl::Status saved = Save();
  if (!keep || saved.ok()) return report;
  {
    MutexLock lock(&mu_);
    kept_ = std::move(formerly_kept);  // no later write may keep a choice that was reported as lost
  }
  return absl::FailedPreconditionError(
      absl::StrCat("keep: the ladder is changed, but the choice is not kept, because "
                   "engine.ladder.file was not written: ",
                   saved.message(), ". Repair this and set the ladder again"));
}

absl::StatusOr<StrategyTrials> LadderReviewer::TryStrategies() const {
  const ModelRunner::ReviewState state = runner_->StateForReview();
  std::vector<Arrival> arrivals = state.traffic.RecentArrivals();
  std::ranges::stable_sort(arrivals, {}, &Arrival::at);
  const std::vector<BucketStats> known = runner_->plans()->Stats();
  const StrategyContest contest{
      .ladder = WithoutActivations(ladder_options(), *state.ladder, known),
      .batch = options_.batch,
      .limits = runner_->limits(),
      .costs = state.costs,
      .plan_cost = PlanCostFrom(known)};
  return sluice::TryStrategies(contest, arrivals, state.ladder.get());
}

absl::Status LadderReviewer::Adopt(const ModelRunner::ReviewState& state, LadderReview review,
                                   ReviewReport* report) {
  report->before = report->after = BucketsOf(*state.ladder);
  report->gain = review.gain;
  report->bucket_fill_before = review.bucket_fill_before;
  report->bucket_fill_after = review.bucket_fill_after;
  report->reason = std::move(review.reason);
  absl::Status prepared;
  if (review.ladder != nullptr) prepared = Prepare(*state.ladder, *review.ladder);
  if (review.ladder != nullptr && prepared.ok()) {
    report->changed = true;
    report->after = BucketsOf(*review.ladder);
    report->diff = std::move(review.diff);
    runner_->SetLadder(review.ladder);
    Withdraw(*state.ladder, *review.ladder);
  }
  Count(*report, report->changed ? review.evicted : 0);
  return prepared;
}

absl::Status LadderReviewer::Prepare(const Ladder& present, const Ladder& ladder) {
  std::vector<Bucket> prepared;
  for (const Bucket& bucket : ladder.buckets()) {
    if (present.Contains(bucket)) continue;
    const absl::Status status = runner_->plans()->Prepare(bucket);
    if (!status.ok()) {
      for (const Bucket& unused : prepared) runner_->plans()->Withdraw(unused);
      return status;
    }
    prepared.push_back(bucket);
  }
  return absl::OkStatus();
}

void LadderReviewer::Withdraw(const Ladder& former, const Ladder& ladder) {
  for (const Bucket& bucket : former.buckets()) {
    if (!ladder.Contains(bucket)) runner_->plans()->Withdraw(bucket);
  }
  runner_->ReleaseWithdrawnPlans();
}

void LadderReviewer::Count(const ReviewReport& report, int64_t evicted) {
  MutexLock lock(&mu_);
  ++changes_.reviews;
  changes_.added += std::ssize(report.diff.added);
  changes_.removed += std::ssize(report.diff.removed);
  changes_.merged += std::ssize(report.diff.merged);
  changes_.split += std::ssize(report.diff.split);
  changes_.evicted += evicted;
}

void LadderReviewer::Describe(ModelStats* stats) const {
  MutexLock lock(&mu_);
  stats->ladder_changes = changes_;
  stats->ladder_options = ladder_;
  stats->ladder_kept = kept_;
}

void LadderReviewer::StartWriting() {
  MutexLock lock(&file_mu_);
  writes_ = true;
}

void LadderReviewer::HandOver() {
  MutexLock lock(&file_mu_);
  SaveLocked().IgnoreError();
  writes_ = false;
}

absl::Status LadderReviewer::Save() {
  MutexLock lock(&file_mu_);
  return SaveLocked();
}

absl::Status LadderReviewer::SaveLocked() {
  if (!file_) return absl::OkStatus();
  if (!writes_) return absl::FailedPreconditionError("the model is being loaded again");
  const ModelRunner::ReviewState state = runner_->StateForReview();
  LadderChoice kept;
  {
    MutexLock lock(&mu_);
    kept = kept_;
  }
  const absl::Status written = file_->Write(*state.ladder, state.costs.state(), kept);
  if (!written.ok()) {
    observer_->OnWriteFailed(WrittenFile::kLadder);
    observer_->OnNotice(*runner_->model(),
                        absl::StrCat("the ladder file was not written: ", written.message()));
  }
  return written;
}

}  // namespace sluice
