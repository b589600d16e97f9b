// What one or several responses of a request say together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/inference.pb.h"

namespace sluice::testing {

// Holds of each row what its responses had. Fails the test where a response is malformed: a shape
// that does not fit the contents, padding that is none, an output of the prompt that comes twice.
class JoinedAnswer {
 public:
  // Responses need the output sequence_length, by which the others are cut.
  void Add(const inference::ModelInferResponse& response);

  // Per row the bytes of its tokens, in order: output_ids, logprobs, top_ids, top_logprobs.
  std::map<std::string, std::vector<std::string>> tokens;
  // Per row, joined: text_output, finish_reason.
  std::map<std::string, std::vector<std::string>> texts;
  // Whatever is not of tokens, as it came.
  std::map<std::string, std::string> others;

  bool operator==(const JoinedAnswer&) const = default;
};

}  // namespace sluice::testing
