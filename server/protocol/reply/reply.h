// Turns the results of the engine into messages of the protocol.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/text_stream.h"
#include "engine/request.h"
#include "proto/inference.pb.h"
#include "server/protocol/reply/token_buffer.h"
#include "server/protocol/request/validate.h"

namespace sluice {

// Makes the responses of one request: one, or several that together say the same. Each contains the
// tokens since the previous response and the text that they complete; the last also contains the
// other outputs. Every output comes as raw contents, even if it is empty, padded as
// proto/inference.proto says.
class ReplyBuilder {
 public:
  explicit ReplyBuilder(ReplySpec spec);
  ReplyBuilder(const ReplyBuilder&) = delete;  // texts_ refers to the spec
  ReplyBuilder& operator=(const ReplyBuilder&) = delete;

  const ReplySpec& spec() const { return spec_; }

  // Sets the fields that every response of the request has: the model, the id and a seed that was
  // drawn.
  void Identify(inference::ModelInferResponse* response) const;

  // Makes a response from the tokens that have come since the last call, in the order of their
  // arrival. In the last call, `reply` is the reply that the engine completed for the outputs of
  // the spec; in all others it is nullptr.
  void Build(const TokenBuffer& tokens, const Reply* reply,
             inference::ModelInferResponse* response);

 private:
  void BuildOfWindows(const Reply* reply, inference::ModelInferResponse* response);

  const ReplySpec spec_;
  std::vector<int32_t> sent_;      // per row, the tokens in earlier responses
  std::vector<TextStream> texts_;  // per row, if text is requested
};

}  // namespace sluice
