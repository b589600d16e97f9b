// Makes protocol messages of the engine's results.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/text_stream.h"
#include "engine/request.h"
#include "proto/inference.pb.h"
#include "server/protocol/token_buffer.h"
#include "server/protocol/validate.h"

namespace sluice {

// Makes the responses of one request: one, or several that together say the same. Each has the
// tokens since the response before and the text that they complete; the last one has the other
// outputs too. Every output comes as raw contents, empty ones too, padded as proto/inference.proto
// says.
class ReplyBuilder {
 public:
  explicit ReplyBuilder(ReplySpec spec);
  ReplyBuilder(const ReplyBuilder&) = delete;  // the texts refer to the spec
  ReplyBuilder& operator=(const ReplyBuilder&) = delete;

  const ReplySpec& spec() const { return spec_; }

  // Sets what every response of the request has: model, id and a seed that was drawn.
  void Identify(inference::ModelInferResponse* response) const;

  // Makes a response of the tokens that came since the last call, in the order in which they came.
  // The last call gets the reply that the engine completed for the outputs of the spec; others get
  // nullptr.
  void Build(const TokenBuffer& tokens, const Reply* reply,
             inference::ModelInferResponse* response);

 private:
  const ReplySpec spec_;
  std::vector<int32_t> sent_;      // per row: tokens that earlier responses had
  std::vector<TextStream> texts_;  // per row, where text is asked for
};

}  // namespace sluice
