#include "loadtest/generate_workload.h"

#include <random>
#include <utility>

#include "kernels/check.h"

namespace sluice::loadtest {
namespace {

constexpr int32_t kLeastPrompt = 8, kMostPrompt = 48;
constexpr int32_t kLeastAnswer = 8, kMostAnswer = 200;
constexpr double kMeanBeyondLeast = 56;

load::PayloadOptions Requests(int32_t vocab, uint64_t seed) {
  load::PayloadOptions options;
  options.model = kModel;
  options.vocab = vocab;
  options.variants = 16;
  options.outputs = {"output_ids"};
  options.parameters = {{"ignore_eos", "true"}};
  options.seed = seed;
  return options;
}

}  // namespace

std::vector<load::TraceRow> DrawConversations(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int32_t> prompt(kLeastPrompt, kMostPrompt);
  std::geometric_distribution<int32_t> more(1 / (1 + kMeanBeyondLeast));
  std::vector<load::TraceRow> rows(static_cast<size_t>(count));
  for (load::TraceRow& row : rows) {
    row.input_tokens = prompt(random);
    // What is too long is drawn again: a cut would heap answers up at the limit.
    do {
      row.output_tokens = kLeastAnswer + more(random);
    } while (row.output_tokens > kMostAnswer);
  }
  return rows;
}

GenerateWorkload::GenerateWorkload(int32_t positions, int32_t vocab, uint64_t seed)
    : positions_(positions), seed_(seed), pool_(Requests(vocab, seed)) {
  SLUICE_CHECK(positions >= kMostPrompt + kMostAnswer);
}

absl::StatusOr<Traffic> GenerateWorkload::Closed(int outstanding, load::nanoseconds duration) {
  // Only the lengths are of interest; the loop begins again when it has sent them all.
  absl::StatusOr<Traffic> traffic = Make(4000, std::chrono::seconds(1));
  if (!traffic.ok()) return traffic.status();
  traffic->outstanding = outstanding;
  traffic->rate = 0;
  traffic->duration = duration;
  return traffic;
}

absl::StatusOr<Traffic> GenerateWorkload::Open(double rate, load::nanoseconds duration) {
  return Make(rate, duration);
}

absl::StatusOr<Traffic> GenerateWorkload::Make(double rate, load::nanoseconds duration) {
  constexpr int kConversations = 10'000;
  load::WorkloadOptions options;
  options.lengths = "trace";
  options.max_tokens_from_trace = true;
  options.cap = positions_ + 1;
  options.seed = seed_++;
  absl::StatusOr<std::vector<load::Arrival>> arrivals =
      load::MakeSchedule(options, DrawConversations(kConversations, options.seed), rate, duration);
  if (!arrivals.ok()) return arrivals.status();
  if (arrivals->empty()) return absl::InvalidArgumentError("no request arrives in a phase");
  absl::StatusOr<std::vector<uint32_t>> payloads = pool_.Assign(*arrivals);
  if (!payloads.ok()) return payloads.status();
  answer_tokens_.resize(pool_.payloads().size());
  for (size_t i = 0; i < arrivals->size(); ++i) {
    answer_tokens_[(*payloads)[i]] = (*arrivals)[i].max_tokens;
  }
  return Traffic{0, rate, duration, *std::move(arrivals), *std::move(payloads)};
}

}  // namespace sluice::loadtest
