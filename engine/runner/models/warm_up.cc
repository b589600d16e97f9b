#include "engine/runner/models/warm_up.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error_at.h"
#include "base/fault_injection.h"
#include "base/status_macros.h"
#include "engine/option_specs.h"
#include "engine/runner/models/bucket_warm_up.h"
#include "engine/runner/models/memory_limit.h"
#include "engine/schedule/scheduler.h"

namespace sluice {
namespace {

constexpr int32_t kDefaultBatchTokens = 4096;
constexpr int64_t kMaxPages = 1 << 26;

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

// Returns the bounds of the model's ladders, before the free memory lowers them. Returns
// InvalidArgument, which names the option, if an option is out of range for the model.
absl::StatusOr<LadderLimits> LimitsOf(const EngineOptions& options, const Model& model,
                                      const BackendInfo& info) {
  SLUICE_ASSIGN_OR_RETURN(const int32_t max_tokens, MaxBatchTokens(options.batch, model.config));
  if (model.draft != nullptr && !KeepsPages(options.batch, model.config)) {
    return absl::InvalidArgumentError(
        absl::StrCat("speculation.draft is ", model.draft->name, ", but engine.batch.policy ",
                     NameOf(options.batch.policy).data(),
                     " keeps no KV pages, so no token can be drafted. Set engine.batch.policy to "
                     "packed, or remove speculation.draft"));
  }
  const LadderLimits limits = {.max_tokens = max_tokens,
                               .max_sequences = options.batch.max_batch_sequences,
                               .rows = {},
                               .max_positions = static_cast<int32_t>(model.config.max_positions),
                               .max_buckets = info.max_buckets};
  const absl::Status ladder = BuildLadder(options.ladder, options.batch.policy, limits).status();
  if (!ladder.ok()) return ErrorAt("engine.ladder, or the model's own ladder", ladder);
  return limits;
}

// Returns the fewest pages that a model needs for its largest step and its longest sequence.
int32_t LeastPages(const Bucket& capacity, const ModelConfig& config, int32_t page_tokens) {
  return std::max<int64_t>(MaxPages(capacity, page_tokens),
                           (config.max_positions + page_tokens - 1) / page_tokens);
}

// Returns InvalidArgument if engine.kv.memory_bytes is set and is too small.
absl::Status CheckPages(const KvOptions& options, const ModelConfig& config, const Bucket& capacity,
                        int32_t page_tokens, int64_t page_bytes) {
  if (options.memory_bytes == 0 || page_bytes == 0) return absl::OkStatus();
  const int64_t pages = options.memory_bytes / page_bytes;
  const int64_t least = LeastPages(capacity, config, page_tokens);
  if (pages >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "engine.kv.memory_bytes of ", options.memory_bytes, " holds ", pages, " pages of ",
      page_bytes, " bytes; the minimum is ", least, " pages, ", least * page_bytes,
      " bytes, for the largest step (", capacity.tokens, " tokens) and the longest sequence (",
      config.max_positions, " tokens). Set it to at least ", least * page_bytes, ", or to 0"));
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

// Returns the tokens of the smallest step that the daemon chooses by itself.
int64_t LeastTokens(const EngineOptions& options, const ModelConfig& config) {
  constexpr int64_t kLeast = 64;  // smaller steps would be slow
  const std::vector<int32_t>& fixed = options.ladder.fixed_tokens;
  const bool is_fixed = options.ladder.strategy == StrategyKind::kFixed && !fixed.empty();
  return std::max<int64_t>(KeepsPages(options.batch, config) ? kLeast : config.max_positions,
                           is_fixed ? fixed.back() : 0);
}

// Returns engine.kv.memory_bytes, or 0 if it has no effect on the model.
int64_t ConfiguredKvBytes(const EngineOptions& options, const ModelConfig& config) {
  return KeepsPages(options.batch, config) ? options.kv.memory_bytes : 0;
}

// Returns the tokens of the largest step, at most those of `capacity` and in halves of them, whose
// slot fits in `bytes` and whose pages fit in engine.kv.memory_bytes; 0 if there is none.
int64_t FittingTokens(const EngineOptions& options, const ModelConfig& config,
                      const ExecutableModel& executable, Bucket capacity, int32_t page_tokens,
                      int64_t bytes) {
  const int64_t least = LeastTokens(options, config);
  const int64_t configured = ConfiguredKvBytes(options, config);
  for (; capacity.tokens >= least; capacity.tokens /= 2) {
    capacity.sequences = std::min(capacity.sequences, capacity.tokens);
    const int64_t kv = LeastPages(capacity, config, page_tokens) * executable.page_bytes();
    if (configured > 0 && kv > configured) continue;
    if (executable.activation_bytes(capacity) + std::max(kv, configured) <= bytes)
      return capacity.tokens;
  }
  return 0;
}

// Returns the memory that a model may take for activations and pages if all models that are still
// to be prepared share the free memory. Its own weights are loaded already.
int64_t ShareOf(int64_t free_bytes, const WarmUpRoom& room) {
  return std::max<int64_t>(free_bytes - room.later_weights, 0) / room.models;
}

// Lowers the default size of steps so that a slot fits in `share` and its pages fit in
// engine.kv.memory_bytes, or to the smallest size if none fits: the model then takes as little as
// possible from the others. A size in the options stays.
void FitSteps(const EngineOptions& options, const Model& model, const BackendInfo& info,
              const ExecutableModel& executable, int64_t share, Observer* observer,
              LadderLimits* limits) {
  if (options.batch.max_batch_tokens > 0) return;
  const Bucket wanted{.tokens = limits->max_tokens, .sequences = limits->max_sequences};
  const int64_t fitting =
      FittingTokens(options, model.config, executable, wanted, info.page_tokens, share);
  const int64_t tokens = fitting > 0 ? fitting : LeastTokens(options, model.config);
  if (tokens >= wanted.tokens) return;
  const int64_t configured = ConfiguredKvBytes(options, model.config);
  observer->OnNotice(
      model,
      absl::StrCat(
          "a step has at most ", tokens, " tokens instead of ", wanted.tokens, ", because ", share,
          " bytes of memory are free for this model",
          configured > 0 ? absl::StrCat(" and engine.kv.memory_bytes is ", configured) : ""));
  limits->max_tokens = static_cast<int32_t>(tokens);
}

// Prepares the model's draft model. Its pages take at most a quarter of `share`, the memory that
// the model and its draft model may take. Returns ResourceExhausted if that is too little.
absl::StatusOr<std::unique_ptr<DraftModel>> PrepareDraft(
    const Model& model, std::shared_ptr<const ExecutableModel> executable, const BackendInfo& info,
    int64_t share, Clock* clock, Observer* observer) {
  constexpr int32_t kLeastPositions = 64;
  const int64_t most = std::min(model.config.max_positions, model.draft->config.max_positions);
  const int64_t row_pages = share / 4 / executable->page_bytes() / model.speculation.sequences;
  const int64_t positions = std::min(most, row_pages * info.page_tokens);
  if (positions < std::min<int64_t>(most, kLeastPositions)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the draft model ", model.draft->name, " takes ", executable->page_bytes(),
        " bytes for a KV page of ", info.page_tokens, " tokens, but only ", share / 4,
        " bytes are free for its pages. Remove speculation.draft, or give the daemon more memory"));
  }
  if (positions < most) {
    observer->OnNotice(
        model, absl::StrCat("the draft model ", model.draft->name, " drafts for rows of up to ",
                            positions, " tokens instead of ", most, ", because ", share / 4,
                            " bytes of memory are free for its KV pages"));
  }
  return DraftModel::Create(model.draft, std::move(executable),
                            {.page_tokens = info.page_tokens,
                             .rows = model.speculation.sequences,
                             .positions = static_cast<int32_t>(positions)},
                            clock);
}

// Prepares the model's encoder of labels. Returns ResourceExhausted if it does not fit in `share`.
absl::StatusOr<std::unique_ptr<LabelEncoder>> PrepareLabels(
    const Model& model, std::shared_ptr<const ExecutableModel> executable, const BackendInfo& info,
    int64_t share, Clock* clock) {
  const int64_t needed = LabelEncoder::Bytes(*model.labels, *executable, info.page_tokens);
  if (needed > share) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the encoder of labels ", model.labels->name, " takes ", needed,
                     " bytes for its steps and the vectors of labels, but only ", share,
                     " are free for this model. Serve fewer models, or give the daemon more "
                     "memory"));
  }
  return LabelEncoder::Create(model.labels, std::move(executable), info.page_tokens, clock);
}

// Loads the adapters that fit in their memory: at most half of `share`.
absl::StatusOr<std::unique_ptr<AdapterTable>> LoadAdapters(const Model& model,
                                                           const ExecutableModel& executable,
                                                           int64_t share, Clock* clock) {
  const int64_t limit =
      model.graph.takes_adapters ? std::min(model.adapter_memory_bytes, share / 2) : 0;
  auto table = std::make_unique<AdapterTable>(model.name, &executable, limit, clock);
  for (const AdapterSource& adapter : model.adapters) {
    SLUICE_RETURN_IF_ERROR(table->Load(adapter, AdapterTable::Room::kFree));
  }
  return table;
}

// Returns ResourceExhausted, with a remedy that works, if the model's slots do not fit in the free
// memory.
absl::Status CheckRoom(const EngineOptions& options, const ModelConfig& config,
                       const ExecutableModel& executable, const Bucket& capacity,
                       const PagedScheduler::Options& kv, int64_t free_bytes) {
  const int64_t activations = executable.activation_bytes(capacity);
  const int64_t kv_bytes = kv.pages * executable.page_bytes();
  if (activations + kv_bytes <= free_bytes) return absl::OkStatus();
  const int64_t fitting =
      FittingTokens(options, config, executable, capacity, kv.page_tokens, free_bytes);
  const std::string remedy =
      fitting > 0 ? absl::StrCat("Set engine.batch.max_batch_tokens to ", fitting, " or less")
                  : "Serve fewer models, or give the daemon more memory";
  return absl::ResourceExhaustedError(absl::StrCat(
      "the model takes ", activations, " bytes of activations (engine.batch.max_batch_tokens is ",
      capacity.tokens, ") and ", kv_bytes, " of KV pages (engine.kv.memory_bytes), but only ",
      free_bytes, " are free for models. ", remedy));
}

// Returns the number of KV pages and the options for their use. `share` is the part of the free
// memory that this model may take, for activations and pages.
absl::StatusOr<PagedScheduler::Options> PageOptionsFor(const EngineOptions& options,
                                                       const ModelConfig& config,
                                                       const Ladder& ladder,
                                                       const BackendInfo& info, int64_t share,
                                                       const ExecutableModel& executable) {
  const Bucket capacity = ExecutionSlot::CapacityOf(ladder);
  const int64_t page_bytes = executable.page_bytes();
  const int64_t sequence = (config.max_positions + info.page_tokens - 1) / info.page_tokens;
  const int32_t least = LeastPages(capacity, config, info.page_tokens);
  PagedScheduler::Options kv{.keeps_pages = KeepsPages(options.batch, config),
                             .pages = least,
                             .step_pages = MaxPages(capacity, info.page_tokens),
                             .page_tokens = info.page_tokens,
                             .attention_window = AttentionWindow(config),
                             .prefix_reuse = options.kv.prefix_reuse};
  if (!kv.keeps_pages) return kv;
  SLUICE_RETURN_IF_ERROR(CheckPages(options.kv, config, capacity, info.page_tokens, page_bytes));
  int64_t pages = options.kv.memory_bytes / page_bytes;
  if (options.kv.memory_bytes == 0) {
    const int64_t left = std::max<int64_t>(share - executable.activation_bytes(capacity), 0);
    pages = std::clamp<int64_t>(left / 100 * info.kv_memory_percent / page_bytes, least,
                                std::max<int64_t>(capacity.sequences * sequence, least));
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

absl::Status CheckOptions(const EngineOptions& options, const Model& model,
                          const Backend& backend) {
  SLUICE_ASSIGN_OR_RETURN(LadderLimits limits, LimitsOf(options, model, backend.info()));
  if (!KeepsPages(options.batch, model.config)) return absl::OkStatus();
  if (options.batch.max_batch_tokens == 0) {
    // How far WarmUp lowers the largest step is known once the model is loaded.
    limits.max_tokens = static_cast<int32_t>(
        std::min<int64_t>(limits.max_tokens, LeastTokens(options, model.config)));
    if (options.ladder.memory_limit_bytes > 0) {
      limits.max_tokens = std::min(limits.max_tokens, options.ladder.min_tokens);
    }
  }
  return CheckPages(options.kv, model.config,
                    {.tokens = limits.max_tokens, .sequences = limits.max_sequences},
                    backend.info().page_tokens, backend.PageBytes(model.config));
}

absl::StatusOr<PreparedModel> WarmUp(const std::shared_ptr<const Model>& model,
                                     const EngineOptions& options, Backend* backend, Clock* clock,
                                     Observer* observer, const WarmUpRoom& room) {
  const MonoTime begin = clock->Now();
  const BackendInfo& info = backend->info();
  PreparedModel prepared;
  // An option that is out of range is reported before the weights are packed.
  SLUICE_ASSIGN_OR_RETURN(prepared.limits, LimitsOf(options, *model, info));

  SLUICE_RETURN_IF_ERROR(MeetStartFault(FaultPoint::kLoad));
  SLUICE_ASSIGN_OR_RETURN(prepared.executable, backend->Load(model));
  int64_t taken = prepared.executable->weight_bytes();
  std::shared_ptr<const ExecutableModel> draft;
  if (model->draft != nullptr) {
    draft = room.draft;
    if (draft == nullptr) {
      SLUICE_ASSIGN_OR_RETURN(draft, backend->Load(model->draft));
      taken += draft->weight_bytes();
    }
  }
  std::shared_ptr<const ExecutableModel> labels;
  if (model->labels != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(labels, backend->Load(model->labels));
    taken += labels->weight_bytes();
  }
  const auto free = [&] {
    return std::max<int64_t>(std::min(backend->FreeMemory(), room.free_bytes - taken), 0);
  };
  SLUICE_ASSIGN_OR_RETURN(prepared.adapters,
                          LoadAdapters(*model, *prepared.executable, ShareOf(free(), room), clock));
  taken += prepared.adapters->limit();
  if (draft != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(prepared.draft, PrepareDraft(*model, std::move(draft), info,
                                                         ShareOf(free(), room), clock, observer));
    const SlotMemory memory = prepared.draft->memory();
    taken += memory.kv + memory.activation_room;
  }
  if (labels != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(prepared.labels, PrepareLabels(*model, std::move(labels), info,
                                                           ShareOf(free(), room), clock));
    const SlotMemory memory = prepared.labels->memory();
    taken += memory.kv + memory.activation_room;
  }
  const int64_t free_bytes = free();
  const int64_t share = ShareOf(free_bytes, room);
  FitSteps(options, *model, info, *prepared.executable, share, observer, &prepared.limits);
  const Bucket unlimited{.tokens = prepared.limits.max_tokens,
                         .sequences = prepared.limits.max_sequences};
  prepared.limits.rows = prepared.executable->computed_rows();
  prepared.limits.max_tokens =
      TokensWithinLimit(options, model->config, prepared.limits, *prepared.executable);
  prepared.costs =
      CostModel(prepared.limits.rows, {model->config.experts.count, model->config.experts.chosen});
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
  const Ladder step_ladder = MakePackedLadder({}, step_limits);
  SLUICE_ASSIGN_OR_RETURN(prepared.kv, PageOptionsFor(options, model->config, step_ladder, info,
                                                      share, *prepared.executable));
  const bool drafts = model->speculation.kind != Speculation::kNone;
  prepared.kv.draft_sequences = drafts ? model->speculation.sequences : 0;
  SLUICE_RETURN_IF_ERROR(CheckRoom(options, model->config, *prepared.executable,
                                   ExecutionSlot::CapacityOf(step_ladder), prepared.kv,
                                   free_bytes));
  SLUICE_RETURN_IF_ERROR(MeetStartFault(FaultPoint::kAllocate));
  // The slot is created before the plans, because a device prepares plans for existing slots.
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<ExecutionSlot> slot,
                          ExecutionSlot::Create(prepared.executable.get(), model.get(), step_ladder,
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
