// Options of the engine. Every field: unit in the name, default, effect, behaviour at the limit.
// config/ fills these from YAML, flags and environment and enforces the ranges given here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

enum class StrategyKind { kFixed, kGeometric, kHardwareAware, kMemoryOptimal, kAdaptive };

// How an adaptive ladder follows the traffic, and how any ladder is reviewed.
struct ReviewOptions {
  // Time between reviews of the ladder. 0: only when asked for. [0, 1 day].
  int64_t interval_us = 10'000'000;
  // What was seen this long ago counts half. [1 s, 30 days].
  int64_t half_life_us = 300'000'000;
  // A changed ladder is adopted when its gain on the recent traffic is more than this and a margin of
  // 0.5 / sqrt(arrivals looked at), for what chance seems to gain. The gain is
  // 1 - sqrt(device time after / before * mean latency after / before), captures paid. [0, 1].
  double min_gain = 0.02;
};

// Which buckets exist. The exact maximum is always one of them.
struct LadderOptions {
  // kAdaptive begins with the geometric ladder (or that of `file`) and fits it to the traffic.
  StrategyKind strategy = StrategyKind::kAdaptive;
  // kFixed: capacities in tokens, ascending; others ignore it. Values above the maximum are errors.
  std::vector<int32_t> fixed_tokens{};
  // kGeometric: successive capacities grow by this. (1, 16].
  double ratio = 1.4142135623730951;
  // Smallest capacity. [1, max_batch_tokens].
  int32_t min_tokens = 16;
  // Largest capacity of kGeometric but for the exact maximum. 0: none. [0, 2^20].
  int32_t cap_tokens = 0;
  // Most buckets kept; a denser ladder is thinned evenly, ends kept. [1, 1024].
  int32_t max_buckets = 16;
  // At a review, buckets that served a smaller share of the recent batches are dropped, never the
  // maximum. 0: none for that reason. [0, 1).
  double min_bucket_usage = 0;
  // Drop buckets (never the maximum) while their plans would need more: at first the largest, later
  // those of the least benefit per MiB. 0: no limit.
  int64_t memory_limit_bytes = 0;
  // Keeps the ladder and the measured costs between runs: read at warm-up when it was written for
  // the same model, build and device, written after each change and at the end. Empty: none.
  std::string file{};
  ReviewOptions review{};
};

// What forms batches. All but kCutAndFill are there to be compared with.
enum class PolicyKind {
  kCutAndFill,     // packed: the most useful tokens per measured time, see CutAndFill
  kFifoPacked,     // packed: the longest prefix of the queue
  kPaddedBuckets,  // padded: the head and those of its length bucket, both up to powers of two
  kStaticPadded,   // padded to the model's longest sequence, rows rounded up to powers of two
};

// What the padding of a padded layout holds. It is masked, so that no output depends on it.
enum class PaddingKind {
  kZeros,     // token 0
  kEdge,      // the last token again
  kReflect,   // the sequence backwards from its end, and forwards again
  kAdaptive,  // kReflect where the padding is shorter than the sequence, else kEdge
};

struct BatchOptions {
  PolicyKind policy = PolicyKind::kCutAndFill;
  // Most tokens in a step batch: the largest bucket. 0: 4096, or the model's max_positions if that
  // is larger. A sequence must fit. [1, 2^20].
  int32_t max_batch_tokens = 0;
  // Most sequences in a step batch. [1, 65536].
  int32_t max_batch_sequences = 256;
  // How long the oldest waiting request may be held back for company while the device is free.
  // 0: never. [0, 10 s].
  int64_t max_queue_delay_us = 0;
  // Most sequences that may run before one that stood ahead of them in the queue. 0: strictly in
  // order. [0, 10^6].
  int32_t max_overtakes = 64;
  // While anything generates, prompts are computed in chunks of at most this many tokens, and a step
  // that carries running sequences computes no more of other prompts, so that none of these waits
  // longer for its next token than such a step takes. 0: whole prompts. Only kCutAndFill heeds it.
  // [0, 2^20].
  int32_t prefill_tokens = 512;
  // Lets new sequences join running ones between two steps. Off: they wait until all of a batch have
  // ended, which is what others do, kept to be compared with. Only kCutAndFill heeds it.
  bool continuous = true;
  // Each priority level below the most urgent queues as if it had arrived this much later. [0, 1 h].
  int64_t priority_step_us = 1'000'000;
  PaddingKind padding = PaddingKind::kZeros;
};

// Bounds of what a model has admitted. What would exceed one is ResourceExhausted; a request that exceeds
// one by itself is InvalidArgument.
struct QueueOptions {
  // Requests waiting or running. [1, 10^6].
  int32_t max_requests = 4096;
  // Their tokens, each row's max_tokens included. [1, 2^40].
  int64_t max_tokens = 1 << 22;
  // Their memory, replies included. [1 MiB, 2^50].
  int64_t max_bytes = 1 << 30;
  // Each priority level below the most urgent may fill this share of what the level above may, of each
  // bound, so that it leaves room for those. 1: no room is kept. (0, 1].
  double priority_share = 0.9;
};

// When the daemon gives a model's scheduling thread, or its device, up.
struct WatchdogOptions {
  // A step that has taken longer than this and than `factor` times its estimate hangs: its model's
  // requests end with Unavailable and the process ends with an error, to be started again. The same
  // goes for anything else that holds the thread up for this long. 0: no watchdog. [0, 1 h].
  int64_t hang_us = 30'000'000;
  double factor = 20;  // [1, 10^6]
  // Time between the requests' end and the process's. [0, 1 min].
  int64_t grace_us = 1'000'000;
  // After so many failed steps in a row the daemon is not ready, until a step succeeds. 0: it stays
  // ready. [0, 10^6].
  int32_t failed_steps = 8;
};

// Keys and values of the sequences in progress. Only kCutAndFill keeps them between two steps; the
// other policies compute each sequence again from its first position.
struct KvOptions {
  // Memory of all KV pages of a model. 0, meant for one model: a quarter of what the device has free
  // when it is loaded (other models' pages may not have been touched yet), at most what
  // max_batch_sequences of the model's longest sequences take. Too little for the largest step is an
  // error at start. [0, 2^50].
  int64_t memory_bytes = 0;
  // A sequence that begins like an earlier one begins with its pages. No result depends on it.
  bool prefix_reuse = true;
};

// What is kept of past decisions.
struct HistoryOptions {
  // Finished requests that Explain knows. [0, 10^6].
  int32_t requests = 1024;
  // File that every arrival (no payload), decision and measured step is appended to, for the
  // simulator and for sizing. Empty: none.
  std::string journal{};
};

struct EngineOptions {
  LadderOptions ladder;
  BatchOptions batch;
  QueueOptions queue;
  KvOptions kv;
  HistoryOptions history;
  WatchdogOptions watchdog;
};

// Options of the CPU backend.
struct CpuOptions {
  // Compute threads; 0: as many as the cgroup and affinity mask allow. [0, 1024].
  int32_t threads = 0;
  // Numerics profile by name, or "auto".
  std::string profile = "auto";
  // Fill everything that a replay must not read with NaN before it. For tests; slow.
  bool poison = false;
};

}  // namespace sluice
