// The contents of all responses of a request, joined.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/inference.pb.h"

namespace sluice::testing {

// Joins the contents of responses by row. Fails the test on a malformed response: a shape that does
// not match its contents, wrong padding, or a repeated output of the prompt.
class JoinedAnswer {
 public:
  // Adds a response. Requires the output sequence_length, which divides the other outputs among
  // rows.
  void Add(const inference::ModelInferResponse& response);

  // The bytes of each row's tokens, in order: output_ids, logprobs, top_ids, top_logprobs.
  std::map<std::string, std::vector<std::string>> tokens;
  // The joined texts of each row: text_output, finish_reason.
  std::map<std::string, std::vector<std::string>> texts;
  // All other outputs, unchanged.
  std::map<std::string, std::string> others;

  bool operator==(const JoinedAnswer&) const = default;
};

}  // namespace sluice::testing
