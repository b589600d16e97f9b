#include "engine/runner/models/bucket_warm_up.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/interruption.h"
#include "base/status_macros.h"
#include "engine/schedule/step_shape.h"

namespace sluice {
namespace {

// The time for an idle device's clock to rise under load.
constexpr std::chrono::milliseconds kClockRise{300};

// Returns a request with rows of at most `longest` tokens: `tokens` in total, or fewer if the
// bucket's number of sequences requires it.
Request Rows(int32_t tokens, int32_t longest, const Bucket& bucket,
             const std::shared_ptr<const Model>& model) {
  auto spec = std::make_shared<RequestSpec>();
  spec->model = model;
  if (!model->generates()) spec->max_tokens = 0;
  int32_t left = tokens;
  while (left > 0 && std::ssize(spec->lengths) < bucket.sequences) {
    spec->lengths.push_back(std::min(left, longest));
    left -= spec->lengths.back();
  }
  Request request;
  request.spec = std::move(spec);
  request.tokens.resize(tokens - left);
  for (int64_t i = 0; i < std::ssize(request.tokens); ++i) {
    request.tokens[i] = i % model->config.vocab_size;
  }
  return request;
}

// The maximum number of untimed runs of a step.
constexpr int32_t kMaxUntimedRuns = 256;

absl::Status TimeStep(Request request, const Bucket& bucket, Clock* clock,
                      const StepBenchmark& benchmark, PreparedModel* prepared) {
  ActiveRequest active(std::move(request), nullptr, clock->Now(), clock->Now());
  std::vector<RequestRow*> rows;
  std::vector<WaitingSequence*> batch;
  for (RequestRow& row : active.rows) {
    row.tokens = row.length();
    row.sampled_rows = row.sampled_end ? 1 : 0;
    rows.push_back(&row);
    batch.push_back(&row);
  }
  ExecutionSlot& slot = *prepared->slots.front();
  slot.Assign(rows, bucket);
  PlanCache::Reader reader(prepared->plans.get());
  const Plan& plan = reader.Find(bucket, {}).plan->plan();

  // The first run touches its memory for the first time.
  const MonoTime begin = clock->Now();
  int32_t untimed = 0;
  do {
    SLUICE_RETURN_IF_ERROR(slot.Replay(plan));
  } while (++untimed < kMaxUntimedRuns && clock->Now() - begin < benchmark.warm_for);
  std::vector<double> seconds;
  for (int32_t run = 0; run < benchmark.runs; ++run) {
    const MonoTime start = clock->Now();
    SLUICE_RETURN_IF_ERROR(slot.Replay(plan));
    seconds.push_back(std::chrono::duration<double>(clock->Now() - start).count());
  }
  if (seconds.empty()) return absl::OkStatus();
  const auto median = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), median, seconds.end());
  prepared->costs.Observe(ShapeOf(batch, bucket), *median);
  return absl::OkStatus();
}

// Times two steps: `tokens` tokens in the fewest rows, which have the most context, and half of the
// tokens in the most rows of the bucket, which have the most samples. This separates the terms of
// the cost law. Adds both to the costs of `prepared`. Requires that the bucket's plan is published
// and the model has a slot. Returns the error of a failed step.
absl::Status TimeTokens(int32_t tokens, const Bucket& bucket,
                        const std::shared_ptr<const Model>& model, Clock* clock,
                        const StepBenchmark& benchmark, PreparedModel* prepared) {
  const int32_t longest = bucket.padded()
                              ? bucket.positions
                              : std::min<int64_t>(bucket.tokens, model->config.max_positions);
  SLUICE_RETURN_IF_ERROR(
      TimeStep(Rows(tokens, longest, bucket, model), bucket, clock, benchmark, prepared));
  if (tokens < 2) return absl::OkStatus();
  const int32_t half = tokens / 2;
  const int32_t even = std::min((half + bucket.sequences - 1) / bucket.sequences, longest);
  return TimeStep(Rows(half, even, bucket, model), bucket, clock, benchmark, prepared);
}

}  // namespace

absl::Status BucketWarmUp::PrepareLargest(const Bucket& largest) {
  PlanCache* const plans = prepared_->plans.get();
  const absl::Status status = plans->Prepare(largest);
  if (!absl::IsResourceExhausted(status)) return status;
  observer_->OnNotice(*model_, absl::StrCat("the ladder's maximum runs without a plan, op by op: ",
                                            status.message()));
  return plans->PublishEager(largest);
}

absl::StatusOr<Ladder> BucketWarmUp::Run(const Ladder& wanted, bool known, int64_t limit_bytes) {
  const Bucket& largest = wanted.largest();
  known_ = known;
  limit_bytes_ = limit_bytes;
  if (benchmark_.runs > 1) {
    const StepBenchmark rise = {.runs = 0, .warm_for = kClockRise};
    SLUICE_RETURN_IF_ERROR(TimeTokens(largest.tokens, largest, model_, clock_, rise, prepared_));
  }
  const std::span<const Bucket> others = wanted.buckets().first(wanted.buckets().size() - 1);
  std::vector<Bucket> kept;
  size_t next = 0;
  bool memory = true;
  for (; next < others.size() && memory && (wanted.padded() || HasTime(others[next])); ++next) {
    SLUICE_ASSIGN_OR_RETURN(memory, Prepare(others[next]));
    if (!memory) break;
    kept.push_back(others[next]);
    SLUICE_RETURN_IF_ERROR(Time(others[next], wanted.padded()));
  }
  if (memory) {
    const std::span<const Bucket> later = others.subspan(next);
    prepared_->plans->Await(later);
    kept.insert(kept.end(), later.begin(), later.end());
  }
  if (!memory) LeaveWholeColumns(largest, &kept);
  if (over_limit_) prepared_->evicted = std::ssize(others) - std::ssize(kept);
  kept.push_back(largest);
  if (next == others.size() || !memory) {
    SLUICE_RETURN_IF_ERROR(Time(largest, wanted.padded()));
  }
  return Ladder(std::move(kept));
}

void BucketWarmUp::LeaveWholeColumns(const Bucket& largest, std::vector<Bucket>* kept) {
  while (!kept->empty() && FirstOutOfOrder(std::vector<Bucket>{kept->back(), largest})) {
    prepared_->plans->Withdraw(kept->back());
    kept->pop_back();
  }
}

absl::StatusOr<bool> BucketWarmUp::Prepare(const Bucket& bucket) {
  SLUICE_RETURN_IF_ERROR(CheckInterruption());
  PlanCache* const plans = prepared_->plans.get();
  const absl::Status status = plans->Prepare(bucket);
  if (absl::IsResourceExhausted(status)) {
    observer_->OnNotice(*model_,
                        absl::StrCat("the ladder is cut short at ", bucket.tokens,
                                     " tokens, except for the maximum: ", status.message()));
    return false;
  }
  SLUICE_RETURN_IF_ERROR(status);
  if (limit_bytes_ == 0 || plans->ladder_bytes() <= limit_bytes_) return true;
  plans->Withdraw(bucket);
  over_limit_ = true;
  return false;
}

absl::Status BucketWarmUp::Time(const Bucket& bucket, bool whole) {
  while (timed_ < bucket.tokens || whole) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    const int32_t tokens =
        whole ? bucket.tokens : std::min(bucket.tokens, std::max(kFirstTokens, 2 * timed_));
    if (!whole && timed_ > 0 && (known_ || !HasTimeFor(tokens))) return absl::OkStatus();
    const MonoTime begin = clock_->Now();
    SLUICE_RETURN_IF_ERROR(TimeTokens(tokens, bucket, model_, clock_, benchmark_, prepared_));
    took_ = clock_->Now() - begin;
    timed_ = tokens;
    if (whole) break;
  }
  return absl::OkStatus();
}

}  // namespace sluice
