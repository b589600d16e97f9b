// Keeps a hash of the server's answer to each distinct request and compares answers while the load
// runs. Sluice promises that an answer has the same bits in any batch, so any difference is a
// fault. Answers sampled without a seed may differ, and so may answers of servers without that
// promise.
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

// Hashes the names, datatypes, shapes and contents of the outputs, but not the id and the
// parameters.
uint64_t HashAnswer(const inference::ModelInferResponse& response);

class AnswerBook {
 public:
  // Makes a book without answers. The first answer to each request becomes the expected one.
  AnswerBook() = default;

  // Reads the text that Text() returned. Returns InvalidArgument that names the line.
  static absl::StatusOr<std::unique_ptr<AnswerBook>> Parse(absl::string_view text);

  // Makes room for the payloads of a pool that has grown. Requires that no call is in flight.
  void Prepare(const std::vector<Payload>& payloads);

  // Returns false if this request was answered differently before, or in the file. It is
  // thread-safe and does not block.
  bool Agrees(uint32_t payload, uint64_t hash);

  // Returns one line per request that was answered: its key and the hash of its answer. Includes
  // the answers that were read from a file.
  std::string Text() const;

  // The number of requests whose answers Parse read, and the number of requests given to Prepare.
  int64_t known() const { return std::ssize(baseline_); }
  int64_t matched() const { return matched_; }

 private:
  absl::flat_hash_map<uint64_t, uint64_t> baseline_;  // key -> hash
  std::vector<uint64_t> keys_;                        // of each payload
  std::vector<std::atomic<uint64_t>> hashes_;         // of each payload's answer; 0 if none yet
  int64_t matched_ = 0;
};

}  // namespace sluice::load
