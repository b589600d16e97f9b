// What the engine says about itself: buckets, traffic, reviews, decisions. For metrics, the status
// page and the admin API.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/enum_names.h"
#include "engine/bucket.h"
#include "engine/model/model.h"
#include "engine/request.h"
#include "engine/schedule_values.h"

namespace sluice {

enum class Lookup {  // result of the plan cache
  kHit,              // the ladder's own bucket was ready
  kMissNotCaptured,  // its plan is still being prepared; a larger one served
  kMissEvicted,
  kMissOverCapacity,  // larger than every bucket
  kMissGuard,         // its sizes fit but a constraint of an op does not hold (top-k needs n >= k)
  kMissMemory,        // there was no memory to prepare it: its ops were launched one by one
};
constexpr auto EnumNamesOf(Lookup) {
  using enum Lookup;
  return EnumNameTable<Lookup>({{kHit, "hit"},
                                {kMissNotCaptured, "not_captured"},
                                {kMissEvicted, "evicted"},
                                {kMissOverCapacity, "over_capacity"},
                                {kMissGuard, "guard"},
                                {kMissMemory, "memory"}});
}
inline std::string_view LookupName(Lookup lookup) { return NameOf(lookup); }

// A point-in-time view for metrics and the admin API.
struct BucketStats {
  Bucket bucket;
  bool ready = false;     // its plan is published
  bool in_ladder = true;  // false: withdrawn or evicted; only its history is left
  int64_t batches = 0;
  int64_t hits = 0;  // batches served by this bucket that it was the ladder's choice for
  int64_t useful_tokens = 0;
  int64_t computed_tokens = 0;
  int64_t bucket_tokens = 0;  // batches * bucket.tokens
  int64_t sequences = 0;
  int64_t memory_bytes = 0;
  double cost_seconds = 0;  // decayed mean of replay time; 0: never ran
  MonoTime last_used{};     // start of the latest batch; zero: never
  nanoseconds prepare_time{0};
};

// Decayed views of the traffic; ascending in tokens, weights are counts as of now.
struct TrafficStats {
  std::vector<TokenWeight> lengths;       // of sequences
  std::vector<TokenWeight> batch_tokens;  // useful tokens of step batches
  double shape_entropy_bits = 0;          // of batch_tokens
  ArrivalRate arrivals{};
};

// Changes of the ladder since warm-up, by kind; see LadderDiff.
struct LadderChanges {
  int64_t added = 0, removed = 0, merged = 0, split = 0;
  int64_t evicted = 0;  // of the removed: for memory_limit_bytes
  int64_t reviews = 0;  // that ended, adopted or not
};

// KV pages, and what became of prompts by them.
struct KvStats {
  int64_t pages = 0;  // 0: none are kept between steps
  int64_t page_tokens = 0;
  int64_t held = 0;         // by sequences in progress
  int64_t idle = 0;         // held by nobody, kept for sequences that begin alike; the rest is free
  int64_t evicted = 0;      // idle ones that were needed for something else, ever
  int64_t preemptions = 0;  // running sequences that gave their pages up, ever
  int64_t prefix_tokens = 0;  // of the prompts that began to run and might have been found, ever
  int64_t reused_tokens = 0;  // of these: found, and not computed
};

struct ModelStats {
  std::shared_ptr<const Model> model;
  std::vector<BucketStats> buckets;  // ascending; the ladder's, and those withdrawn
  int64_t waiting_requests = 0;
  int64_t running_requests = 0;
  int64_t waiting_sequences = 0;  // rows that hold no KV pages
  int64_t running_sequences = 0;  // rows that do, or are in the current step
  int64_t queued_tokens = 0;      // that the next steps of the waiting sequences compute
  int64_t queued_bytes = 0;       // held by requests that wait or run
  nanoseconds oldest_age{0};      // of what waits
  // Time to compute all that was admitted at the measured cost, if nothing ends before max_tokens.
  nanoseconds estimated_drain{0};
  int64_t steps = 0;
  int64_t plan_memory_bytes = 0;
  int64_t slot_memory_bytes = 0;
  int64_t weight_bytes = 0;
  KvStats kv;
  TrafficStats traffic;
  CostState costs;
  LadderChanges ladder_changes;
};

// The outcome of a review of the ladder.
struct OptimizeReport {
  bool changed = false;
  std::vector<Bucket> before, after;  // after: as it will be once its plans are prepared
  LadderDiff diff;
  double gain = 0;  // see LadderReview
  double efficiency_before = 0, efficiency_after = 0;
  std::string reason;
};

// What became of one of the last requests.
struct ExplainedWait {
  MonoTime at{};     // of the decision not to launch yet
  MonoTime until{};  // MonoTime::max(): until something arrives
  WaitReason reason = WaitReason::kEmpty;
  BatchSize waiting{};  // what a batch would have held
};
struct ExplainedStep {
  int64_t step = 0;  // number of the step batch, from 1
  MonoTime start{};
  nanoseconds replay{0};
  Bucket bucket{};    // that served
  BatchSize batch{};  // this request's rows and all its batch-mates
  int32_t own_tokens = 0;
  Trigger trigger = Trigger::kIdle;
  Lookup lookup = Lookup::kHit;
};
struct Explanation {
  std::string request_id;
  std::string model;
  int64_t version = 0;
  absl::Status status;
  RequestTrace trace;
  std::vector<ExplainedWait> waits;  // decided while it waited for its first step; the last 16
  std::vector<ExplainedStep> steps;  // the first 32 that carried it
};

}  // namespace sluice
