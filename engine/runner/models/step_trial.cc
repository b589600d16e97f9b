#include "engine/runner/models/step_trial.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status_macros.h"

namespace sluice {
namespace {

// A request of rows of at most `longest` tokens, `tokens` of them or as many as the bucket's
// sequences allow.
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

// The most untimed runs of a step.
constexpr int32_t kMostUntimed = 256;

absl::Status TimeStep(Request request, const Bucket& bucket, Clock* clock, const StepTrial& trial,
                      PreparedModel* prepared) {
  ActiveRequest active(std::move(request), nullptr, clock->Now(), clock->Now());
  std::vector<RequestRow*> rows;
  std::vector<WaitingSequence*> batch;
  for (RequestRow& row : active.rows) {
    WaitingSequence& waiting = row.sequence.waiting;
    waiting.tokens = row.length();
    waiting.sampled_rows = row.sequence.sampled_end ? 1 : 0;
    rows.push_back(&row);
    batch.push_back(&waiting);
  }
  ExecutionSlot& slot = *prepared->slots.front();
  slot.Assign(rows, bucket);
  PlanCache::Reader reader(prepared->plans.get());
  const Plan& plan = reader.Find(bucket, {}).plan->plan();

  // The first run touches memory for the first time.
  const MonoTime begin = clock->Now();
  int32_t untimed = 0;
  do {
    SLUICE_RETURN_IF_ERROR(slot.Replay(plan));
  } while (++untimed < kMostUntimed && clock->Now() - begin < trial.warm_for);
  std::vector<double> seconds;
  for (int32_t run = 0; run < trial.runs; ++run) {
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

}  // namespace

absl::Status TimeTokens(int32_t tokens, const Bucket& bucket,
                        const std::shared_ptr<const Model>& model, Clock* clock,
                        const StepTrial& trial, PreparedModel* prepared) {
  const int32_t longest = bucket.padded()
                              ? bucket.positions
                              : std::min<int64_t>(bucket.tokens, model->config.max_positions);
  SLUICE_RETURN_IF_ERROR(
      TimeStep(Rows(tokens, longest, bucket, model), bucket, clock, trial, prepared));
  if (tokens < 2) return absl::OkStatus();
  const int32_t half = tokens / 2;
  const int32_t even = std::min((half + bucket.sequences - 1) / bucket.sequences, longest);
  return TimeStep(Rows(half, even, bucket, model), bucket, clock, trial, prepared);
}

}  // namespace sluice
