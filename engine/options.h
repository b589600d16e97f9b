// Options of the engine. option_specs.cc describes the effect, the unit and the range of each
// option. The suffix of a member's name is its unit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "engine/attention_variant.h"

namespace sluice {

enum class StrategyKind { kFixed, kGeometric, kHardwareAware, kMemoryOptimal, kAdaptive };
constexpr auto EnumNamesOf(StrategyKind) {
  using enum StrategyKind;
  return EnumNameTable<StrategyKind>({{kFixed, "fixed"},
                                      {kGeometric, "geometric"},
                                      {kHardwareAware, "hardware_aware"},
                                      {kMemoryOptimal, "memory_optimal"},
                                      {kAdaptive, "adaptive"}});
}

// The reviews that adapt a ladder to the traffic.
struct ReviewOptions {
  int64_t interval_us = 10'000'000;
  int64_t half_life_us = 300'000'000;
  double min_gain = 0.02;
};

// The choice of buckets. The exact maximum of a step is always a bucket.
struct LadderOptions {
  StrategyKind strategy = StrategyKind::kAdaptive;
  std::vector<int32_t> fixed_tokens{};
  double ratio = 1.4142135623730951;
  int32_t min_tokens = 16;
  int32_t cap_tokens = 0;
  int32_t max_buckets = 0;
  double min_bucket_usage = 0;
  int64_t memory_limit_bytes = 0;
  int64_t warm_up_us = 500'000;
  std::string file{};
  ReviewOptions review{};
};

// The policy that forms batches; see engine/schedule/batch_former.h.
enum class PolicyKind { kPacked, kFifoPacked, kPaddedBuckets, kStaticPadded };
constexpr auto EnumNamesOf(PolicyKind) {
  using enum PolicyKind;
  return EnumNameTable<PolicyKind>({{kPacked, "packed"},
                                    {kFifoPacked, "fifo_packed"},
                                    {kPaddedBuckets, "padded_buckets"},
                                    {kStaticPadded, "static_padded"}});
}

// Returns whether the policy computes rectangles, so that its ladder is padded.
constexpr bool IsPadded(PolicyKind policy) {
  return policy == PolicyKind::kPaddedBuckets || policy == PolicyKind::kStaticPadded;
}

// The content of the padding in a padded layout.
enum class PaddingKind { kZeros, kEdge, kReflect, kAdaptive };
constexpr auto EnumNamesOf(PaddingKind) {
  using enum PaddingKind;
  return EnumNameTable<PaddingKind>(
      {{kZeros, "zeros"}, {kEdge, "edge"}, {kReflect, "reflect"}, {kAdaptive, "adaptive"}});
}

struct BatchOptions {
  PolicyKind policy = PolicyKind::kPacked;
  int32_t max_batch_tokens = 0;
  int32_t max_batch_sequences = 0;
  int64_t max_queue_delay_us = 0;
  int32_t max_overtakes = 64;
  int32_t prefill_tokens = 512;
  bool continuous = true;
  int64_t priority_step_us = 1'000'000;
  PaddingKind padding = PaddingKind::kZeros;
};

// Limits on the admitted requests of a model. A request that would exceed a limit is refused with
// ResourceExhausted. A single request above the limit is refused with InvalidArgument.
struct QueueOptions {
  int32_t max_requests = 4096;
  int64_t max_tokens = 1 << 22;
  int64_t max_bytes = 0;
  int64_t max_wait_us = 1'000'000;
  double max_caller_share = 0.95;
  double priority_share = 0.9;
};

// The conditions for giving up a model's scheduling thread, or its device.
struct WatchdogOptions {
  int64_t hang_us = 30'000'000;
  double factor = 20;
  int64_t grace_us = 1'000'000;
  int32_t failed_steps = 8;
};

// The memory for keys and values of the sequences in progress. Only kPacked keeps them between
// two steps; the other policies compute each sequence again from its first position.
struct KvOptions {
  int64_t memory_bytes = 0;
  bool prefix_reuse = true;
  bool private_prefixes = true;
};

// The records of past decisions.
struct HistoryOptions {
  int32_t requests = 1024;
  std::string journal{};
  int64_t journal_bytes = int64_t{4} << 30;
};

// The kernel of attention on the CPU; a GPU has one order, one_pass.
struct AttentionOptions {
  AttentionVariant variant{};
};

struct EngineOptions {
  LadderOptions ladder;
  BatchOptions batch;
  QueueOptions queue;
  KvOptions kv;
  HistoryOptions history;
  WatchdogOptions watchdog;
  AttentionOptions attention;
};

// Options of the CPU backend.
struct CpuOptions {
  int32_t threads = 0;
  std::string profile = "auto";
  bool poison = false;
};

}  // namespace sluice
