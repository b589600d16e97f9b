// The requests of `sluice-bench generate`: short prompts, answers of very different lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "loadtest/load/payload.h"
#include "loadtest/trace/trace_file.h"
#include "loadtest/traffic.h"

namespace sluice::loadtest {

// `count` prompts of 8 to 48 tokens, each length alike, and answers of 8 to 200: 8 and a geometric
// number, so that most are short and a few are long.
std::vector<load::TraceRow> DrawConversations(int count, uint64_t seed);

// Every request generates exactly its tokens, greedily, and streams them. Each phase has others.
class GenerateWorkload {
 public:
  // The model has at least 248 positions.
  GenerateWorkload(int32_t positions, int32_t vocab, uint64_t seed);

  absl::StatusOr<Traffic> Closed(int outstanding, load::nanoseconds duration);
  absl::StatusOr<Traffic> Open(double rate, load::nanoseconds duration);

  const load::PayloadPool& pool() const { return pool_; }
  // Tokens that each payload of the pool generates.
  const std::vector<int32_t>& answer_tokens() const { return answer_tokens_; }

 private:
  absl::StatusOr<Traffic> Make(double rate, load::nanoseconds duration);

  const int32_t positions_;
  uint64_t seed_;
  load::PayloadPool pool_;
  std::vector<int32_t> answer_tokens_;
};

}  // namespace sluice::loadtest
