#include "engine/option_specs.h"

#include <algorithm>
#include <optional>

namespace sluice {
namespace {

constexpr int64_t kMostTokens = 1 << 20;  // of a step
constexpr int64_t kMostMemory = int64_t{1} << 50;
constexpr int64_t kMostDeviceIndex = 1023;

constexpr char kPoisonHelp[] =
    "Fill everything that a batch must not read with NaN before the batch runs. For tests; slow.";

}  // namespace

template <>
const std::vector<OptionSpec<ReviewOptions>>& OptionSpecs<ReviewOptions>() {
  using S = ReviewOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(interval_us, Duration(kDayUs),
                    "The time between reviews of the ladder, which adapt it to the traffic. 0: "
                    "only when asked for (sluice optimize)."),
      SLUICE_OPTION(half_life_us, (Integer{kSecondUs, 30 * kDayUs, Unit::kMicroseconds}),
                    "How soon traffic is forgotten: a sequence that arrived this long ago "
                    "counts half."),
      SLUICE_OPTION(min_gain, (Real{0.0, 1.0}),
                    "A changed ladder is adopted when its gain on the recent traffic is more than "
                    "this and a margin of 0.5 over the root of the number of arrivals looked at, "
                    "which covers what chance seems to gain. The gain is 1 - sqrt(device time "
                    "after / before * mean latency after / before), with the price of preparing "
                    "its plans paid."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<LadderOptions>>& OptionSpecs<LadderOptions>() {
  using S = LadderOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(strategy, Choice<StrategyKind>{},
                    "How the bucket capacities are chosen. adaptive: begins with the geometric "
                    "ladder, or that of file, and fits it to the traffic; fixed: those of "
                    "fixed_tokens; geometric: each is ratio times the one before; hardware_aware: "
                    "multiples of the processor's tiles; memory_optimal: ratio 1.5. The exact "
                    "maximum is always a bucket. Under padded_buckets the capacities are the "
                    "positions of the ladder's columns, and max_buckets bounds the columns; "
                    "static_padded has one column and ignores this."),
      SLUICE_OPTION(fixed_tokens, (IntegerList{Count(1, kMostTokens)}),
                    "Capacities in tokens for the fixed strategy, ascending, none above "
                    "engine.batch.max_batch_tokens. Other strategies ignore it."),
      SLUICE_OPTION(ratio, (Real{1.0, 16.0, /*above_min=*/true}),
                    "Growth from one capacity to the next under the geometric strategy, and of the "
                    "ladder that the adaptive one begins with. A smaller ratio means less padding "
                    "and more plans to prepare and keep."),
      SLUICE_OPTION(min_tokens, Count(1, kMostTokens),
                    "Smallest capacity in tokens; at most engine.batch.max_batch_tokens."),
      SLUICE_OPTION(cap_tokens, Count(0, kMostTokens),
                    "Largest capacity of the geometric strategy beside the exact maximum, at least "
                    "min_tokens. 0: no limit."),
      SLUICE_OPTION(max_buckets, Count(1, 1024),
                    "The most buckets that are kept. A denser ladder is thinned evenly, its ends "
                    "are kept."),
      SLUICE_OPTION(whole_tiles, Boolean{},
                    "Round every capacity but the exact maximum and those of fixed_tokens up to a "
                    "multiple of the rows that the device computes together; hardware_aware does "
                    "so in any case."),
      SLUICE_OPTION(min_bucket_usage, (Real{0.0, 1.0, false, /*below_max=*/true}),
                    "A review drops the buckets that served a smaller share of the recent batches, "
                    "never the maximum. 0: no bucket is dropped for that reason."),
      SLUICE_OPTION(memory_limit_bytes, Size(0, 16 * kTebibyte),
                    "Buckets, never the maximum, are dropped while the plans and the activations "
                    "of the ladder need more memory than this: at first the largest, later those "
                    "of the least benefit per MiB. The maximum itself is made smaller at start "
                    "unless engine.batch.max_batch_tokens or the model demands it. 0: no limit."),
      SLUICE_OPTION(warm_up_us, Duration(600 * kSecondUs),
                    "How long buckets are prepared and timed, from the smallest on, before a model "
                    "is ready. The plan of the largest is always ready, and the smallest is timed. "
                    "The rest is prepared while the model serves, first what its traffic asks for; "
                    "meanwhile larger buckets serve, with the same results. Padded policies wait "
                    "for all of their buckets."),
      SLUICE_OPTION(file, Path{},
                    "File that keeps the ladder and the measured costs between runs, so that a new "
                    "process starts warm: it is read before warm-up if it was written for the same "
                    "model, build and device, and written after each change and at the end. A "
                    "relative path starts at the working directory. Models after the first append "
                    "their number: FILE.1. Empty: nothing is kept."),
      SLUICE_SECTION(review),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<BatchOptions>>& OptionSpecs<BatchOptions>() {
  using S = BatchOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(
          policy, Choice<PolicyKind>{},
          "How batches are formed. cut_and_fill: packed, the most useful tokens per "
          "measured time. The others exist for comparisons: fifo_packed: "
          "packed, the longest prefix of the queue; padded_buckets: rectangles of a "
          "power of two of rows, whose positions engine.ladder.strategy chooses, of the first "
          "sequence and those whose length rounds up alike; static_padded: rectangles as "
          "wide as the model's "
          "longest sequence, with rows rounded up to powers of two."),
      SLUICE_OPTION(max_batch_tokens, Count(0, kMostTokens),
                    "The most tokens in a step batch, and so the largest bucket. Longer prompts "
                    "are cut; only models with attention in both directions, and policies other "
                    "than cut_and_fill, compute a sequence whole, so that the model's longest "
                    "must fit. 0: 4096, or the tokens that must fit if they are more."),
      SLUICE_OPTION(max_batch_sequences, Count(0, 65536),
                    "The most sequences in a step batch, and so the most that generate at a time. "
                    "0: 256 on a GPU; on a CPU 32 for each of its threads, at least 64 and at most "
                    "256."),
      SLUICE_OPTION(max_queue_delay_us, Duration(10 * kSecondUs),
                    "How long the oldest waiting request may be held back, while the device is "
                    "free, so that others can join its batch. 0: not at all."),
      SLUICE_OPTION(max_overtakes, Count(0, 1'000'000),
                    "The most sequences that may run before one that stood ahead of them in the "
                    "queue. 0: sequences run strictly in order."),
      SLUICE_OPTION(prefill_tokens, Count(0, kMostTokens),
                    "Prompts are computed in chunks of at most this many tokens, and a step that "
                    "carries running sequences computes no more of other prompts, so that the "
                    "running ones do not wait longer for their next token. With a smaller value "
                    "the tokens of running sequences come more evenly; a larger one takes fewer "
                    "steps for long prompts, so that their first tokens and the throughput gain. "
                    "0: whole prompts. Only cut_and_fill uses it."),
      SLUICE_OPTION(continuous, Boolean{},
                    "Let new sequences join running ones between two steps. Off, they wait until "
                    "all of a batch have ended, which costs throughput and time to first token; it "
                    "exists for comparisons. Only cut_and_fill uses it."),
      SLUICE_OPTION(priority_step_us, Duration(kHourUs),
                    "Each priority level below the most urgent queues as if it had arrived this "
                    "much later, so that urgent requests go first and no request starves. 0: "
                    "levels make no difference."),
      SLUICE_OPTION(padding, Choice<PaddingKind>{},
                    "What the padding of a padded layout holds; it is masked, so that no output "
                    "depends on it. zeros: token 0; edge: the last token again; reflect: the "
                    "sequence backwards from its end, and forwards again; adaptive: reflect where "
                    "the padding is shorter than the sequence, else edge. Packed policies have no "
                    "padding and ignore this."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<KvOptions>>& OptionSpecs<KvOptions>() {
  using S = KvOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(memory_bytes, Size(0, kMostMemory),
                    "Memory of each model's KV pages, which hold the keys and values of the "
                    "sequences in progress. With more, more sequences run at a time and more "
                    "prefixes are kept; with less, sequences are preempted and computed again, "
                    "which costs throughput, never results. 0, meant for one model: of the "
                    "memory that weights and activations leave free, a quarter on the CPU and nine "
                    "tenths on a GPU, at most as much as max_batch_sequences of the model's "
                    "longest sequences take. Set it where a GPU serves several models or where "
                    "models are replaced while they serve. Too little for the largest step is an "
                    "error at start."),
      SLUICE_OPTION(
          prefix_reuse, Boolean{},
          "A sequence whose first tokens are those of an earlier one uses its pages, so that "
          "shared prompts are computed once: less time to first token, and more "
          "throughput. No result depends on it."),
      SLUICE_OPTION(
          private_prefixes, Boolean{},
          "Pages are reused by requests of the same caller (server.auth.callers_file) alone, and "
          "never by anonymous ones, because the time of a first token tells whether a prefix was "
          "sent before. Where callers are not identified all share. false: all share always."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<QueueOptions>>& OptionSpecs<QueueOptions>() {
  using S = QueueOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(max_requests, Count(1, 1'000'000),
                    "Requests of a model waiting or running; one more is RESOURCE_EXHAUSTED."),
      SLUICE_OPTION(max_tokens, Count(1, int64_t{1} << 40),
                    "Tokens of the waiting and running requests, with the max_tokens of each row; "
                    "a request that would exceed it is RESOURCE_EXHAUSTED, one that has more by "
                    "itself INVALID_ARGUMENT."),
      SLUICE_OPTION(max_bytes, Size(0, kMostMemory),
                    "Memory of a model's waiting and running requests, with their replies at their "
                    "longest; a request that would exceed it is RESOURCE_EXHAUSTED, one that takes "
                    "more by itself INVALID_ARGUMENT. 0: a sixteenth of server.memory.limit_bytes, "
                    "at most 1 GiB, and of all configured models together at most a quarter."),
      SLUICE_OPTION(max_wait_us, Duration(kHourUs),
                    "A request is RESOURCE_EXHAUSTED if the requests that wait would take longer "
                    "than this, with the tokens that they are expected to generate, at the "
                    "measured costs: longer waits help nobody, and a daemon that was overloaded is "
                    "back so soon after. Set it to the objective: what your callers wait. A "
                    "nearer deadline has its own forecast instead; a later one changes nothing. "
                    "0: no bound."),
      SLUICE_OPTION(
          max_caller_share, (Real{0.0, 1.0, /*above_min=*/true}),
          "The share of each bound of the queue, max_wait_us too, that the requests of "
          "one caller (server.auth.callers_file) may fill alone. Several callers share the bound "
          "equally, and a rest is left for those that have none: with 0.95, one fills "
          "95 %, ten fill 9.9 % each. 1: one may fill all."),
      SLUICE_OPTION(priority_share, (Real{0.0, 1.0, /*above_min=*/true}),
                    "Each priority level below the most urgent may fill this share of what the "
                    "level above may, of each bound of the queue, so that the rest is kept for "
                    "more urgent requests: with 0.9 requests of the default level are refused at "
                    "90 % and those of the lowest at 81 %. 1: no room is kept."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<HistoryOptions>>& OptionSpecs<HistoryOptions>() {
  using S = HistoryOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(requests, Count(0, 1'000'000),
                    "Finished requests of each model whose scheduling can be explained (sluice "
                    "explain)."),
      SLUICE_OPTION(journal, Path{},
                    "File to which every arrival (sizes and times, no payload), decision and "
                    "measured step is appended, for the simulator and for sizing. A relative path "
                    "starts at the working directory. Models after the first append their number: "
                    "FILE.1. Empty: nothing is written."),
      SLUICE_OPTION(journal_bytes, Size(1 << 20, kTebibyte),
                    "Size of a journal from which on its lines are dropped and counted. Move the "
                    "file away and restart, or reload the model, to begin another one."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<WatchdogOptions>>& OptionSpecs<WatchdogOptions>() {
  using S = WatchdogOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(
          hang_us, Duration(kHourUs),
          "A step that has taken longer than this and than factor times its estimate "
          "hangs: its model's requests end with UNAVAILABLE, the daemon is neither ready "
          "nor live, and the process ends with status 70, to be started again. The same applies to "
          "anything else that holds up a model's scheduling for this long. Time "
          "in which the process was stopped does not count. 0: no watchdog."),
      SLUICE_OPTION(factor, (Real{1.0, 1e6}),
                    "How many times its estimated cost a step may take, where that is more than "
                    "hang_us."),
      SLUICE_OPTION(grace_us, Duration(kMinuteUs),
                    "After a hang: the time between the end of the requests and that of the "
                    "process, for answers and logs to leave."),
      SLUICE_OPTION(failed_steps, Count(0, 1'000'000),
                    "After so many failed steps of a model in a row the daemon is not ready, until "
                    "one succeeds. 0: it stays ready."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<AttentionOptions>>& OptionSpecs<AttentionOptions>() {
  using S = AttentionOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(variant, AttentionVariantWord{},
                    "The order in which attention on the CPU reads the keys of a sequence. "
                    "two_pass: all scores, then all sums; one_pass: both for some keys at a time; "
                    "split:N: one pass over each of N ranges of keys, which threads share; "
                    "split:auto: as many ranges as keep the threads busy; auto: split:auto if the "
                    "model's KV heads leave threads idle in one_pass, else one_pass (sluice plan "
                    "shows why). All give the same bits. A GPU has only one_pass."),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<EngineOptions>>& OptionSpecs<EngineOptions>() {
  using S = EngineOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>(
      {SLUICE_SECTION(ladder), SLUICE_SECTION(batch), SLUICE_SECTION(kv), SLUICE_SECTION(queue),
       SLUICE_SECTION(history), SLUICE_SECTION(watchdog), SLUICE_SECTION(attention)}));
  return specs;
}

template <>
const std::vector<OptionSpec<CpuOptions>>& OptionSpecs<CpuOptions>() {
  using S = CpuOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(threads, Count(0, 1024),
                    "Compute threads; with a GPU, those that compute classifiers, dense layers of "
                    "embeddings and scores of candidates. 0: as many as the cgroup's limit and "
                    "the affinity mask allow."),
      SLUICE_OPTION(profile, Name{64},
                    "Numerics profile by name (instruction set, types and algorithms). auto: the "
                    "fastest that multiplies weights in the precision in which they are stored, "
                    "so that those stored as bf16 are multiplied in bf16 where the processor can. "
                    "f32: the fastest that computes everything in f32. bf16: as auto, but an error "
                    "where the processor cannot. Outputs are bitwise stable within a profile."),
      SLUICE_OPTION(poison, Boolean{}, kPoisonHelp),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<CudaOptions>>& OptionSpecs<CudaOptions>() {
  using S = CudaOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(dtype, (OneOf{{"bf16", "f32"}}),
                    "Type of weights, activations and KV pages on a GPU; sums are float either "
                    "way. bf16 moves half the bytes and uses the tensor cores. Part of the "
                    "numerics profile."),
      SLUICE_OPTION(
          dense, (OneOf{{"auto", "own", "cublaslt"}}),
          "How dense layers are computed on a GPU. own: Sluice's kernel, for the live rows "
          "of a batch alone; cublaslt: NVIDIA's library, for all rows of the bucket, "
          "where one of its algorithms gives a row the same bits in any batch; the other "
          "layers stay with the kernel. auto: cublaslt where the library is found, else own. Part "
          "of the numerics profile."),
      SLUICE_OPTION(
          algorithms, Path{},
          "File of the table that says which algorithm of cublaslt computes which layer, "
          "as gpu_bench tune makes it, for this GPU and this version of the library. "
          "Empty: the table for them in this binary, if any. For a layer that the table does "
          "not name the library's own order decides. The table only chooses among the "
          "library's own candidates. Its digest is part of the numerics profile."),
      SLUICE_OPTION(
          kernels, (OneOf{{"auto", "portable"}}),
          "Sluice's kernels of attention, and of the products that no library computes, on a GPU. "
          "auto: the first of those for this GPU that passes its trial with the model's weights "
          "(same bits of a row in any batch, agreement with double, no NaN lost or spread); a "
          "model for which none passes is not loaded. portable: those that run on every GPU, "
          "without a trial. Part of the numerics profile where the GPU has tuned kernels."),
      SLUICE_OPTION(wait, (OneOf{{"block", "spin"}}),
                    "How the thread of a model waits for the GPU. block: it sleeps until the GPU "
                    "wakes it; spin: it asks for up to 20 ms before it sleeps, which ends a step "
                    "some microseconds sooner and keeps a core busy for each running model."),
      SLUICE_OPTION(poison, Boolean{}, kPoisonHelp),
  }));
  return specs;
}

std::string AttentionVariantWord::Expected() const {
  return absl::StrCat("one of auto, one_pass, two_pass, split:auto, split:N with N in [2, ",
                      AttentionVariant::kMaxParts, "]");
}

bool AttentionVariantWord::Parse(absl::string_view text, AttentionVariant* value) const {
  const std::optional<AttentionVariant> parsed = ParseAttentionVariant({text.data(), text.size()});
  if (parsed.has_value()) *value = *parsed;
  return parsed.has_value();
}

std::string AttentionVariantWord::Format(const AttentionVariant& value) const {
  const std::string name = AttentionVariantName(value);
  return value.kind == AttentionVariant::Kind::kSplit ? Quote(name) : name;
}

std::string DeviceName::Expected() const {
  return absl::StrCat("one of auto, cpu, cuda:N with N in [0, ", kMostDeviceIndex, "]");
}

bool DeviceName::Parse(absl::string_view text, DeviceChoice* value) const {
  using Kind = DeviceChoice::Kind;
  const size_t colon = std::min(text.find(':'), text.size());
  const std::optional<Kind> kind = EnumOf<Kind>({text.data(), colon});
  DeviceChoice parsed{kind.value_or(Kind::kAuto)};
  if (!kind.has_value()) return false;
  if (colon < text.size()) {
    const Integer index{0, kMostDeviceIndex};
    if (kind != Kind::kCuda || !index.Parse(text.substr(colon + 1), &parsed.index)) return false;
  }
  *value = parsed;
  return true;
}

std::string DeviceName::Format(const DeviceChoice& value) const {
  std::string name(NameOf(value.kind));
  return value.kind == DeviceChoice::Kind::kCuda ? Quote(absl::StrCat(name, ":", value.index))
                                                 : name;
}

}  // namespace sluice
