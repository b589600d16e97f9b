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
      Advanced(SLUICE_DURATION(interval, Duration(kDayUs),
                               "The time between two reviews of the ladder, which adapt it to the "
                               "traffic. 0: a review only runs when `sluice review` asks for "
                               "it.")),
      Advanced(SLUICE_DURATION(half_life, (Integer{kSecondUs, 30 * kDayUs, Unit::kMicroseconds}),
                               "How fast a review forgets traffic: a sequence that arrived this "
                               "long ago counts half.")),
      Advanced(SLUICE_OPTION(min_gain, (Real{0.0, 1.0}),
                             "The smallest gain for which a review changes the ladder. A margin of "
                             "0.5 / sqrt(n) for the n arrivals of the recent traffic is added, "
                             "because a smaller gain may be chance. The gain is 1 - sqrt(device "
                             "time after / before * mean latency after / before), less the cost of "
                             "preparing the new plans.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<LadderOptions>>& OptionSpecs<LadderOptions>() {
  using S = LadderOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Advanced(SLUICE_OPTION(strategy, Choice<StrategyKind>{},
                             "How the bucket capacities are chosen. adaptive: starts with the "
                             "geometric ladder, or with the ladder of engine.ladder.file, and fits "
                             "it to the traffic; fixed: the capacities of fixed_tokens; geometric: "
                             "each is ratio times the one before; hardware_aware: multiples of the "
                             "rows that the device computes together; memory_optimal: geometric "
                             "with ratio 1.5. The exact maximum is always a bucket. Under "
                             "padded_buckets the capacities are the widths of the ladder's "
                             "columns, and max_buckets limits the columns; static_padded has one "
                             "column and ignores this.")),
      Advanced(SLUICE_OPTION(fixed_tokens, (IntegerList{Count(1, kMostTokens)}),
                             "Capacities in tokens for the fixed strategy, ascending, each at most "
                             "engine.batch.max_batch_tokens. Other strategies ignore it.")),
      Advanced(SLUICE_OPTION(ratio, (Real{1.0, 16.0, /*above_min=*/true}),
                             "Growth from one capacity to the next in a geometric ladder, and in "
                             "the first ladder of the adaptive strategy. A smaller ratio means "
                             "less padding, and more plans to prepare and keep.")),
      Advanced(SLUICE_OPTION(min_tokens, Count(1, kMostTokens),
                             "Smallest capacity in tokens; at most "
                             "engine.batch.max_batch_tokens.")),
      Advanced(SLUICE_OPTION(cap_tokens, Count(0, kMostTokens),
                             "Largest capacity of the geometric strategy, apart from the exact "
                             "maximum; at least min_tokens. 0: no limit.")),
      Advanced(SLUICE_OPTION(max_buckets, Count(1, 1024),
                             "The most buckets of a ladder. A denser ladder is thinned evenly and "
                             "keeps its smallest and largest bucket.")),
      Advanced(SLUICE_OPTION(min_bucket_usage, (Real{0.0, 1.0, false, /*below_max=*/true}),
                             "A review drops each bucket, except the maximum, that served a "
                             "smaller share of the recent batches. 0: no bucket is dropped for "
                             "this reason.")),
      Advanced(SLUICE_OPTION(memory_limit_bytes, Size(0, 16 * kTebibyte),
                             "Memory for the plans and the activations of a ladder. While they "
                             "need more, buckets are dropped, but never the maximum: at start the "
                             "largest, later those with the least benefit per MiB. At start the "
                             "maximum itself becomes smaller, unless engine.batch.max_batch_tokens "
                             "or the model requires it. 0: no limit.")),
      SLUICE_DURATION(warm_up, Duration(600 * kSecondUs),
                      "How long buckets are prepared and timed before a model is ready. They are "
                      "prepared from the smallest on. The plan of the largest is always ready, and "
                      "the smallest is timed. The rest is prepared while the model serves, the "
                      "most requested first; until then larger buckets serve with the same "
                      "results. Padded policies wait for all of their buckets."),
      SLUICE_OPTION(file, Path{},
                    "File that keeps the ladder and the measured costs between runs. A new process "
                    "then starts warm. The file is read before warm-up if it was written for the "
                    "same model, build and device, and is written after each change and at the "
                    "end. A relative path starts at the working directory. Models after the first "
                    "append their number: FILE.1. Empty: nothing is kept."),
      SLUICE_SECTION(review),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<BatchOptions>>& OptionSpecs<BatchOptions>() {
  using S = BatchOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Advanced(SLUICE_OPTION(policy, Choice<PolicyKind>{},
                             "How batches are formed. packed: packed, the most useful tokens per "
                             "measured time. The others exist for comparisons. fifo_packed: "
                             "packed, the longest prefix of the queue; padded_buckets: rectangles "
                             "with a power of two of rows, for the first sequence and those whose "
                             "length rounds up to the same width, which engine.ladder.strategy "
                             "chooses; static_padded: rectangles as wide as the model's longest "
                             "sequence, with rows rounded up to powers of two.")),
      SLUICE_OPTION(max_batch_tokens, Count(0, kMostTokens),
                    "The most tokens in a step batch, and so the largest bucket. Longer prompts "
                    "are computed in parts. Models with attention in both directions, and policies "
                    "other than packed, compute a sequence whole; there the model's longest "
                    "sequence must fit. 0: 4096, or the longest sequence that must fit if it is "
                    "longer."),
      SLUICE_OPTION(max_batch_sequences, Count(0, 65536),
                    "The most sequences in a step batch, and so the most that generate at a time. "
                    "0: 256 on a GPU; on a CPU 32 for each thread, at least 64 and at most 256."),
      SLUICE_DURATION(max_queue_delay, Duration(10 * kSecondUs),
                      "How long a request may be held back on a free device, so that others join "
                      "its batch. 0: not at all."),
      Advanced(SLUICE_OPTION(max_overtakes, Count(0, 1'000'000),
                             "The most sequences that may run before a sequence that was ahead of "
                             "them in the queue. 0: sequences run strictly in order.")),
      SLUICE_OPTION(prefill_tokens, Count(0, kMostTokens),
                    "Prompts are computed in chunks of at most this many tokens. A step that "
                    "carries running sequences computes no more tokens of other prompts, so that "
                    "the running ones do not wait longer for their next token. With a smaller "
                    "value the tokens of running sequences come more evenly. A larger value takes "
                    "fewer steps for long prompts, which improves their first tokens and the "
                    "throughput. Only packed uses it. 0: whole prompts."),
      Advanced(SLUICE_OPTION(continuous, Boolean{},
                             "Let new sequences join running ones between two steps. Off, they "
                             "wait until all sequences of a batch have ended, which costs "
                             "throughput and time to first token; this exists for comparisons. "
                             "Only packed uses it.")),
      Advanced(SLUICE_DURATION(priority_step, Duration(kHourUs),
                               "Each priority level below the most urgent queues as if it had "
                               "arrived this much later. Urgent requests go first, and no request "
                               "starves. 0: levels make no difference.")),
      Advanced(SLUICE_OPTION(padding, Choice<PaddingKind>{},
                             "The content of the padding in a padded layout; it is masked, so no "
                             "output depends on it. zeros: token 0; edge: the last token again; "
                             "reflect: the sequence backwards from its end, and forwards again; "
                             "adaptive: reflect where the padding is shorter than the sequence, "
                             "else edge. Packed policies have no padding and ignore this.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<KvOptions>>& OptionSpecs<KvOptions>() {
  using S = KvOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(memory_bytes, Size(0, kMostMemory),
                    "Memory of each model's KV pages, which hold keys and values of the sequences "
                    "in progress. With more, more sequences run at a time and more prefixes are "
                    "kept. With less, sequences are preempted and computed again, which costs "
                    "throughput and never changes results. Set it if a GPU serves several models, "
                    "or if models are replaced while they serve. Too little for the largest step "
                    "is an error at start. The default is meant for a single model and takes at "
                    "most the pages of max_batch_sequences of its longest sequences. 0: half of "
                    "the memory that weights and activations leave free on a CPU, nine tenths of "
                    "it on a GPU."),
      Advanced(SLUICE_OPTION(prefix_reuse, Boolean{},
                             "A sequence reuses the pages of an earlier sequence with the same "
                             "first tokens, so that shared prompts are computed once. This lowers "
                             "the time to first token and raises throughput. No result depends on "
                             "it.")),
      Advanced(SLUICE_OPTION(private_prefixes, Boolean{},
                             "Only requests of the same caller (server.auth.callers_file) reuse "
                             "pages, and anonymous requests never do, because the time of a first "
                             "token shows whether a prefix was sent before. If callers are not "
                             "identified, all share. false: all share always.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<QueueOptions>>& OptionSpecs<QueueOptions>() {
  using S = QueueOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(max_requests, Count(1, 1'000'000),
                    "Requests of a model that wait or run; one more is RESOURCE_EXHAUSTED."),
      SLUICE_OPTION(max_tokens, Count(1, int64_t{1} << 40),
                    "Tokens of the waiting and running requests, with the max_tokens of each row. "
                    "A request that would exceed it is RESOURCE_EXHAUSTED; one that has more by "
                    "itself is INVALID_ARGUMENT."),
      SLUICE_OPTION(max_bytes, Size(0, kMostMemory),
                    "Memory of a model's waiting and running requests, with their longest replies. "
                    "A request that would exceed it is RESOURCE_EXHAUSTED; one that takes more by "
                    "itself is INVALID_ARGUMENT. The default takes at most a quarter of "
                    "server.memory.limit_bytes for all configured models together. 0: a sixteenth "
                    "of server.memory.limit_bytes, at most 1 GiB."),
      SLUICE_DURATION(max_wait, Duration(kHourUs),
                      "The longest wait in the queue that is accepted; set it to the latency that "
                      "callers accept. A request is RESOURCE_EXHAUSTED if the waiting requests "
                      "would take longer at the measured costs, with the tokens that they are "
                      "expected to generate. A request with a nearer deadline has its own forecast "
                      "instead; a later deadline changes nothing. After an overload the queue is "
                      "back within this time. 0: no limit."),
      SLUICE_OPTION(max_caller_share, (Real{0.0, 1.0, /*above_min=*/true}),
                    "The share of each limit of the queue that one caller may fill "
                    "(server.auth.callers_file). This includes max_wait. Callers with queued "
                    "requests share the limit equally, and some room is always left for a caller "
                    "with none. At 0.95, one caller can use 95 % and ten callers 9.9 % each. 1: "
                    "one may fill all."),
      Advanced(SLUICE_OPTION(priority_share, (Real{0.0, 1.0, /*above_min=*/true}),
                             "Each priority level below the most urgent may fill this share of the "
                             "room of the level above, for each limit of the queue. The rest is "
                             "kept for more urgent requests. At 0.9, requests of the default level "
                             "are refused at 90 % and those of the lowest at 81 %. 1: no room is "
                             "kept.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<HistoryOptions>>& OptionSpecs<HistoryOptions>() {
  using S = HistoryOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Advanced(SLUICE_OPTION(requests, Count(0, 1'000'000),
                             "Finished requests of each model whose scheduling `sluice explain` "
                             "can explain.")),
      SLUICE_OPTION(journal, Path{},
                    "File to which arrivals, decisions and measured steps are appended, for the "
                    "simulator and for sizing. It has sizes and times, and no payload. A relative "
                    "path starts at the working directory. Models after the first append their "
                    "number: FILE.1. Empty: nothing is written."),
      Advanced(SLUICE_OPTION(journal_bytes, Size(1 << 20, kTebibyte),
                             "Size of a journal at which further lines are dropped and counted. To "
                             "begin another one, move the file away and restart, or reload the "
                             "model.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<WatchdogOptions>>& OptionSpecs<WatchdogOptions>() {
  using S = WatchdogOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_DURATION(hang, Duration(kHourUs),
                      "How long a step may take before it is considered hung. A step is hung once "
                      "it has run longer than both this and factor times its estimate. Its model's "
                      "requests then end with UNAVAILABLE, the daemon is neither ready nor live, "
                      "and the process ends with status 70, to be started again. The same applies "
                      "to anything else that holds up a model's scheduling for this long. Time in "
                      "which the process was stopped does not count. 0: no watchdog."),
      Advanced(SLUICE_OPTION(factor, (Real{1.0, 1e6}),
                             "A step may take this many times its estimated cost, if that is more "
                             "than hang.")),
      ForTests(SLUICE_DURATION(grace, Duration(kMinuteUs),
                               "After a hang: the time between the end of the requests and the end "
                               "of the process, for answers and logs to leave.")),
      Advanced(SLUICE_OPTION(failed_steps, Count(0, 1'000'000),
                             "After this many failed steps of a model in a row the daemon is not "
                             "ready, until one succeeds. 0: it stays ready.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<AttentionOptions>>& OptionSpecs<AttentionOptions>() {
  using S = AttentionOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Advanced(SLUICE_OPTION(variant, AttentionVariantWord{},
                             "The order in which attention on the CPU reads the keys of a "
                             "sequence. two_pass: all scores, then all sums; one_pass: both for "
                             "some keys at a time; split:N: one pass over each of N ranges of "
                             "keys, which threads share; split:auto: enough ranges to keep the "
                             "threads busy; auto: split:auto if the model's KV heads leave threads "
                             "idle in one_pass, else one_pass (sluice plan shows why). All give "
                             "the same bits. A GPU has only one_pass.")),
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
                    "Compute threads. With a GPU, they compute classifiers, dense layers of "
                    "embeddings and scores of candidates. 0: as many as the cgroup's limit and the "
                    "affinity mask allow."),
      SLUICE_OPTION(profile, Name{64},
                    "Numerics profile: auto, f32, bf16, or the name of an instruction set with a "
                    "type. auto: the fastest that multiplies weights in the precision in which "
                    "they are stored; weights stored as bf16 are multiplied in bf16 where the "
                    "processor can. f32: the fastest that computes everything in f32. bf16: as "
                    "auto, but an error where the processor cannot. Outputs are bitwise stable "
                    "within a profile."),
      ForTests(SLUICE_OPTION(poison, Boolean{}, kPoisonHelp)),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<CudaOptions>>& OptionSpecs<CudaOptions>() {
  using S = CudaOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(dtype, (OneOf{{"bf16", "f32"}}),
                    "Type of weights, activations and KV pages on a GPU; sums are always float. "
                    "bf16 moves half the bytes and uses the tensor cores. Part of the numerics "
                    "profile."),
      Advanced(SLUICE_OPTION(dense, (OneOf{{"auto", "own", "cublaslt"}}),
                             "How dense layers are computed on a GPU. own: Sluice's kernel, for "
                             "the live rows of a batch only; cublaslt: NVIDIA's library, for all "
                             "rows of the bucket, where one of its algorithms gives a row the same "
                             "bits in any batch; the other layers stay with the kernel. auto: "
                             "cublaslt where the library is found, else own. Part of the numerics "
                             "profile.")),
      Advanced(SLUICE_OPTION(algorithms, Path{},
                             "File of the table that maps each layer to an algorithm of cublaslt, "
                             "as gpu_bench tune makes it, for this GPU and this version of the "
                             "library. The table only chooses among the library's own candidates; "
                             "for a layer that it does not name, the library's own order decides. "
                             "Its digest is part of the numerics profile. Empty: the table in this "
                             "binary for the GPU and the library, if there is one.")),
      Advanced(SLUICE_OPTION(kernels, (OneOf{{"auto", "portable"}}),
                             "Sluice's kernels of attention, and of the products that no library "
                             "computes, on a GPU. auto: the first kernels for this GPU that pass "
                             "their trial with the model's weights (same bits of a row in any "
                             "batch, agreement with double, no NaN lost or spread); if none "
                             "passes, the model is not loaded. portable: the kernels that run on "
                             "every GPU, without a trial. Part of the numerics profile where the "
                             "GPU has tuned kernels.")),
      Advanced(SLUICE_OPTION(wait, (OneOf{{"block", "spin"}}),
                             "How the thread of a model waits for the GPU. block: it sleeps until "
                             "the GPU wakes it; spin: it polls for up to 20 ms before it sleeps, "
                             "which ends a step some microseconds sooner and keeps a core busy for "
                             "each running model.")),
      ForTests(SLUICE_OPTION(poison, Boolean{}, kPoisonHelp)),
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
