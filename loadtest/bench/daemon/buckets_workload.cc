#include "loadtest/bench/daemon/buckets_workload.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"

namespace sluice::loadtest {
namespace {

load::PayloadOptions LengthRequests(int32_t vocab, uint64_t seed) {
  load::PayloadOptions options;
  options.model = kModel;
  options.vocab = vocab;
  // Each length has two different contents, so that swapped neighbouring rows are detected.
  options.variants = 2;
  options.outputs = {"output_ids", "logprobs", "prompt_logprobs"};
  options.seed = seed;
  return options;
}

}  // namespace

std::vector<TraceRow> ScaleTrace(std::vector<TraceRow> trace, int32_t cap, int32_t positions) {
  SLUICE_CHECK(1 <= positions && positions <= cap);
  for (TraceRow& row : trace) {
    const int64_t tokens = std::clamp(row.input_tokens, 1, cap);
    row.input_tokens = static_cast<int32_t>((tokens * positions + cap - 1) / cap);
  }
  return trace;
}

BucketsWorkload::BucketsWorkload(std::vector<TraceRow> trace, int32_t positions, int32_t vocab,
                                 uint64_t seed)
    : Workload(positions, LengthRequests(vocab, seed)), trace_(std::move(trace)) {
  SLUICE_CHECK(!trace_.empty());
}

std::vector<TraceRow> BucketsWorkload::Lengths(load::WorkloadOptions* options) {
  options->max_tokens = 1;
  return trace_;
}

void BucketsWorkload::OnPhase(const std::vector<load::Arrival>& arrivals,
                              const std::vector<uint32_t>& /*payloads*/) {
  std::rotate(trace_.begin(), trace_.begin() + arrivals.size() % trace_.size(), trace_.end());
}

int32_t BucketsWorkload::DistinctLengths() const {
  std::set<int32_t> lengths;
  for (const TraceRow& row : trace_) lengths.insert(row.input_tokens);
  return static_cast<int32_t>(lengths.size());
}

double BucketsWorkload::MeanLength() const {
  double sum = 0;
  for (const TraceRow& row : trace_) sum += row.input_tokens;
  return sum / static_cast<double>(trace_.size());
}

}  // namespace sluice::loadtest
