// The statistics of the engine: buckets, traffic, reviews, decisions. For metrics, the status page
// and the admin API.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/enum_names.h"
#include "engine/attention_variant.h"
#include "engine/backend.h"
#include "engine/bucket.h"
#include "engine/ladder_choice.h"
#include "engine/model/model.h"
#include "engine/model/speculation.h"
#include "engine/request.h"
#include "engine/schedule_values.h"

namespace sluice {

// The result of a lookup in the plan cache.
enum class Lookup {
  kHit,               // the ladder's choice of bucket was ready
  kMissNotPrepared,   // its plan is still being prepared; a larger bucket served
  kMissEvicted,       // its plan was evicted; a larger bucket served
  kMissOverCapacity,  // larger than every bucket
  // The sizes fit but a constraint of an op does not hold (k above the n of a captured top-k).
  kMissGuard,
  kMissMemory,  // not enough memory to prepare it; its ops were launched one by one
};
constexpr auto EnumNamesOf(Lookup) {
  using enum Lookup;
  return EnumNameTable<Lookup>({{kHit, "hit"},
                                {kMissNotPrepared, "not_prepared"},
                                {kMissEvicted, "evicted"},
                                {kMissOverCapacity, "over_capacity"},
                                {kMissGuard, "guard"},
                                {kMissMemory, "memory"}});
}
inline std::string_view LookupName(Lookup lookup) { return NameOf(lookup); }
inline constexpr int kLookups = CountEnumerators<Lookup>();

// The upper bounds of the histogram of a bucket's replay times, in seconds. One more interval has
// the longer times. There are few, because every bucket has a histogram.
inline constexpr std::array<double, 8> kReplayBounds = {0.00025, 0.001, 0.004, 0.016,
                                                        0.064,   0.256, 1.024, 4.096};

// The statistics of a bucket at one point in time. Counts of batches only grow while the model is
// loaded.
struct BucketStats {
  Bucket bucket;
  bool ready = false;     // its plan is published
  bool in_ladder = true;  // false once it is withdrawn or evicted; only its history is kept
  int64_t batches = 0;
  int64_t hits = 0;  // batches that it served as the ladder's choice
  // Batches that it served in place of the ladder's choice, by the reason; kHit has none.
  std::array<int64_t, kLookups> misses{};
  int64_t useful_tokens = 0;
  int64_t computed_tokens = 0;
  int64_t bucket_tokens = 0;  // batches * bucket.tokens
  int64_t sequences = 0;
  nanoseconds replay{0};                                    // the time of its batches on the device
  std::array<int64_t, kReplayBounds.size() + 1> replays{};  // batches by replay time; kReplayBounds
  int64_t memory_bytes = 0;                                 // of its plan
  int64_t activation_bytes = 0;  // memory of a slot whose largest bucket is this one
  // Memory of slots of exactly the size of its batches, summed over the batches. It is estimated
  // from the mean tokens and rows of the batches.
  int64_t exact_activation_bytes = 0;
  double cost_seconds = 0;  // the decayed mean of the replay time; 0 if it never ran
  MonoTime last_used{};     // start of the latest batch; zero if there was none
  nanoseconds prepare_time{0};
};

// Decayed statistics of the traffic. Lists ascend in tokens; weights are counts as of now.
struct TrafficStats {
  std::vector<TokenWeight> lengths;       // of sequences
  std::vector<TokenWeight> batch_tokens;  // useful tokens of step batches
  double shape_entropy_bits = 0;          // of batch_tokens
  double length_entropy_bits = 0;         // of lengths
  ArrivalRate arrivals{};
};

// Changes of the ladder since warm-up, by kind; see LadderDiff.
struct LadderChanges {
  int64_t added = 0, removed = 0, merged = 0, split = 0;
  int64_t evicted = 0;  // buckets that only memory_limit_bytes kept out or removed
  int64_t reviews = 0;  // reviews that ended, adopted or not
};

// Drafted tokens of one kind.
struct DraftStats {
  int64_t drafted = 0;   // total of drafted tokens that steps computed
  int64_t accepted = 0;  // the part of them that were drawn and kept
};

// KV pages, and their effect on prompts and drafts.
struct KvStats {
  int64_t pages = 0;  // 0 if none are kept between steps
  int64_t page_tokens = 0;
  int64_t held = 0;           // pages held by sequences in progress
  int64_t idle = 0;           // pages kept for sequences with the same prefix; the rest are free
  int64_t evicted = 0;        // total of idle pages that were reused for something else
  int64_t preemptions = 0;    // total of running sequences that gave up their pages
  int64_t prefix_tokens = 0;  // total prompt tokens of started rows that could be reused
  int64_t reused_tokens = 0;  // the part of prefix_tokens that was found and not computed
  std::array<DraftStats, kDraftKinds> drafts{};
};

// Counts of adapters that only grow.
struct AdapterCounts {
  int64_t requests = 0, tokens = 0;  // of requests that ended: prompts and generated tokens
  int64_t loads = 0, evictions = 0;

  AdapterCounts& operator+=(const AdapterCounts& other) {
    requests += other.requests;
    tokens += other.tokens;
    loads += other.loads;
    evictions += other.evictions;
    return *this;
  }
  AdapterCounts operator-(const AdapterCounts& other) const {
    return {requests - other.requests, tokens - other.tokens, loads - other.loads,
            evictions - other.evictions};
  }
};

struct AdapterStats {
  std::string name{};
  AdapterCounts counts{};
  int64_t bytes = 0;  // 0: not in memory
};

// The adapters of a model.
struct AdapterTableStats {
  static constexpr size_t kMaxNamed = 64;
  static constexpr int64_t kMaxListed = 256;

  int64_t bytes = 0;        // in use, with loads in progress
  int64_t limit_bytes = 0;  // the most bytes; 0 if the model takes no adapters
  int64_t known = 0;
  int64_t capacity = 0;  // about the number of adapters that fit in the limit
  // The adapters that requests used first, with their counts since then, and the sums of all other
  // counts: of other adapters, of unloaded adapters, and from before an adapter was named.
  std::vector<AdapterStats> named{};
  AdapterStats others{};
  std::vector<std::string> loaded{};   // those in memory that were used last, in alphabetical order
  std::vector<std::string> waiting{};  // those that requests wait for
};

struct ModelStats {
  std::shared_ptr<const Model> model;
  std::vector<BucketStats> buckets;  // ascending; buckets of the ladder and withdrawn buckets
  // The sums of the counts of withdrawn buckets that are no longer listed. Its bucket is empty.
  BucketStats forgotten_buckets;
  int64_t waiting_requests = 0;
  int64_t running_requests = 0;
  int64_t waiting_sequences = 0;  // rows that hold no KV pages
  int64_t running_sequences = 0;  // rows that hold pages or are in the current step
  int64_t queued_tokens = 0;      // of the next steps of all sequences in the queue
  int64_t queued_bytes = 0;       // the memory of requests that wait or run
  // Of the oldest sequence in the queue that holds no pages. The backlog does not count.
  nanoseconds oldest_age{0};
  // The time to compute all admitted requests at the measured costs, if none ends before
  // max_tokens.
  nanoseconds estimated_drain{0};
  // The time until a request that is admitted now is at the head of the queue, at those costs.
  nanoseconds estimated_wait{0};
  // The tokens per second in full batches of the largest bucket, at those costs; 0 if unknown.
  double device_tokens_per_second = 0;
  int64_t steps = 0;
  int64_t plan_memory_bytes = 0;
  SlotMemory slot_memory;
  int64_t weight_bytes = 0;  // packed, or on the device; also of a draft model that is not served
  int64_t draft_weight_bytes = 0;  // of the draft model
  int64_t mapped_bytes = 0;        // the model's mapped files; the system may drop their pages
  int64_t copied_bytes = 0;        // the model's files if they were copied to memory
  std::string profile;  // the numerics profile of the backend, with the model's additions
  AttentionVariant attention{AttentionVariant::Kind::kOnePass};
  std::string kernels;                             // ExecutableModel::kernels
  std::vector<std::string> dense_algorithms = {};  // ExecutableModel::dense_algorithms
  // From the start of packing its weights until the model was ready. Excludes reading its files.
  nanoseconds time_to_ready{0};
  KvStats kv;
  AdapterTableStats adapters;
  TrafficStats traffic;
  CostState costs;
  LadderChanges ladder_changes;
  LadderOptions ladder_options;  // the options in effect for this model
  LadderChoice ladder_kept;      // the choice kept for a restart; empty: the configuration
  // A sentence if memory_limit_bytes made the ladder smaller at start, or if it cannot be met.
  std::string memory_limit_effect;
};

// The result of a ladder on recent traffic: the second half of the recent arrivals, run on virtual
// time with the measured costs. Adaptive ladders are fitted to the first half.
struct StrategyTrial {
  std::string name;     // "present", or the strategy and its changed options
  LadderChoice choice;  // empty for the present ladder
  std::vector<Bucket> buckets;
  double bucket_fill = 0;
  double device_seconds = 0;
  double wasted_share = 0;  // of device_seconds, by EmptyRowSeconds
  double mean_latency_seconds = 0, p50_latency_seconds = 0, p99_latency_seconds = 0;
  int64_t batches = 0;
  int64_t plan_bytes = 0;      // of all its plans
  int64_t captures = 0;        // plans to prepare; all of them if there is no present ladder
  double capture_seconds = 0;  // time to prepare these plans
  double gain = 0;  // over the first trial: 1 - sqrt(device time ratio * mean latency ratio)
};
struct StrategyTrials {
  int64_t arrivals = 0;  // measured arrivals
  // Gains up to this may be chance, and a gain may differ by this on other arrivals. From the
  // number of arrivals, and from how much the largest gain differs between tenths of the arrivals.
  double margin = 0;
  bool ladder_is_free = false;  // LadderMatters is false: no other ladder was tried
  std::vector<StrategyTrial> trials;
  // The name of the trial to adopt: the first one, unless another gains more than the margin. Among
  // the trials within the margin of the best, the one whose plans take the least memory.
  std::string best;
};

// The outcome of a review of the ladder.
struct ReviewReport {
  bool changed = false;
  std::vector<Bucket> before, after;  // `after` is in use once its plans are prepared
  LadderDiff diff;
  double gain = 0;  // see LadderReview
  double bucket_fill_before = 0, bucket_fill_after = 0;
  std::string reason;
};

// A decision to wait while a request waited for its first step.
struct ExplainedWait {
  MonoTime at{};     // the time of the decision not to launch yet
  MonoTime until{};  // MonoTime::max() for the next arrival
  WaitReason reason = WaitReason::kEmpty;
  BatchSize waiting{};  // the batch that would have been launched
};
// The id of a request, which is not empty, and its caller.
struct RequestName {
  std::string id;
  std::string caller;  // empty if callers are not identified
};

// The requests of a step. Equal steps share one object.
struct CoBatchedRequests {
  static constexpr size_t kMaxNamed = 64;

  std::vector<std::shared_ptr<const RequestName>> named;  // the first ones that have an id
  int32_t requests = 0;                                   // in all
};

// A step that carried the request, or several consecutive steps that differ only in number and
// times, without a decision to wait between them.
struct ExplainedStep {
  int64_t step = 0;       // number of the first step batch, from 1
  MonoTime start{};       // of the first step batch
  nanoseconds replay{0};  // of the shortest step
  int64_t last_step = 0;
  nanoseconds longest{0};  // replay time of the longest step
  int32_t count = 1;
  std::shared_ptr<const CoBatchedRequests> co_batched = nullptr;
  Bucket bucket{};    // the bucket that served
  BatchSize batch{};  // all rows, including rows of other requests
  int32_t own_tokens = 0;
  Trigger trigger = Trigger::kIdle;
  Lookup lookup = Lookup::kHit;
};
// The history of one of the last requests.
struct Explanation {
  std::string request_id;
  std::string caller;
  std::string model;
  int64_t version = 0;
  absl::Status status;
  RequestTrace trace;
  std::vector<ExplainedWait> waits;  // the first 64 after its admission
  std::vector<ExplainedStep> steps;  // the first 64; equal steps are merged
};

}  // namespace sluice
