#include "config/option_table.h"

#include <iterator>
#include <utility>

#include "config/option_row.h"

namespace sluice {
namespace {

Choice<StrategyKind> Strategies() {
  return {{{"fixed", StrategyKind::kFixed},
           {"geometric", StrategyKind::kGeometric},
           {"hardware_aware", StrategyKind::kHardwareAware},
           {"memory_optimal", StrategyKind::kMemoryOptimal},
           {"adaptive", StrategyKind::kAdaptive}}};
}

Choice<PolicyKind> Policies() {
  return {{{"cut_and_fill", PolicyKind::kCutAndFill},
           {"fifo_packed", PolicyKind::kFifoPacked},
           {"padded_buckets", PolicyKind::kPaddedBuckets},
           {"static_padded", PolicyKind::kStaticPadded}}};
}

Choice<PaddingKind> Paddings() {
  return {{{"zeros", PaddingKind::kZeros},
           {"edge", PaddingKind::kEdge},
           {"reflect", PaddingKind::kReflect},
           {"adaptive", PaddingKind::kAdaptive}}};
}

std::vector<Option> ModelOptionTable() {
  return {
      Live(OPTION(
          model_repository, Path{},
          "Directory of models to serve beside the list: NAME/config.json, or "
          "NAME/VERSION/config.json "
          "with numbers, of which the highest is loaded; others can be loaded by name at the admin "
          "address. Nothing outside it is opened, wherever links lead. A relative path starts at "
          "the "
          "working directory. Empty: none.")),
  };
}

std::vector<Option> DeviceOptionTable() {
  return {
      OPTION(
          device, DeviceName{},
          "What computes. auto: the first GPU, where this build and this host have one, else the "
          "CPU. cuda:N: that GPU; where the build lacks CUDA, or the host the driver or the GPU, "
          "the daemon does not start. Its label is on every metric."),
  };
}

std::vector<Option> LadderOptionTable() {
  return {
      OPTION(
          engine.ladder.strategy, Strategies(),
          "How the bucket capacities are chosen. adaptive: begins with the geometric ladder, or "
          "that of file, and fits it to the traffic; fixed: those of fixed_tokens; geometric: each "
          "is ratio times the one before; hardware_aware: multiples of the processor's tiles; "
          "memory_optimal: ratio 1.5. The exact maximum is always a bucket. Padded policies have "
          "ladders of their own and ignore this."),
      OPTION(engine.ladder.fixed_tokens, (IntegerList{Count(1, 1 << 20)}),
             "Capacities in tokens for the fixed strategy, ascending, none above "
             "engine.batch.max_batch_tokens. Other strategies ignore it."),
      OPTION(
          engine.ladder.ratio, (Real{1.0, 16.0, /*above_min=*/true}),
          "Growth from one capacity to the next under the geometric strategy, and of the ladder "
          "that the adaptive one begins with. Smaller means less padding and more plans to prepare "
          "and keep."),
      OPTION(engine.ladder.min_tokens, Count(1, 1 << 20),
             "Smallest capacity in tokens; at most engine.batch.max_batch_tokens."),
      OPTION(engine.ladder.cap_tokens, Count(0, 1 << 20),
             "Largest capacity of the geometric strategy beside the exact maximum, at least "
             "min_tokens. 0: none."),
      OPTION(engine.ladder.max_buckets, Count(1, 1024),
             "Most buckets kept. A denser ladder is thinned evenly, its ends are kept."),
      OPTION(engine.ladder.min_bucket_usage, (Real{0.0, 1.0, false, /*below_max=*/true}),
             "At a review, buckets that served a smaller share of the recent batches are dropped, "
             "never the maximum. 0: none for that reason."),
      OPTION(engine.ladder.memory_limit_bytes, Size(0, kMaxSize),
             "Drop buckets, never the maximum, while their plans would need more than this: at "
             "first the largest, later those of the least benefit per MiB. 0: no limit."),
      OPTION(engine.ladder.file, Path{},
             "Keeps the ladder and the measured costs between runs, so that a new process starts "
             "warm: read before warm-up where it was written for the same model, build and device, "
             "written after each change and at the end. A relative path starts at the working "
             "directory. Models after the first append their number: FILE.1. Empty: none."),
      OPTION(engine.ladder.review.interval_us, Duration(kDayUs),
             "Time between reviews of the ladder, which adapt it to the traffic. 0: only when "
             "asked for (sluice optimize)."),
      OPTION(engine.ladder.review.half_life_us,
             (Integer{1'000'000, 30 * kDayUs, Unit::kMicroseconds}),
             "How fast the traffic is forgotten: what was seen this long ago counts half."),
      OPTION(
          engine.ladder.review.min_gain, (Real{0.0, 1.0}),
          "A changed ladder is adopted when its gain on the recent traffic is more than this and a "
          "margin of 0.5 over the root of the number of arrivals looked at. The gain is 1 - "
          "sqrt(device time after / before * mean latency after / before), with the price of "
          "preparing its plans paid."),
  };
}

std::vector<Option> BatchOptionTable() {
  return {
      OPTION(
          engine.batch.policy, Policies(),
          "What forms batches. cut_and_fill: packed, the most useful tokens per measured time. "
          "The others are there to be compared with it: fifo_packed: packed, the longest prefix of "
          "the queue; padded_buckets: rectangles whose rows and positions are powers of two, of "
          "the "
          "first sequence and those whose length rounds up alike; static_padded: rectangles as "
          "wide as the model's longest sequence."),
      OPTION(
          engine.batch.max_batch_tokens, Count(0, 1 << 20),
          "Most tokens in a step batch, and so the largest bucket; a sequence must fit. 0: 4096, "
          "or the model's longest sequence if that is larger."),
      OPTION(engine.batch.max_batch_sequences, Count(1, 65536), "Most sequences in a step batch."),
      OPTION(engine.batch.max_queue_delay_us, Duration(10'000'000),
             "How long the oldest waiting request may be held back for company while the device is "
             "free. 0: never."),
      OPTION(engine.batch.max_overtakes, Count(0, 1'000'000),
             "Most sequences that may run before one that stood ahead of them in the queue. 0: "
             "strictly in order."),
      OPTION(
          engine.batch.prefill_tokens, Count(0, 1 << 20),
          "Prompts are computed in chunks of at most this many tokens, and a step that carries "
          "running sequences computes no more of other prompts. Smaller: the tokens of running "
          "sequences come more evenly. Larger: fewer steps for long prompts, so that their first "
          "tokens and the throughput gain. 0: whole prompts. Only cut_and_fill heeds it."),
      OPTION(engine.batch.continuous, Boolean{},
             "Let new sequences join running ones between two steps. Off, they wait until all of a "
             "batch have ended, which costs throughput and time to first token; it is there to be "
             "compared with. Only cut_and_fill heeds it."),
      OPTION(engine.batch.priority_step_us, Duration(3'600'000'000),
             "Each priority level below the most urgent queues as if it had arrived this much "
             "later, so that urgent requests go first and starve nobody. 0: levels make no "
             "difference."),
      OPTION(
          engine.batch.padding, Paddings(),
          "What the padding of a padded layout holds; it is masked, so that no output depends on "
          "it. zeros: token 0; edge: the last token again; reflect: the sequence backwards from "
          "its end, and forwards again; adaptive: reflect where the padding is shorter than the "
          "sequence, else edge. Packed policies have no padding and ignore this."),
  };
}

std::vector<Option> QueueOptionTable() {
  return {
      OPTION(engine.queue.max_requests, Count(1, 1'000'000),
             "Requests of a model waiting or running; one more is RESOURCE_EXHAUSTED."),
      OPTION(
          engine.queue.max_tokens, Count(1, int64_t{1} << 40),
          "Tokens of the waiting and running requests, with the max_tokens of each row; a request "
          "that would exceed it is RESOURCE_EXHAUSTED, one that has more by itself "
          "INVALID_ARGUMENT."),
      OPTION(engine.queue.max_bytes, Size(1 << 20, int64_t{1} << 50),
             "Memory of the waiting and running requests, with their replies at their longest; a "
             "request that would exceed it is RESOURCE_EXHAUSTED, one that takes more by itself "
             "INVALID_ARGUMENT."),
      OPTION(
          engine.queue.priority_share, (Real{0.0, 1.0, /*above_min=*/true}),
          "Each priority level below the most urgent may fill this share of what the level above "
          "may, of each bound of the queue, so that the rest is kept for those: with 0.9 requests "
          "of the default level are refused at 90 % and those of the lowest at 81 %. 1: no room is "
          "kept."),
      OPTION(engine.history.requests, Count(0, 1'000'000),
             "Finished requests of each model whose scheduling can be explained (sluice explain)."),
      OPTION(engine.history.journal, Path{},
             "File that every arrival (sizes and times, no payload), decision and measured step is "
             "appended to, for the simulator and for sizing. A relative path starts at the working "
             "directory. Models after the first append their number: FILE.1. Empty: none."),
  };
}

std::vector<Option> WatchdogOptionTable() {
  return {
      OPTION(
          engine.watchdog.hang_us, Duration(3'600'000'000),
          "A step that has taken longer than this and than factor times its estimate hangs: its "
          "model's requests end with UNAVAILABLE, the daemon is neither ready nor live, and the "
          "process ends with status 70, to be started again. The same goes for whatever else holds "
          "up a model's scheduling for this long. Time in which the process was stopped does not "
          "count. 0: no watchdog."),
      OPTION(engine.watchdog.factor, (Real{1.0, 1e6}),
             "How many times its estimated cost a step may take, where that is more than hang_us."),
      OPTION(engine.watchdog.grace_us, Duration(60'000'000),
             "After a hang: time between the end of the requests and that of the process, for "
             "answers and logs to leave."),
      OPTION(engine.watchdog.failed_steps, Count(0, 1'000'000),
             "After so many failed steps of a model in a row the daemon is not ready, until one "
             "succeeds. 0: it stays ready."),
  };
}

std::vector<Option> KvOptionTable() {
  return {
      OPTION(
          engine.kv.memory_bytes, Size(0, int64_t{1} << 50),
          "Memory of each model's KV pages, which hold the keys and values of the sequences in "
          "progress. More lets more sequences run at a time and keeps more prefixes; with less, "
          "sequences are preempted and computed again, which costs throughput, never results. 0: a "
          "quarter of what the device has free, at most what max_batch_sequences of the model's "
          "longest sequences take. Too little for the largest step is an error at start."),
      OPTION(engine.kv.prefix_reuse, Boolean{},
             "A sequence that begins like an earlier one begins with its pages, so that shared "
             "prompts are computed once: less time to first token, and more throughput. No result "
             "depends on it."),
  };
}

std::vector<Option> CpuOptionTable() {
  return {
      OPTION(cpu.threads, Count(0, 1024),
             "Compute threads. 0: as many as the cgroup's limit and the affinity mask allow."),
      OPTION(cpu.profile, Name{64},
             "Numerics profile by name (instruction set, types and algorithms). auto: the fastest "
             "that this processor runs and that computes in f32. bf16: the fastest that multiplies "
             "weights stored as bf16 in bf16, an error where there is none. Outputs are bitwise "
             "stable within a profile."),
      OPTION(
          cpu.poison, Boolean{},
          "Fill everything that a batch must not read with NaN before it runs. For tests; slow."),
  };
}

std::vector<Option> CudaOptionTable() {
  return {
      OPTION(cuda.dtype, OneOf({"bf16", "f32"}),
             "Type of weights, activations and KV pages on a GPU; sums are float either way. bf16 "
             "moves half the bytes and uses the tensor cores. Part of the numerics profile."),
      OPTION(
          cuda.dense, OneOf({"own", "cublaslt"}),
          "What computes dense layers on a GPU. own: Sluice's kernel, for the live rows of a batch "
          "alone; cublaslt: NVIDIA's library, for all rows of the bucket, where one of its "
          "algorithms gives a row the same bits in any batch; the others stay with the kernel. "
          "Part "
          "of the numerics profile."),
      OPTION(cuda.algorithms, Path{},
             "File of the table that says which algorithm of cublaslt computes which layer, as "
             "gpu_bench tune makes it, for this GPU and this version of the library. Empty: the "
             "table for them in this binary, if any; what none names is taken in the library's own "
             "order. It only chooses among the library's own candidates. A digest of the table is "
             "part of the numerics profile."),
      OPTION(
          cuda.poison, Boolean{},
          "Fill everything that a batch must not read with NaN before it runs. For tests; slow."),
  };
}

}  // namespace

std::vector<Option> BuildOptionTable() {
  std::vector<Option> table;
  for (auto part : {ModelOptionTable(), DeviceOptionTable(), LadderOptionTable(),
                    BatchOptionTable(), KvOptionTable(), QueueOptionTable(), WatchdogOptionTable(),
                    CpuOptionTable(), CudaOptionTable(), ServerOptionTable()}) {
    std::move(part.begin(), part.end(), std::back_inserter(table));
  }
  return table;
}

}  // namespace sluice
