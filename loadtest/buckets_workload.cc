#include "loadtest/buckets_workload.h"

#include <algorithm>
#include <set>
#include <utility>

#include "kernels/check.h"

namespace sluice::loadtest {
namespace {

load::PayloadOptions Requests(int32_t vocab, uint64_t seed) {
  load::PayloadOptions options;
  options.model = kModel;
  options.vocab = vocab;
  // Each length has two contents, so that a row in a neighbour's place would be noticed.
  options.variants = 2;
  options.outputs = {"output_ids", "logprobs", "prompt_logprobs"};
  options.seed = seed;
  return options;
}

}  // namespace

std::vector<load::TraceRow> ScaleTrace(std::vector<load::TraceRow> trace, int32_t cap,
                                       int32_t positions) {
  SLUICE_CHECK(1 <= positions && positions <= cap);
  for (load::TraceRow& row : trace) {
    const int64_t tokens = std::clamp(row.input_tokens, 1, cap);
    row.input_tokens = static_cast<int32_t>((tokens * positions + cap - 1) / cap);
  }
  return trace;
}

BucketsWorkload::BucketsWorkload(std::vector<load::TraceRow> trace, int32_t positions,
                                 int32_t vocab, uint64_t seed)
    : trace_(std::move(trace)), positions_(positions), seed_(seed), pool_(Requests(vocab, seed)) {
  SLUICE_CHECK(!trace_.empty());
}

absl::StatusOr<Traffic> BucketsWorkload::Closed(int outstanding, load::nanoseconds duration) {
  // Only the lengths are of interest; the loop begins again when it has sent them all.
  absl::StatusOr<Traffic> traffic = Make(4000, std::chrono::seconds(1));
  if (!traffic.ok()) return traffic.status();
  traffic->outstanding = outstanding;
  traffic->rate = 0;
  traffic->duration = duration;
  return traffic;
}

absl::StatusOr<Traffic> BucketsWorkload::Open(double rate, load::nanoseconds duration) {
  return Make(rate, duration);
}

absl::StatusOr<Traffic> BucketsWorkload::Make(double rate, load::nanoseconds duration) {
  load::WorkloadOptions options;
  options.lengths = "trace";
  options.max_tokens = 1;
  options.cap = positions_ + 1;
  options.seed = seed_++;
  absl::StatusOr<std::vector<load::Arrival>> arrivals =
      load::MakeSchedule(options, trace_, rate, duration);
  if (!arrivals.ok()) return arrivals.status();
  if (arrivals->empty()) return absl::InvalidArgumentError("no request arrives in a phase");
  absl::StatusOr<std::vector<uint32_t>> payloads = pool_.Assign(*arrivals);
  if (!payloads.ok()) return payloads.status();
  std::rotate(trace_.begin(), trace_.begin() + arrivals->size() % trace_.size(), trace_.end());
  return Traffic{0, rate, duration, *std::move(arrivals), *std::move(payloads)};
}

int32_t BucketsWorkload::DistinctLengths() const {
  std::set<int32_t> lengths;
  for (const load::TraceRow& row : trace_) lengths.insert(row.input_tokens);
  return static_cast<int32_t>(lengths.size());
}

double BucketsWorkload::MeanLength() const {
  double sum = 0;
  for (const load::TraceRow& row : trace_) sum += row.input_tokens;
  return sum / static_cast<double>(trace_.size());
}

}  // namespace sluice::loadtest
