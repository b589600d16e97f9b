#include "loadtest/bench/daemon/generate_workload.h"

#include <random>
#include <utility>

#include "base/check.h"

namespace sluice::loadtest {
namespace {

constexpr int32_t kLeastPrompt = 8, kMostPrompt = 48;
constexpr int32_t kLeastAnswer = 8, kMostAnswer = 200;
constexpr double kMeanBeyondLeast = 56;

load::PayloadOptions AnswerRequests(int32_t vocab, uint64_t seed) {
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

std::vector<TraceRow> DrawConversations(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int32_t> prompt(kLeastPrompt, kMostPrompt);
  std::geometric_distribution<int32_t> more(1 / (1 + kMeanBeyondLeast));
  std::vector<TraceRow> rows(count);
  for (TraceRow& row : rows) {
    row.input_tokens = prompt(random);
    // A number that is too large is drawn again; clamping it would make many answers of the maximum
    // length.
    do {
      row.output_tokens = kLeastAnswer + more(random);
    } while (row.output_tokens > kMostAnswer);
  }
  return rows;
}

GenerateWorkload::GenerateWorkload(int32_t positions, int32_t vocab, uint64_t seed)
    : Workload(positions, AnswerRequests(vocab, seed)) {
  SLUICE_CHECK(positions >= kMostPrompt + kMostAnswer);
}

std::vector<TraceRow> GenerateWorkload::Lengths(load::WorkloadOptions* options) {
  constexpr int kConversations = 10'000;
  options->max_tokens_from_trace = true;
  return DrawConversations(kConversations, options->seed);
}

void GenerateWorkload::OnPhase(const std::vector<load::Arrival>& arrivals,
                               const std::vector<uint32_t>& payloads) {
  answer_tokens_.resize(pool().payloads().size());
  for (size_t i = 0; i < arrivals.size(); ++i) {
    answer_tokens_[payloads[i]] = arrivals[i].max_tokens;
  }
}

}  // namespace sluice::loadtest
