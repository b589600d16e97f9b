// Compares policies and ladders over the same arrivals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/simulate/experiment.h"
#include "loadtest/simulate/workload.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {

// The values of --ladder, for help and errors.
inline constexpr char kLadders[] =
    "fixed:A:B.., geometric:RATIO, memory_optimal, hardware_aware, adaptive (settles in the first "
    "half), adaptive:BUCKETS, adaptive_live, foreseen or oracle (the last two settle on the "
    "measured half)";

struct ComparisonOptions {
  std::string trace;                            // a file; empty means `generate`
  int32_t cap = 8192;                           // of a sequence's tokens
  std::string generate = "lognormal";           // lognormal, drifting or recommendation
  size_t count = 20'000;                        // of generated sequences
  std::string process = "poisson";              // poisson or bursty
  std::vector<std::string> orders = {"trace"};  // trace or shuffled
  std::vector<double> loads = {0.85};
  // Whether each half of the arrivals has the load with its own Poisson process, instead of one
  // process over all arrivals.
  bool load_of_halves = false;
  uint64_t first_seed = 1;
  int seeds = 5;
  double deadline_seconds = 0;  // of every sequence, from its arrival; 0 means none
  uint64_t adapters = 0;        // sequences have this many different ones, drawn evenly; 0: none
  std::vector<std::string> policies{kNamesOf<PolicyKind>.begin(), kNamesOf<PolicyKind>.end()};
  // The ladders: fixed:A:B.., geometric:RATIO, memory_optimal, hardware_aware, adaptive (reviewed
  // only in the first part), adaptive:BUCKETS (the same with that many buckets), adaptive_live
  // (reviewed in both parts), foreseen (reviewed on the second part itself before it is measured)
  // or oracle (then also searched, see SearchLadder). Padded policies have their own ladder.
  std::vector<std::string> ladders = {"adaptive", "geometric:1.4142135623730951"};
  // The sets of other servers. Each is compared with the packed policy with the same number of
  // adaptive buckets; see FixedSetOf.
  std::vector<std::string> fixed_sets{};
  ExperimentOptions experiment{};  // except the policy and the strategy
};

// Returns the medians over the seeds for each policy, ladder, load and order, as an array of
// objects. All of them get the same arrivals for a seed. Ladders settle in the first half of the
// arrivals, and the second half is measured. The load is in useful tokens per second, relative to
// endless full batches without their fixed cost. Returns InvalidArgument if an option is wrong.
absl::StatusOr<nlohmann::json> Compare(const ComparisonOptions& options);

// Returns a Markdown table for each load and order with the waste and the cost of each row's plans.
// Computed waste is the share of the computed rows that
// are not tokens of the batch.
std::string PlansToMarkdown(const nlohmann::json& rows);

// Returns a Markdown table for each load and order of the rows that Compare returned.
std::string ToMarkdown(const nlohmann::json& rows);

}  // namespace sluice::loadtest
