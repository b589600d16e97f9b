#include "engine/warm_up.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr int32_t kDefaultBatchTokens = 4096;
constexpr int64_t kMostBatchTokens = 1 << 20;

// Tokens of the largest bucket, so that every sequence of the model fits it.
absl::StatusOr<int32_t> MaxBatchTokens(const BatchOptions& options, const ModelConfig& config) {
  const int64_t limit = options.max_batch_tokens == 0
                            ? std::max<int64_t>(kDefaultBatchTokens, config.max_positions)
                            : options.max_batch_tokens;
  if (limit < config.max_positions) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch.max_batch_tokens is ", limit, ", below the model's max_positions of ",
                     config.max_positions, ": a sequence must fit in a batch"));
  }
  if (limit < 1 || limit > kMostBatchTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch.max_batch_tokens (or the model's "
                     "max_positions) is ",
                     limit, ", must be within [1, ", kMostBatchTokens, "]"));
  }
  return static_cast<int32_t>(limit);
}

// Prepares the maximum and then the others from the smallest on, until the limit is reached.
// Returns the ladder of those that are kept.
absl::StatusOr<Ladder> PreparePlans(const Ladder& wanted, int64_t limit_bytes, PlanCache* plans) {
  absl::Status status = plans->Prepare(wanted.largest());
  if (!status.ok()) return status;
  std::vector<Bucket> kept;
  for (const Bucket& bucket : wanted.buckets().first(wanted.buckets().size() - 1)) {
    status = plans->Prepare(bucket);
    if (!status.ok()) return status;
    if (limit_bytes > 0 && plans->memory_bytes() > limit_bytes) {
      plans->Remove(bucket);
      break;
    }
    kept.push_back(bucket);
  }
  kept.push_back(wanted.largest());
  return Ladder(std::move(kept));
}

// A request of the fewest rows that fill the bucket: the most context it can have.
Request Filling(const Bucket& bucket, const std::shared_ptr<const Model>& model) {
  const ModelConfig& config = model->config;
  Request request;
  request.model = model;
  int32_t tokens = bucket.tokens;
  while (tokens > 0 && request.rows() < bucket.sequences) {
    const auto length = static_cast<int32_t>(std::min<int64_t>(tokens, config.max_positions));
    request.lengths.push_back(length);
    tokens -= length;
  }
  request.tokens.resize(static_cast<size_t>(bucket.tokens - tokens));
  for (size_t i = 0; i < request.tokens.size(); ++i) {
    request.tokens[i] = static_cast<int32_t>(static_cast<int64_t>(i) % config.vocab_size);
  }
  return request;
}

absl::Status TimePlan(const Bucket& bucket, const std::shared_ptr<const Model>& model, Clock* clock,
                      PreparedModel* prepared) {
  ActiveRequest filling(Filling(bucket, model), nullptr, clock->Now(), clock->Now());
  std::vector<Row*> rows;
  for (Row& row : filling.rows) rows.push_back(&row);
  prepared->slot->Assign(rows);
  PlanCache::Reader reader(prepared->plans.get());
  const Plan& plan = reader.Find(bucket).plan->plan();

  // The first run touches memory for the first time; the second one is timed.
  absl::Status status = prepared->slot->Replay(plan);
  if (!status.ok()) return status;
  const MonoTime start = clock->Now();
  status = prepared->slot->Replay(plan);
  if (!status.ok()) return status;
  const std::chrono::duration<double> seconds = clock->Now() - start;
  prepared->costs.Observe(prepared->slot->Shape(bucket), seconds.count());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PreparedModel> WarmUp(const std::shared_ptr<const Model>& model,
                                     const EngineOptions& options, Backend* backend, Clock* clock,
                                     Observer* observer) {
  const BackendInfo& info = backend->info();
  const absl::StatusOr<int32_t> max_tokens = MaxBatchTokens(options.batch, model->config);
  if (!max_tokens.ok()) return max_tokens.status();
  const absl::StatusOr<Ladder> wanted =
      BuildLadder(options.ladder, {.max_tokens = *max_tokens,
                                   .max_sequences = options.batch.max_batch_sequences,
                                   .tile_tokens = info.tile_tokens});
  if (!wanted.ok()) return wanted.status();

  absl::StatusOr<std::unique_ptr<ExecutableModel>> executable = backend->Load(model);
  if (!executable.ok()) return executable.status();
  auto plans = std::make_unique<PlanCache>(model.get(), executable->get(), clock, observer);
  absl::StatusOr<Ladder> ladder =
      PreparePlans(*wanted, options.ladder.memory_limit_bytes, plans.get());
  if (!ladder.ok()) return ladder.status();
  absl::StatusOr<std::unique_ptr<ExecutionSlot>> slot =
      ExecutionSlot::Create(executable->get(), model.get(), ladder->largest(), info.page_tokens);
  if (!slot.ok()) return slot.status();

  PreparedModel prepared{.executable = *std::move(executable),
                         .ladder = *std::move(ladder),
                         .plans = std::move(plans),
                         .slot = *std::move(slot),
                         .costs = {}};
  for (const Bucket& bucket : prepared.ladder.buckets()) {
    const absl::Status status = TimePlan(bucket, model, clock, &prepared);
    if (!status.ok()) return status;
  }
  return prepared;
}

}  // namespace sluice
