#include "engine/runner/models/warm_up.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fault_injection.h"
#include "base/interruption.h"
#include "base/status_macros.h"
#include "engine/option_specs.h"
#include "engine/runner/models/memory_limit.h"
#include "engine/schedule/scheduler.h"

namespace sluice {
namespace {

constexpr int32_t kDefaultBatchTokens = 4096;
constexpr int64_t kMaxPages = 1 << 26;
// The time for an idle device's clock to rise under load.
constexpr std::chrono::milliseconds kClockRise{300};

// Returns whether sequences keep KV pages between steps, so that prompts can be cut. Attention in
// both directions needs a whole sequence in one step.
bool KeepsPages(const BatchOptions& options, const ModelConfig& config) {
  return options.policy == PolicyKind::kPacked && config.causal;
}

// Returns the maximum number of positions that a token attends to, or 0 if some layer reads all.
int32_t AttentionWindow(const ModelConfig& config) {
  return config.windowed_layers() == config.layers ? static_cast<int32_t>(config.window) : 0;
}

// Returns the tokens of the largest bucket. Unless prompts can be cut, every sequence of the model
// fits this bucket.
absl::StatusOr<int32_t> MaxBatchTokens(const BatchOptions& options, const ModelConfig& config) {
  const int64_t least = KeepsPages(options, config) ? 1 : config.max_positions;
  const int64_t limit = options.max_batch_tokens == 0
                            ? std::max<int64_t>(kDefaultBatchTokens, least)
                            : options.max_batch_tokens;
  if (limit < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine.batch.max_batch_tokens is ", limit, "; the minimum is ", least,
        ", the model's max_positions, because ",
        config.causal ? "this engine.batch.policy" : "this model",
        " computes each sequence in one step. Set it to at least ", least, ", or to 0"));
  }
  const int64_t most = OptionSpecOf<BatchOptions>("max_batch_tokens").integer->max;
  if (limit < 1 || std::max(limit, config.max_positions) > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "engine.batch.max_batch_tokens of ", limit, " and the model's max_positions of ",
        config.max_positions, " must be within [1, ", most, "]"));
  }
  return static_cast<int32_t>(limit);
}

// Returns the tokens of the largest bucket whose activations fit memory_limit_bytes. This is the
// maximum in `limits`, or less if neither the options nor the model require it.
int32_t TokensWithinLimit(const EngineOptions& options, const ModelConfig& config,
                          const LadderLimits& limits, const ExecutableModel& executable) {
  const int64_t bytes = options.ladder.memory_limit_bytes;
  int32_t tokens = limits.max_tokens;
  if (bytes == 0 || options.batch.max_batch_tokens > 0) return tokens;
  const int64_t least =
      KeepsPages(options.batch, config) ? options.ladder.min_tokens : config.max_positions;
  const auto activations = [&] {
    return executable.activation_bytes(
        {.tokens = tokens, .sequences = std::min(tokens, limits.max_sequences)});
  };
  while (tokens / 2 >= least && activations() > bytes) tokens /= 2;
  return tokens;
}

// Returns ResourceExhausted if the model's slots do not fit in the free memory.
absl::Status CheckRoom(const ExecutableModel& executable, const Bucket& capacity, int64_t pages,
                       int64_t free_bytes) {
  const int64_t activations = executable.activation_bytes(capacity);
  const int64_t kv = pages * executable.page_bytes();
  if (activations + kv <= free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the model takes ", activations, " bytes of activations (engine.batch.max_batch_tokens) and ",
      kv, " of KV pages (engine.kv.memory_bytes), but only ", free_bytes,
      " are free for models. Lower these options"));
}

// How a step is timed.
struct StepBenchmark {
  int32_t runs;                           // the median is used; 0: not timed
  std::chrono::milliseconds warm_for{0};  // untimed runs before that; at least one
};

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

// Prepares and times the buckets of a ladder within a time limit.
class BucketWarmUp {
 public:
  // Nothing is owned.
  BucketWarmUp(const std::shared_ptr<const Model>& model, const LadderOptions& options,
               const StepBenchmark& benchmark, Clock* clock, Observer* observer,
               PreparedModel* prepared)
      : model_(model),
        benchmark_(benchmark),
        clock_(clock),
        observer_(observer),
        prepared_(prepared),
        end_(clock->Now() + std::chrono::microseconds(options.warm_up_us)) {}

  // Prepares the maximum, without a captured plan if there is no memory for it.
  absl::Status PrepareLargest(const Bucket& largest) {
    PlanCache* const plans = prepared_->plans.get();
    const absl::Status status = plans->Prepare(largest);
    if (!absl::IsResourceExhausted(status)) return status;
    observer_->OnNotice(
        *model_,
        absl::StrCat("the ladder's maximum runs without a plan, op by op: ", status.message()));
    return plans->PublishEager(largest);
  }

  // Prepares and times the buckets below the maximum in ascending order, and times the maximum,
  // which must be prepared, last. If the costs are `known`, only the smallest steps of a packed
  // ladder are timed. Stops when the time is over, the memory limit is reached (0: none) or the
  // device has no memory left. Buckets without time are awaited. Buckets without memory are not in
  // the returned ladder; those excluded by the limit count as evicted.
  absl::StatusOr<Ladder> Run(const Ladder& wanted, bool known, int64_t limit_bytes) {
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

 private:
  // The number of tokens timed first, in any bucket.
  static constexpr int32_t kFirstTokens = 16;

  // Used when a padded ladder was cut within a column. Withdraws its last buckets until the rest
  // and the largest bucket form a ladder: a column has at least the rows of wider columns.
  void LeaveWholeColumns(const Bucket& largest, std::vector<Bucket>* kept) {
    while (!kept->empty() && FirstOutOfOrder(std::vector<Bucket>{kept->back(), largest})) {
      prepared_->plans->Withdraw(kept->back());
      kept->pop_back();
    }
  }

  // Returns false if there is not enough memory for the plan.
  absl::StatusOr<bool> Prepare(const Bucket& bucket) {
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

  // Times a step with the bucket's capacity in tokens. First times smaller steps, in powers of two,
  // and continues only if they are fast enough.
  absl::Status Time(const Bucket& bucket, bool whole) {
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

  bool HasTime(const Bucket& bucket) const {
    return timed_ == 0 || (known_ ? clock_->Now() < end_ : HasTimeFor(bucket.tokens));
  }
  // Returns whether timing these tokens is likely to finish in time, judged by the latest
  // measurement.
  bool HasTimeFor(int32_t tokens) const { return clock_->Now() + took_ / timed_ * tokens < end_; }

  const std::shared_ptr<const Model>& model_;
  int64_t limit_bytes_ = 0;
  const StepBenchmark benchmark_;
  bool known_ = false;
  Clock* const clock_;
  Observer* const observer_;
  PreparedModel* const prepared_;
  const MonoTime end_;
  bool over_limit_ = false;
  int32_t timed_ = 0;    // tokens of the latest measurement
  nanoseconds took_{0};  // duration of the latest measurement
};

// Returns the number of KV pages and the options for their use.
absl::StatusOr<PagedScheduler::Options> PageOptionsFor(const EngineOptions& options,
                                                       const ModelConfig& config,
                                                       const Ladder& ladder,
                                                       const BackendInfo& info, int64_t free_memory,
                                                       const ExecutableModel& executable) {
  const Bucket capacity = ExecutionSlot::CapacityOf(ladder);
  const int64_t page_bytes = executable.page_bytes();
  const int64_t sequence = (config.max_positions + info.page_tokens - 1) / info.page_tokens;
  const int32_t step_pages = MaxPages(capacity, info.page_tokens);
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
        "engine.kv.memory_bytes of ", options.kv.memory_bytes, " holds ", pages, " pages of ",
        page_bytes, " bytes; the minimum is ", least, " pages, ", least * page_bytes,
        " bytes, for the largest step (", capacity.tokens, " tokens) and the longest sequence (",
        config.max_positions, " tokens). Set it to at least ", least * page_bytes, ", or to 0"));
  }
  kv.pages = std::min<int64_t>(pages, kMaxPages);
  return kv;
}

// Describes the effects of the memory limit of `options` on the ladder of `prepared`, and sends
// them to the observer as notices. `unlimited` is the largest bucket without the limit. `wanted` is
// the ladder once the limit has lowered its largest bucket.
std::string DescribeLimit(const LadderOptions& options, const Bucket& unlimited,
                          const Ladder& wanted, const Model& model, Observer* observer,
                          const PreparedModel& prepared) {
  const int64_t limit = options.memory_limit_bytes;
  if (limit == 0) return "";
  std::string effects;
  const auto tell = [&](const std::string& text, absl::string_view remedy) {
    if (text.empty()) return;
    observer->OnNotice(model, absl::StrCat(text, remedy));
    effects = JoinedSentences(effects, text);
  };
  constexpr absl::string_view kRemedy =
      " Raise the limit, or set another one for this model (memory_limit_bytes of its ladder).";
  const Bucket& largest = prepared.ladder->largest();
  if (prepared.limits.max_tokens < unlimited.tokens) {
    tell(LoweredMaximumText(limit, unlimited, prepared.executable->activation_bytes(unlimited),
                            largest, prepared.costs),
         kRemedy);
  }
  std::vector<Bucket> left_out;
  for (const Bucket& bucket : wanted.buckets()) {
    if (!prepared.ladder->Contains(bucket)) left_out.push_back(bucket);
  }
  if (prepared.evicted > 0 && !left_out.empty()) {
    tell(LeftOutText(limit, left_out, *prepared.ladder, prepared.costs), kRemedy);
  }
  // This text is not kept, because a later choice of the limit may change it.
  const std::vector<BucketStats> plans = prepared.plans->Stats();
  const auto plan = std::ranges::find(plans, largest, &BucketStats::bucket);
  const std::string unmet =
      UnmetLimitText(limit, largest, plan->memory_bytes + plan->activation_bytes);
  if (!unmet.empty()) observer->OnNotice(model, unmet);
  return effects;
}

// Replaces the ladder, the costs and the choice by the data of an earlier run. Returns whether the
// file applies.
bool ReadFile(const LadderFile& file, const EngineOptions& options, const Model& model,
              Observer* observer, Ladder* ladder, PreparedModel* prepared) {
  absl::StatusOr<LadderFile::Content> content = file.Read();
  LadderOptions chosen = options.ladder;
  if (content.ok() && !content->kept.empty()) {
    absl::StatusOr<LadderOptions> kept = Apply(content->kept, options.ladder);
    absl::StatusOr<Ladder> built =
        kept.ok() ? BuildLadder(*kept, options.batch.policy, prepared->limits) : kept.status();
    if (built.ok()) {
      chosen = *std::move(kept);
      *ladder = *std::move(built);
      prepared->ladder_kept = std::move(content->kept);
    } else {
      content = built.status();
    }
  }
  const int64_t most_buckets = prepared->limits.MaxBuckets(chosen);
  if (content.ok() && std::ssize(content->ladder.buckets()) > most_buckets) {
    content = absl::FailedPreconditionError(
        absl::StrCat("it has more than engine.ladder.max_buckets of ", most_buckets, " buckets"));
  }
  if (!content.ok()) {
    if (absl::IsNotFound(content.status())) return false;  // the first run
    observer->OnNotice(model, absl::StrCat("the ladder file ", file.path(),
                                           " is ignored: ", content.status().message()));
    return false;
  }
  content->costs.rows = prepared->limits.rows;  // of this device, whatever the file says
  prepared->costs.Restore(content->costs);
  const bool fitted = chosen.strategy == StrategyKind::kAdaptive;
  if (fitted && !content->ladder.padded() && !IsPadded(options.batch.policy)) {
    *ladder = std::move(content->ladder);
  }
  return true;
}

// Returns the most buckets that captures like the one of `largest` allow: together they take at
// most the time of the warm-up and half of the free memory. At least 16, at most the device's
// maximum.
int32_t AffordableBuckets(const BackendInfo& info, const BucketStats& largest, int64_t warm_up_us,
                          int64_t free_bytes) {
  constexpr int32_t kAlways = 16;
  double most = info.max_buckets;
  const auto capture_us = std::chrono::duration<double, std::micro>(largest.prepare_time).count();
  if (capture_us > 0) most = std::min(most, static_cast<double>(warm_up_us) / capture_us);
  if (largest.memory_bytes > 0) {
    most = std::min(
        most, 0.5 * static_cast<double>(free_bytes) / static_cast<double>(largest.memory_bytes));
  }
  return std::max(static_cast<int32_t>(most), std::min(kAlways, info.max_buckets));
}

absl::Status MeetStartFault(FaultPoint point) {
  if (!FaultsOn()) return absl::OkStatus();
  return InjectFault(point, [](std::string_view) { return false; });
}

}  // namespace

absl::StatusOr<PreparedModel> WarmUp(const std::shared_ptr<const Model>& model,
                                     const EngineOptions& options, Backend* backend, Clock* clock,
                                     Observer* observer) {
  const MonoTime begin = clock->Now();
  const BackendInfo& info = backend->info();
  SLUICE_ASSIGN_OR_RETURN(const int32_t max_tokens, MaxBatchTokens(options.batch, model->config));
  PreparedModel prepared;
  prepared.limits = {.max_tokens = max_tokens,
                     .max_sequences = options.batch.max_batch_sequences,
                     .rows = {},
                     .max_positions = static_cast<int32_t>(model->config.max_positions),
                     .max_buckets = info.max_buckets};
  // An option that is out of range is reported before the weights are packed.
  SLUICE_RETURN_IF_ERROR(
      BuildLadder(options.ladder, options.batch.policy, prepared.limits).status());

  SLUICE_RETURN_IF_ERROR(MeetStartFault(FaultPoint::kLoad));
  SLUICE_ASSIGN_OR_RETURN(prepared.executable, backend->Load(model));
  prepared.limits.rows = prepared.executable->computed_rows();
  prepared.limits.max_tokens =
      TokensWithinLimit(options, model->config, prepared.limits, *prepared.executable);
  prepared.costs = CostModel(prepared.limits.rows);
  const Bucket unlimited{.tokens = max_tokens, .sequences = prepared.limits.max_sequences};
  prepared.info = info;
  if (const std::string own = prepared.executable->profile(); !own.empty()) {
    prepared.info.profile = own;
  }
  if (const std::string kernels = prepared.executable->kernels(); !kernels.empty()) {
    observer->OnKernels(*model, kernels);
  }
  for (const std::string& notice : prepared.executable->notices()) {
    observer->OnNotice(*model, notice);
  }
  prepared.plans =
      std::make_unique<PlanCache>(model.get(), prepared.executable.get(), clock, observer);
  // The slot's bucket holds the batches of every ladder with these limits, including later choices.
  LadderLimits step_limits = prepared.limits;
  if (IsPadded(options.batch.policy)) {
    const Bucket rectangle = Bucket::Padded(step_limits.max_sequences, 2);
    step_limits.max_sequences = StepCapacity(rectangle, model->config.causal).sequences;
  }
  const Ladder room = MakePackedLadder({}, step_limits);
  const int64_t free_bytes = backend->FreeMemory();
  SLUICE_ASSIGN_OR_RETURN(prepared.kv, PageOptionsFor(options, model->config, room, info,
                                                      free_bytes, *prepared.executable));
  SLUICE_RETURN_IF_ERROR(CheckRoom(*prepared.executable, ExecutionSlot::CapacityOf(room),
                                   prepared.kv.pages, free_bytes));
  SLUICE_RETURN_IF_ERROR(MeetStartFault(FaultPoint::kAllocate));
  // The slot is created before the plans, because a device prepares plans for existing slots.
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionSlot> slot,
                          ExecutionSlot::Create(prepared.executable.get(), model.get(), room,
                                                {.padding = options.batch.padding,
                                                 .page_tokens = prepared.kv.page_tokens,
                                                 .pages = prepared.kv.pages}));
  prepared.slots.push_back(std::move(slot));
  for (int32_t i = 0; i < info.steps_ahead; ++i) {
    prepared.slots.push_back(prepared.slots.front()->Beside());
  }
  BucketWarmUp buckets(model, options.ladder, {.runs = info.timed_runs}, clock, observer,
                       &prepared);
  SLUICE_ASSIGN_OR_RETURN(Ladder wanted,
                          BuildLadder(options.ladder, options.batch.policy, prepared.limits));
  // The largest bucket is the same in every ladder of these limits. Its capture gives the price of
  // the others.
  SLUICE_RETURN_IF_ERROR(buckets.PrepareLargest(wanted.largest()));
  prepared.limits.max_buckets = AffordableBuckets(info, prepared.plans->Stats().back(),
                                                  options.ladder.warm_up_us, backend->FreeMemory());
  SLUICE_ASSIGN_OR_RETURN(wanted,
                          BuildLadder(options.ladder, options.batch.policy, prepared.limits));
  bool costs_known = false;
  if (!options.ladder.file.empty()) {
    prepared.file.emplace(options.ladder.file, *model, prepared.info,
                          prepared.executable->algorithms(), prepared.limits, options.batch.policy);
    costs_known = ReadFile(*prepared.file, options, *model, observer, &wanted, &prepared);
  }
  SLUICE_ASSIGN_OR_RETURN(const LadderOptions in_effect,
                          Apply(prepared.ladder_kept, options.ladder));
  SLUICE_ASSIGN_OR_RETURN(Ladder ladder,
                          buckets.Run(wanted, costs_known, in_effect.memory_limit_bytes));
  prepared.ladder = std::make_shared<const Ladder>(std::move(ladder));
  prepared.memory_limit_effect =
      DescribeLimit(in_effect, unlimited, wanted, *model, observer, prepared);
  prepared.slots.front()->Trim();  // free activation memory that only the timed steps needed
  prepared.duration = clock->Now() - begin;
  return prepared;
}

}  // namespace sluice
