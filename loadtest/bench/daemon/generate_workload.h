// Makes the requests of `sluice-bench generate`: short prompts and answers of very different
// lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "loadtest/bench/daemon/workload.h"

namespace sluice::loadtest {

// Returns `count` conversations. Prompts have 8 to 48 tokens, uniformly distributed. Answers have 8
// to 200 tokens: 8 plus a geometric number, so that most are short and a few are long.
std::vector<TraceRow> DrawConversations(int count, uint64_t seed);

// Makes requests that generate exactly their tokens, greedily, and stream them. Each phase has
// different requests.
class GenerateWorkload : public Workload {
 public:
  // Requires a model of at least 248 positions.
  GenerateWorkload(int32_t positions, int32_t vocab, uint64_t seed);

  // Returns the number of tokens that each payload of the pool generates.
  const std::vector<int32_t>& answer_tokens() const { return answer_tokens_; }

 private:
  std::vector<TraceRow> Lengths(load::WorkloadOptions* options) override;
  void OnPhase(const std::vector<load::Arrival>& arrivals,
               const std::vector<uint32_t>& payloads) override;

  std::vector<int32_t> answer_tokens_;
};

}  // namespace sluice::loadtest
