// What the server answered to each distinct request, as a hash, to be compared while the load runs.
// Sluice promises that an answer has the same bits in any company, so any difference is a fault.
// Answers that are sampled without a seed, or of servers without that promise, do differ.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "loadtest/load/payload.h"
#include "proto/inference.pb.h"

namespace sluice::load {

// Over names, datatypes, shapes and contents of the outputs; id and parameters do not count.
uint64_t HashAnswer(const inference::ModelInferResponse& response);

class AnswerBook {
 public:
  // A book that knows no answer and learns them from the run.
  AnswerBook() = default;

  // From the text that Text() wrote; InvalidArgument names the line.
  static absl::StatusOr<std::unique_ptr<AnswerBook>> Parse(absl::string_view text);

  // Makes room for the payloads of a pool that has grown. Not while calls run.
  void Prepare(const std::vector<Payload>& payloads);

  // False: this request was answered differently before, or in the file. Thread-safe, does not
  // block.
  bool Agrees(uint32_t payload, uint64_t hash);

  // One line per request that was answered: its key and the hash of its answer. Includes what was
  // read from a file.
  std::string Text() const;

  // Requests that Parse knew an answer to, and of these those that Prepare met.
  int64_t known() const { return std::ssize(baseline_); }
  int64_t matched() const { return matched_; }

 private:
  absl::flat_hash_map<uint64_t, uint64_t> baseline_;  // key -> hash
  std::vector<uint64_t> keys_;                        // of each payload
  std::vector<std::atomic<uint64_t>> hashes_;         // of each payload's answer; 0: none yet
  int64_t matched_ = 0;
};

}  // namespace sluice::load
