// Options of the engine. Every field: unit in the name, default, effect, behaviour at the limit.
// config/ fills these from YAML, flags and environment and enforces the ranges given here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

enum class StrategyKind { kFixed, kGeometric, kHardwareAware, kMemoryOptimal };

// Which buckets exist. The exact maximum is always one of them.
struct LadderOptions {
  StrategyKind strategy = StrategyKind::kGeometric;
  // kFixed: capacities in tokens, ascending; others ignore it. Values above the maximum are errors.
  std::vector<int32_t> fixed_tokens{};
  // kGeometric: successive capacities grow by this. (1, 16].
  double ratio = 2.0;
  // Smallest capacity. [1, max_batch_tokens].
  int32_t min_tokens = 16;
  // Most buckets kept; a denser ladder is thinned evenly, ends kept. [1, 1024].
  int32_t max_buckets = 32;
  // Drop the largest-memory buckets (never the maximum) while plans would need more. 0: no limit.
  int64_t memory_limit_bytes = 0;
};

struct BatchOptions {
  // Most tokens in a step batch: the largest bucket. 0: 4096, or the model's max_positions if that
  // is larger. A sequence must fit. [1, 2^20].
  int32_t max_batch_tokens = 0;
  // Most sequences in a step batch. [1, 65536].
  int32_t max_batch_sequences = 256;
  // How long the oldest waiting request may be held back for company while the device is free.
  // 0: never. [0, 10 s].
  int64_t max_queue_delay_us = 0;
};

struct QueueOptions {
  // Requests waiting or running; one more is ResourceExhausted. [1, 10^6].
  int32_t max_requests = 4096;
  // Their tokens, each row's max_tokens included. [1, 2^40].
  int64_t max_tokens = 1 << 22;
};

struct EngineOptions {
  LadderOptions ladder;
  BatchOptions batch;
  QueueOptions queue;
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
