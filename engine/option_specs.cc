#include "engine/option_specs.h"

#include <algorithm>
#include <optional>

namespace sluice {
namespace {

constexpr int64_t kMostTokens = 1 << 20;  // of a step
constexpr int64_t kMostMemory = int64_t{1} << 50;
constexpr int64_t kMostDeviceIndex = 1023;

constexpr char kPoisonHelp[] =
    "Before a batch runs, fill all memory that it must not read with NaN. For tests; slow.";

}  // namespace

template <>
const std::vector<OptionSpec<ReviewOptions>>& OptionSpecs<ReviewOptions>() {
  using S = ReviewOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Advanced(
          SLUICE_DURATION(interval, Duration(kDayUs),
                          "The time between two reviews, which adapt the ladder to the traffic. "
                          "0: a review runs only on `sluice review`.")),
      Advanced(
          SLUICE_DURATION(half_life, (Integer{kSecondUs, 30 * kDayUs, Unit::kMicroseconds}),
                          "Half-life of traffic in a review: a sequence that arrived this long "
                          "ago counts half.")),
      Advanced(SLUICE_OPTION(min_gain, (Real{0.0, 1.0}),
                             "The smallest gain that makes a review change the ladder. A margin of "
                             "0.5 / sqrt(n) is added, where n is the number of recent arrivals, "
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
                             "geometric ladder, or with the ladder in engine.ladder.file, and fits "
                             "it to the traffic; fixed: the capacities in fixed_tokens; geometric: "
                             "each capacity is ratio times the previous one; hardware_aware: "
                             "evenly spaced in each octave; "
                             "memory_optimal: geometric with ratio 1.5. The exact maximum is "
                             "always a bucket. adaptive and hardware_aware choose only capacities "
                             "that the device computes without further rows. Where a device "
                             "computes only the tokens of a batch, as a CPU does, reviews do not "
                             "change the ladder. "
                             "With policy padded_buckets, the capacities are the "
                             "widths of the ladder's columns, and max_buckets limits the number of "
                             "columns. Policy static_padded has one column and ignores this "
                             "option.")),
      Advanced(SLUICE_OPTION(fixed_tokens, (IntegerList{Count(1, kMostTokens)}),
                             "Capacities in tokens for the fixed strategy, ascending, each at most "
                             "engine.batch.max_batch_tokens. Other strategies ignore it.")),
      Advanced(SLUICE_OPTION(ratio, (Real{1.0, 16.0, /*above_min=*/true}),
                             "Ratio of each capacity to the previous one in a geometric ladder, "
                             "and in the first ladder of the adaptive strategy. A smaller ratio "
                             "means less padding, but more plans to prepare and keep.")),
      Advanced(SLUICE_OPTION(min_tokens, Count(1, kMostTokens),
                             "Smallest capacity in tokens; at most "
                             "engine.batch.max_batch_tokens.")),
      Advanced(SLUICE_OPTION(cap_tokens, Count(0, kMostTokens),
                             "Largest capacity of the geometric strategy, apart from the exact "
                             "maximum; at least min_tokens. 0: no limit.")),
      Advanced(SLUICE_OPTION(max_buckets, Count(0, 1024),
                             "Maximum number of buckets in a ladder. If a strategy gives more "
                             "buckets, the ladder is thinned evenly and keeps its smallest and "
                             "largest bucket. 0: 16 on a CPU; on a GPU 16 to 256, as many as can "
                             "be captured within engine.ladder.warm_up and half of the free "
                             "memory.")),
      Advanced(
          SLUICE_OPTION(min_bucket_usage, (Real{0.0, 1.0, false, /*below_max=*/true}),
                        "A review drops each bucket, except the largest, that served less than "
                        "this share of the recent batches. 0: no bucket is dropped for "
                        "this reason.")),
      Advanced(SLUICE_OPTION(memory_limit_bytes, Size(0, 16 * kTebibyte),
                             "Memory limit for the plans and activations of a ladder. Above the "
                             "limit, buckets are dropped, but never the exact maximum: at start "
                             "the largest buckets, later the buckets with the least benefit per "
                             "MiB. At start the maximum itself is reduced if needed, unless "
                             "engine.batch.max_batch_tokens or the model requires it. The log, "
                             "sluice models and sluice doctor show the effect at start with its "
                             "cost. A model can have a limit of its own. 0: no limit.")),
      SLUICE_DURATION(warm_up, Duration(600 * kSecondUs),
                      "How long buckets are prepared and timed before a model is ready. They are "
                      "prepared in ascending order. The plan of the largest bucket is always "
                      "prepared, and the smallest bucket is always timed. The remaining buckets "
                      "are prepared while the model serves, the most requested first. Until then, "
                      "larger buckets serve their batches, with the same results. Padded policies "
                      "wait for all of their buckets."),
      SLUICE_OPTION(file, Path{},
                    "File that keeps the ladder and the measured costs between runs. A new process "
                    "then starts warm. The file is read before warm-up if it was written for "
                    "the same model, build and device. It is written after each change and at "
                    "shutdown. A relative path is resolved against the working directory. Models "
                    "after the first append their number: FILE.1. After a restart, a model has the "
                    "file that was written for its name and version; a new version takes the file "
                    "of a version that is no longer served. Empty: nothing is kept."),
      SLUICE_SECTION(review),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<BatchOptions>>& OptionSpecs<BatchOptions>() {
  using S = BatchOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Advanced(
          SLUICE_OPTION(policy, Choice<PolicyKind>{},
                        "How batches are formed. packed: without padding, with the most useful "
                        "tokens per measured time. The other policies exist for comparisons. "
                        "fifo_packed: without padding, from the longest prefix of the queue "
                        "that fits; padded_buckets: a rectangle whose number of rows is a "
                        "power of two, for the first sequence and the sequences whose length "
                        "rounds up to the same width (engine.ladder.strategy chooses the "
                        "widths); static_padded: a rectangle as wide as the model's longest "
                        "sequence, with rows rounded up to a power of two.")),
      SLUICE_OPTION(max_batch_tokens, Count(0, kMostTokens),
                    "Maximum number of tokens in a step batch, and so the capacity of the largest "
                    "bucket. Longer prompts are computed in parts. Models with attention in both "
                    "directions, and policies other than packed, compute each sequence in one "
                    "step, so the model's longest sequence must fit. On a CPU, a step of more than "
                    "a millisecond takes fewer tokens if that lowers the throughput by less than "
                    "5 %. 0: 4096, or the length of the longest sequence that must fit, if that is "
                    "larger."),
      SLUICE_OPTION(max_batch_sequences, Count(0, 65536),
                    "Maximum number of sequences in a step batch, and so the maximum number that "
                    "generate at the same time. 0: 256 on a GPU; on a CPU 32 for each thread, at "
                    "least 64 and at most 256."),
      SLUICE_DURATION(max_queue_delay, Duration(10 * kSecondUs),
                      "How long a request may be delayed while the device is free, so that other "
                      "requests can join its batch. 0: no delay."),
      Advanced(SLUICE_OPTION(max_overtakes, Count(0, 1'000'000),
                             "Maximum number of sequences that may overtake a sequence in the "
                             "queue. 0: sequences run strictly in order.")),
      SLUICE_OPTION(prefill_tokens, Count(0, kMostTokens),
                    "Prompts are computed in chunks of at most this many tokens. A step with "
                    "running sequences computes at most this many prompt tokens of other "
                    "sequences, so that the running sequences do not wait longer for their next "
                    "token. A smaller value makes the intervals between tokens of running "
                    "sequences more even. A larger value needs fewer steps for long prompts, "
                    "which improves their time to first token and the throughput. Only packed "
                    "uses this option. 0: whole prompts."),
      Advanced(
          SLUICE_OPTION(continuous, Boolean{},
                        "Let new sequences join running sequences between two steps. If false, "
                        "new sequences wait until all sequences of the batch have ended, "
                        "which costs throughput and time to first token; this exists for "
                        "comparisons. Only packed uses this option.")),
      Advanced(
          SLUICE_DURATION(priority_step, Duration(kHourUs),
                          "For each priority level below the most urgent, a request is queued as "
                          "if it had arrived this much later. Urgent requests run first, and "
                          "no request starves. 0: levels make no difference.")),
      Advanced(SLUICE_OPTION(padding, Choice<PaddingKind>{},
                             "The content of the padding in a padded layout. Padding is masked, so "
                             "no output depends on it. zeros: token 0; edge: the last token "
                             "repeated; reflect: the sequence mirrored at its end, then at its "
                             "start, and so on; adaptive: reflect if the padding is shorter than "
                             "the sequence, else edge. Packed policies have no padding and ignore "
                             "this option.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<KvOptions>>& OptionSpecs<KvOptions>() {
  using S = KvOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(memory_bytes, Size(0, kMostMemory),
                    "Memory of each model's KV pages, which hold keys and values of the sequences "
                    "in progress. With more memory, more sequences run at the same time and more "
                    "prefixes are kept. With less memory, sequences are preempted and computed "
                    "again, which costs throughput but never changes results. Set this option if "
                    "models are loaded or replaced while others serve. "
                    "Startup fails if the largest step does not fit; the default of "
                    "max_batch_tokens is lowered before. The default is at most the "
                    "memory of max_batch_sequences sequences of maximum length. 0: half of the "
                    "memory left by weights and activations on a CPU, nine tenths of it on a GPU; "
                    "models that are loaded together share that memory equally."),
      Advanced(SLUICE_OPTION(prefix_reuse, Boolean{},
                             "A sequence reuses the pages of an earlier sequence with the same "
                             "first tokens, so that shared prompts are computed once. This lowers "
                             "the time to first token and raises throughput. No result depends on "
                             "it.")),
      Advanced(SLUICE_OPTION(private_prefixes, Boolean{},
                             "A request reuses pages only from requests of the same caller "
                             "(server.auth.callers_file), and anonymous requests reuse none, "
                             "because the time to first token shows whether a prefix was sent "
                             "before. If callers are not identified, all requests share pages. "
                             "false: all requests always share pages.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<QueueOptions>>& OptionSpecs<QueueOptions>() {
  using S = QueueOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_OPTION(max_requests, Count(1, 1'000'000),
                    "Maximum number of waiting and running requests of a model. Further requests "
                    "are refused with RESOURCE_EXHAUSTED. priority_share lowers the limit for "
                    "levels 2 and 3."),
      SLUICE_OPTION(max_tokens, Count(1, int64_t{1} << 40),
                    "Maximum number of tokens of the waiting and running requests, including the "
                    "max_tokens of each row. A request that would exceed it is refused with "
                    "RESOURCE_EXHAUSTED; a single request above the limit is refused with "
                    "INVALID_ARGUMENT. priority_share lowers the limit for levels 2 and 3."),
      SLUICE_OPTION(max_bytes, Size(0, kMostMemory),
                    "Maximum memory of a model's waiting and running requests, including their "
                    "longest replies. A request that would exceed it is refused with "
                    "RESOURCE_EXHAUSTED; a single request above the limit is refused with "
                    "INVALID_ARGUMENT. priority_share lowers the limit for levels 2 and 3. 0: a "
                    "sixteenth of server.memory.limit_bytes for all models, at most 1 GiB."),
      SLUICE_DURATION(
          max_wait, Duration(kHourUs),
          "The longest accepted wait in the queue; set it to the latency that callers "
          "accept. A request without a deadline is refused with RESOURCE_EXHAUSTED if "
          "the requests ahead of it would take longer than this, estimated from the "
          "measured costs and the expected number of generated tokens. A request with a "
          "later deadline waits outside the queue until there is room, and is refused "
          "only if it would miss its deadline. A request with an earlier deadline is "
          "only checked against its deadline. 0: no limit."),
      SLUICE_OPTION(max_caller_share, (Real{0.0, 1.0, /*above_min=*/true}),
                    "The share of each queue limit that one caller may use "
                    "(server.auth.callers_file). max_wait is one of these limits. Callers with "
                    "queued requests share the limit equally, and some room is always left for a "
                    "caller with none. At 0.95, one caller can use 95 % and ten callers about a "
                    "tenth each. 1: one caller may use the whole queue."),
      Advanced(
          SLUICE_OPTION(priority_share, (Real{0.0, 1.0, /*above_min=*/true}),
                        "For each queue limit, a priority level may use this share of the room "
                        "of the next more urgent level. The rest is reserved for more urgent "
                        "requests. At 0.9, requests of the default level are refused at 90 % "
                        "and requests of the lowest level at 81 %. 1: no room is reserved.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<HistoryOptions>>& OptionSpecs<HistoryOptions>() {
  using S = HistoryOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Advanced(SLUICE_OPTION(requests, Count(0, 65'536),
                             "Number of finished requests of each model that `sluice explain` can "
                             "explain. Each takes up to about 10 KB.")),
      SLUICE_OPTION(journal, Path{},
                    "File for the journal of arrivals, decisions and measured steps, for the "
                    "simulator and for sizing. It contains sizes and times, but no payload. A "
                    "relative path is resolved against the working directory. Models after the "
                    "first append their number, the same as for engine.ladder.file: FILE.1. Empty: "
                    "nothing is written."),
      Advanced(SLUICE_OPTION(journal_bytes, Size(1 << 20, kTebibyte),
                             "Maximum size of a journal. Further lines are dropped and counted. To "
                             "start a new journal, move the file away and restart, or reload the "
                             "model.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<WatchdogOptions>>& OptionSpecs<WatchdogOptions>() {
  using S = WatchdogOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      SLUICE_DURATION(
          hang, Duration(kHourUs),
          "How long a step may take before it is considered hung. A step is hung once "
          "it has run longer than both this and factor times its estimate. The model's "
          "requests then end with UNAVAILABLE, the daemon is neither ready nor live, "
          "and the process exits with status 70 so that it can be restarted. The same "
          "happens if a model's scheduling thread is blocked elsewhere for this long, but "
          "then its requests end with the process. "
          "Time during which the process was stopped does not count. 0: no "
          "watchdog."),
      Advanced(
          SLUICE_OPTION(factor, (Real{1.0, 1e6}),
                        "A step may take this many times its estimated cost, if that is longer "
                        "than hang.")),
      ForTests(
          SLUICE_DURATION(grace, Duration(kMinuteUs),
                          "After a hang: the time between the end of the requests and the exit "
                          "of the process, so that responses and logs can be sent.")),
      Advanced(SLUICE_OPTION(failed_steps, Count(0, 1'000'000),
                             "After this many consecutive failed steps of a model, the daemon is "
                             "not ready until a step succeeds, or the model is loaded again or "
                             "unloaded. 0: it stays ready.")),
  }));
  return specs;
}

template <>
const std::vector<OptionSpec<AttentionOptions>>& OptionSpecs<AttentionOptions>() {
  using S = AttentionOptions;
  static const auto& specs = *new auto(SpecsOfAllMembers<S>({
      Advanced(SLUICE_OPTION(variant, AttentionVariantWord{},
                             "The order in which attention on the CPU reads the keys of a "
                             "sequence. two_pass: all scores, then all sums; one_pass: scores and "
                             "sums for a segment of keys at a time; split:N: one pass over each of "
                             "N ranges of keys, which run on different threads; split:auto: enough "
                             "ranges to keep the threads busy; auto: split:auto if one_pass would "
                             "leave threads idle because the model has few KV heads, else one_pass "
                             "(sluice plan shows the reason). All variants give the same bits. A "
                             "GPU has only one_pass.")),
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
      SLUICE_OPTION(
          threads, Count(0, 1024),
          "Number of compute threads. With a GPU, they compute classifiers, dense layers of "
          "embeddings and scores of candidates. 0: the number of CPUs that the cgroup "
          "limit and the affinity mask allow."),
      SLUICE_OPTION(
          profile, Name{64},
          "Numerics profile: auto, f32, bf16, or the name of an instruction set with a "
          "type. auto: the fastest profile that multiplies weights in their stored "
          "precision; weights stored as bf16 are multiplied in bf16 if the processor "
          "does so faster. f32: the fastest profile that computes everything in f32. "
          "bf16: like auto, but an error if the processor does not support bf16. Outputs are "
          "bitwise stable within a profile."),
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
      Advanced(
          SLUICE_OPTION(dense, (OneOf{{"auto", "own", "cublaslt"}}),
                        "How dense layers are computed on a GPU. own: Sluice's kernel, which "
                        "computes only the live rows of a batch; cublaslt: NVIDIA's library, "
                        "which computes all rows of the bucket. It is used for the layers where "
                        "one of its algorithms gives a row the same bits in any batch; "
                        "Sluice's kernel computes the other layers. auto: cublaslt if the "
                        "library is found, else own. Part of the numerics profile.")),
      Advanced(SLUICE_OPTION(algorithms, Path{},
                             "File with a table that maps each layer to a cublaslt algorithm, for "
                             "this GPU and this version of the library; `gpu_bench tune` writes "
                             "it. The table only chooses among the library's own candidates. For a "
                             "layer that is not in the table, the library's own order decides. The "
                             "table's digest is part of the numerics profile. Empty: the table in "
                             "this binary for the GPU and the library, if there is one.")),
      Advanced(SLUICE_OPTION(kernels, (OneOf{{"auto", "portable"}}),
                             "Sluice's GPU kernels for attention, and for the products that no "
                             "library computes. auto: the first kernels for this GPU that pass a "
                             "trial with the model's weights (a row has the same bits in any "
                             "batch, the results agree with double, no NaN is lost or spread); if "
                             "none passes, the model is not loaded. portable: the kernels that run "
                             "on every GPU, without a trial. Part of the numerics profile if the "
                             "GPU has tuned kernels.")),
      Advanced(SLUICE_OPTION(wait, (OneOf{{"block", "spin"}}),
                             "How a model's thread waits for the GPU. block: it sleeps until the "
                             "GPU wakes it; spin: it polls for up to 20 ms before it sleeps, which "
                             "ends a step some microseconds sooner but keeps a core busy for each "
                             "running model.")),
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
