#include "engine/runner/warm_up.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fault_injection.h"
#include "base/interruption.h"
#include "base/status_macros.h"
#include "engine/option_specs.h"
#include "engine/schedule/scheduler.h"

namespace sluice {
namespace {

constexpr int32_t kDefaultBatchTokens = 4096;
constexpr int64_t kMostPages = 1 << 26;
// The time in which an idle device's clock rises under load.
constexpr std::chrono::milliseconds kClockRise{300};

// Returns whether sequences keep KV pages from one step to the next, so that prompts are cut.
// Attention in both directions needs all of a sequence in one step.
bool KeepsPages(const BatchOptions& options, const ModelConfig& config) {
  return options.policy == PolicyKind::kCutAndFill && config.causal;
}

// Returns the most positions that a token attends to, or 0 if some layer reads all.
int32_t AttentionWindow(const ModelConfig& config) {
  return config.windowed_layers() == config.layers ? static_cast<int32_t>(config.window) : 0;
}

// Returns the tokens of the largest bucket, so that every sequence of the model fits it unless
// prompts are cut.
absl::StatusOr<int32_t> MaxBatchTokens(const BatchOptions& options, const ModelConfig& config) {
  const int64_t least = KeepsPages(options, config) ? 1 : config.max_positions;
  const int64_t limit = options.max_batch_tokens == 0
                            ? std::max<int64_t>(kDefaultBatchTokens, least)
                            : options.max_batch_tokens;
  if (limit < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch.max_batch_tokens is ", limit, ", below the model's max_positions of ",
        config.max_positions, ": a sequence must fit in a batch, because ",
        config.causal ? "this batch.policy" : "this model", " computes its sequences whole"));
  }
  const int64_t most = OptionSpecOf<BatchOptions>("max_batch_tokens").integer->max;
  if (limit < 1 || std::max(limit, config.max_positions) > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch.max_batch_tokens of ", limit, " and the model's max_positions of ",
                     config.max_positions, " must be within [1, ", most, "]"));
  }
  return static_cast<int32_t>(limit);
}

// Prepares the maximum and then the others from the smallest on, until the plans and the
// activations reach the limit or the device has no memory left. Returns the ladder of those that
// are kept, and sets `evicted` to the number of those that the limit kept out.
absl::StatusOr<Ladder> PreparePlans(const Ladder& wanted, int64_t limit_bytes, const Model& model,
                                    PreparedModel* prepared, Observer* observer) {
  PlanCache* const plans = prepared->plans.get();
  const int64_t activations = prepared->executable->activation_bytes(wanted.largest());
  absl::Status status = plans->Prepare(wanted.largest());
  if (absl::IsResourceExhausted(status)) {
    observer->OnNotice(model, absl::StrCat("the ladder's maximum runs without a plan, op by op: ",
                                           status.message()));
    status = plans->PublishEager(wanted.largest());
  }
  SLUICE_RETURN_IF_ERROR(status);
  std::vector<Bucket> kept;
  for (const Bucket& bucket : wanted.buckets().first(wanted.buckets().size() - 1)) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    status = plans->Prepare(bucket);
    if (absl::IsResourceExhausted(status)) {
      observer->OnNotice(model, absl::StrCat("the ladder is cut short at ", bucket.tokens,
                                             " tokens, but for the maximum: ", status.message()));
      break;
    }
    SLUICE_RETURN_IF_ERROR(status);
    if (limit_bytes > 0 && plans->memory_bytes() + activations > limit_bytes) {
      plans->Withdraw(bucket);
      prepared->evicted = std::ssize(wanted.buckets()) - 1 - std::ssize(kept);
      break;
    }
    kept.push_back(bucket);
  }
  kept.push_back(wanted.largest());
  return Ladder(std::move(kept));
}

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

// How a step is timed.
struct Timing {
  int32_t runs;                           // the median of these is taken; 0 takes no time
  std::chrono::milliseconds warm_for{0};  // how long it runs untimed, at least once
};

// The most untimed runs of a step.
constexpr int32_t kMostUntimed = 256;

absl::Status TimeStep(Request request, const Bucket& bucket, Clock* clock, const Timing& timing,
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
  } while (++untimed < kMostUntimed && clock->Now() - begin < timing.warm_for);
  std::vector<double> seconds;
  for (int32_t run = 0; run < timing.runs; ++run) {
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

// Times the bucket filled by the fewest rows, which have the most context, and half filled by as
// many as it holds, which sample the most: so that the terms of the cost law can be told apart.
absl::Status TimePlan(const Bucket& bucket, const std::shared_ptr<const Model>& model, Clock* clock,
                      const Timing& timing, PreparedModel* prepared) {
  const int32_t longest = bucket.padded()
                              ? bucket.positions
                              : std::min<int64_t>(bucket.tokens, model->config.max_positions);
  SLUICE_RETURN_IF_ERROR(
      TimeStep(Rows(bucket.tokens, longest, bucket, model), bucket, clock, timing, prepared));
  if (bucket.tokens < 2) return absl::OkStatus();
  const int32_t half = bucket.tokens / 2;
  const int32_t even = std::min((half + bucket.sequences - 1) / bucket.sequences, longest);
  return TimeStep(Rows(half, even, bucket, model), bucket, clock, timing, prepared);
}

// Returns the tokens of the largest bucket whose activations memory_limit_bytes has room for: those
// of `limits`, or a part of them if neither the options nor the model demand so many.
int32_t TokensWithinLimit(const EngineOptions& options, const ModelConfig& config,
                          const LadderLimits& limits, const ExecutableModel& executable) {
  const int64_t bytes = options.ladder.memory_limit_bytes;
  int32_t tokens = limits.max_tokens;
  if (bytes == 0 || options.batch.max_batch_tokens > 0) return tokens;
  const int64_t least = KeepsPages(options.batch, config)
                            ? std::max(options.ladder.min_tokens, limits.tile_tokens)
                            : config.max_positions;
  const auto activations = [&] {
    return executable.activation_bytes(
        {.tokens = tokens, .sequences = std::min(tokens, limits.max_sequences)});
  };
  while (tokens / 2 >= least && activations() > bytes) tokens /= 2;
  return tokens;
}

// Returns ResourceExhausted if the slots of the model do not fit the free memory.
absl::Status CheckRoom(const ExecutableModel& executable, const Bucket& capacity, int64_t pages,
                       int64_t free_bytes) {
  const int64_t activations = executable.activation_bytes(capacity);
  const int64_t kv = pages * executable.page_bytes();
  if (activations + kv <= free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the model takes ", activations, " bytes of activations (engine.batch.max_batch_tokens) and ",
      kv, " of KV pages (engine.kv.memory_bytes), but only ", free_bytes, " are free for models"));
}

absl::StatusOr<Ladder> ChooseLadder(const EngineOptions& options, const LadderLimits& limits,
                                    const ModelConfig& config) {
  if (!IsPadded(options.batch.policy)) return BuildLadder(options.ladder, limits);
  if (!config.causal) {
    return absl::InvalidArgumentError(
        "a padded batch.policy needs a causal model: padding is masked by causality alone");
  }
  return BuildPaddedLadder(options.batch.policy, limits, config.max_positions);
}

// Returns the number of KV pages and what is done with them.
absl::StatusOr<PagedScheduler::Options> PlanPages(const EngineOptions& options,
                                                  const ModelConfig& config, const Ladder& ladder,
                                                  const BackendInfo& info, int64_t free_memory,
                                                  const ExecutableModel& executable) {
  const Bucket capacity = ExecutionSlot::CapacityOf(ladder);
  const int64_t page_bytes = executable.page_bytes();
  const int64_t sequence = (config.max_positions + info.page_tokens - 1) / info.page_tokens;
  const int32_t step_pages = MostPages(capacity, info.page_tokens);
  const int32_t least = std::max<int64_t>(step_pages, sequence);
  PagedScheduler::Options kv{.keeps_pages = KeepsPages(options.batch, config),
                             .pages = least,
                             .step_pages = step_pages,
                             .page_tokens = info.page_tokens,
                             .attention_window = AttentionWindow(config),
                             .prefix_reuse = options.kv.prefix_reuse};
  if (!kv.keeps_pages) return kv;
  int64_t pages = options.kv.memory_bytes / page_bytes;
  if (options.kv.memory_bytes == 0) {
    const int64_t left = std::max<int64_t>(free_memory - executable.activation_bytes(capacity), 0);
    pages = std::clamp<int64_t>(left / 100 * info.kv_memory_percent / page_bytes, least,
                                std::max<int64_t>(capacity.sequences * sequence, least));
  }
  if (pages < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kv.memory_bytes of ", options.kv.memory_bytes, " holds ", pages, " pages of ", page_bytes,
        " bytes; the largest step of ", capacity.tokens, " tokens, or the longest sequence of ",
        config.max_positions, ", takes ", least, ", ", least * page_bytes, " bytes"));
  }
  kv.pages = std::min<int64_t>(pages, kMostPages);
  return kv;
}

// Replaces the ladder and the costs by what an earlier run wrote, where that applies.
void ReadFile(const LadderFile& file, const EngineOptions& options, const Model& model,
              Observer* observer, Ladder* ladder, CostModel* costs) {
  absl::StatusOr<LadderFile::Content> content = file.Read();
  const int64_t most_buckets = options.ladder.max_buckets;
  if (content.ok() && std::ssize(content->ladder.buckets()) > most_buckets) {
    content = absl::FailedPreconditionError(
        absl::StrCat("it has more than ladder.max_buckets of ", most_buckets, " buckets"));
  }
  if (!content.ok()) {
    if (absl::IsNotFound(content.status())) return;  // the first run
    observer->OnNotice(model, absl::StrCat("the ladder file ", file.path(),
                                           " is ignored: ", content.status().message()));
    return;
  }
  costs->Restore(content->costs);
  const bool fitted = options.ladder.strategy == StrategyKind::kAdaptive;
  if (fitted && !content->ladder.padded() && !IsPadded(options.batch.policy)) {
    *ladder = std::move(content->ladder);
  }
}

absl::Status MeetStartFault(FaultPoint point) {
  if (!FaultsOn()) return absl::OkStatus();
  return InjectFault(point, [](std::string_view) { return false; });
}

}  // namespace

bool IsPadded(PolicyKind policy) {
  return policy == PolicyKind::kPaddedBuckets || policy == PolicyKind::kStaticPadded;
}

absl::StatusOr<PreparedModel> WarmUp(const std::shared_ptr<const Model>& model,
                                     const EngineOptions& options, Backend* backend, Clock* clock,
                                     Observer* observer) {
  const BackendInfo& info = backend->info();
  SLUICE_ASSIGN_OR_RETURN(const int32_t max_tokens, MaxBatchTokens(options.batch, model->config));
  PreparedModel prepared;
  prepared.limits = {.max_tokens = max_tokens,
                     .max_sequences = options.batch.max_batch_sequences,
                     .tile_tokens = info.tile_tokens};
  SLUICE_ASSIGN_OR_RETURN(Ladder wanted, ChooseLadder(options, prepared.limits, model->config));

  SLUICE_RETURN_IF_ERROR(MeetStartFault(FaultPoint::kLoad));
  SLUICE_ASSIGN_OR_RETURN(prepared.executable, backend->Load(model));
  const int32_t tokens =
      TokensWithinLimit(options, model->config, prepared.limits, *prepared.executable);
  if (tokens < prepared.limits.max_tokens) {
    prepared.limits.max_tokens = tokens;
    SLUICE_ASSIGN_OR_RETURN(wanted, ChooseLadder(options, prepared.limits, model->config));
  }
  prepared.info = info;
  if (const std::string own = prepared.executable->profile(); !own.empty()) {
    prepared.info.profile = own;
  }
  if (!options.ladder.file.empty()) {
    prepared.file.emplace(options.ladder.file, *model, prepared.info,
                          prepared.executable->algorithms(), prepared.limits, options.batch.policy);
    ReadFile(*prepared.file, options, *model, observer, &wanted, &prepared.costs);
  }
  if (const std::string kernels = prepared.executable->kernels(); !kernels.empty()) {
    observer->OnKernels(*model, kernels);
  }
  for (const std::string& notice : prepared.executable->notices()) {
    observer->OnNotice(*model, notice);
  }
  prepared.plans =
      std::make_unique<PlanCache>(model.get(), prepared.executable.get(), clock, observer);
  const int64_t free_bytes = backend->FreeMemory();
  SLUICE_ASSIGN_OR_RETURN(prepared.kv, PlanPages(options, model->config, wanted, info, free_bytes,
                                                 *prepared.executable));
  SLUICE_RETURN_IF_ERROR(CheckRoom(*prepared.executable, ExecutionSlot::CapacityOf(wanted),
                                   prepared.kv.pages, free_bytes));
  SLUICE_RETURN_IF_ERROR(MeetStartFault(FaultPoint::kAllocate));
  // Before the plans: a device prepares them for the slots that there are.
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionSlot> slot,
                          ExecutionSlot::Create(prepared.executable.get(), model.get(), wanted,
                                                {.padding = options.batch.padding,
                                                 .page_tokens = prepared.kv.page_tokens,
                                                 .pages = prepared.kv.pages}));
  prepared.slots.push_back(std::move(slot));
  for (int32_t i = 0; i < info.steps_ahead; ++i) {
    prepared.slots.push_back(prepared.slots.front()->Beside());
  }
  SLUICE_ASSIGN_OR_RETURN(Ladder ladder, PreparePlans(wanted, options.ladder.memory_limit_bytes,
                                                      *model, &prepared, observer));
  prepared.ladder = std::make_shared<const Ladder>(std::move(ladder));
  if (info.timed_runs > 1) {
    const Timing rise = {.runs = 0, .warm_for = kClockRise};
    SLUICE_RETURN_IF_ERROR(TimePlan(prepared.ladder->largest(), model, clock, rise, &prepared));
  }
  for (const Bucket& bucket : prepared.ladder->buckets()) {
    SLUICE_RETURN_IF_ERROR(CheckInterruption());
    SLUICE_RETURN_IF_ERROR(TimePlan(bucket, model, clock, {.runs = info.timed_runs}, &prepared));
  }
  return prepared;
}

}  // namespace sluice
