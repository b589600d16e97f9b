#include "engine/runner/models/later_plans.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/thread_priority.h"
#include "engine/runner/models/memory_limit.h"

namespace sluice {

LaterPlans::LaterPlans(ModelRunner* runner, int64_t memory_limit_bytes, Observer* observer)
    : runner_(runner), limit_bytes_(memory_limit_bytes), observer_(observer) {
  if (runner_->plans()->MostRequested().has_value()) thread_ = std::thread([this] { Run(); });
}

void LaterPlans::Finish() {
  MutexLock lock(&join_mu_);
  if (thread_.joinable()) thread_.join();
}

void LaterPlans::Stop() {
  stopping_ = true;
  Finish();
}

void LaterPlans::Run() {
  LowerThreadPriority();
  PlanCache* const plans = runner_->plans();
  while (!stopping_) {
    const std::optional<Bucket> bucket = plans->MostRequested();
    if (!bucket.has_value()) return;
    const absl::Status status = Prepare(*bucket);
    if (status.ok()) continue;
    std::vector<Bucket> dropped = {*bucket};
    if (absl::IsResourceExhausted(status)) {
      const std::vector<Bucket> awaited = plans->Awaited();
      dropped.insert(dropped.end(), awaited.begin(), awaited.end());
    }
    if (over_limit_) evicted_ += std::ssize(dropped);
    Drop(dropped);
    std::string notice = absl::StrCat("the ladder loses ", dropped.size(), " buckets at ",
                                      bucket->tokens, " tokens: ", status.message());
    if (over_limit_) absl::StrAppend(&notice, ". ", DescribeLimit(dropped));
    observer_->OnNotice(*runner_->model(), notice);
  }
}

absl::Status LaterPlans::Prepare(const Bucket& bucket) {
  PlanCache* const plans = runner_->plans();
  absl::Status status = plans->Prepare(bucket);
  if (status.ok() && limit_bytes_ > 0 && plans->ladder_bytes() > limit_bytes_) {
    over_limit_ = true;
    status = absl::ResourceExhaustedError("its plan exceeds engine.ladder.memory_limit_bytes");
  }
  return status;
}

std::string LaterPlans::DescribeLimit(const std::vector<Bucket>& dropped) {
  const ModelRunner::ReviewState state = runner_->StateForReview();
  std::string text = LeftOutText(limit_bytes_, dropped, *state.ladder, state.costs);
  MutexLock lock(&effect_mu_);
  limit_effect_ = text;
  return text;
}

void LaterPlans::Drop(const std::vector<Bucket>& buckets) {
  std::vector<Bucket> kept;
  const std::shared_ptr<const Ladder> ladder = runner_->StateForReview().ladder;
  std::ranges::copy_if(ladder->buckets(), std::back_inserter(kept), [&](const Bucket& bucket) {
    return std::ranges::find(buckets, bucket) == buckets.end();
  });
  runner_->SetLadder(std::make_shared<const Ladder>(std::move(kept)));
  for (const Bucket& bucket : buckets) runner_->plans()->Withdraw(bucket);
  runner_->ReleaseWithdrawnPlans();
}

}  // namespace sluice
