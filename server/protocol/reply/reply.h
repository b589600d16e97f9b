// Converts the results of the engine to messages of the protocol.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/text_stream.h"
#include "engine/request.h"
#include "proto/inference.pb.h"
#include "server/protocol/reply/token_buffer.h"
#include "server/protocol/request/validate.h"

namespace sluice {

// Makes the responses of one request, one or several; the total content is the same. Each contains
// the tokens since the previous response and the text that they complete; the last also contains
// the other outputs. Every output has raw contents, even if it is empty, with the padding of
// proto/inference.proto.
class ReplyBuilder {
 public:
  explicit ReplyBuilder(ReplySpec spec);
  ReplyBuilder(const ReplyBuilder&) = delete;  // texts_ refers to the spec
  ReplyBuilder& operator=(const ReplyBuilder&) = delete;

  const ReplySpec& spec() const { return spec_; }

  // Sets the fields that every response of the request has: the model, the id and a drawn seed.
  void Identify(inference::ModelInferResponse* response) const;

  // Sets the counts of the last response: of prompt tokens that were not computed because their
  // keys and values were cached, and of drafted and accepted tokens. A count of 0 is left out.
  void set_trace(const RequestTrace& trace) { trace_ = trace; }

  // Makes a response from the tokens since the previous call, in the order of arrival. In the last
  // call, `reply` is the engine's completed reply for the outputs of the spec; in all others it is
  // nullptr.
  void Build(const TokenBuffer& tokens, const Reply* reply,
             inference::ModelInferResponse* response);

 private:
  void BuildOfWindows(const Reply* reply, inference::ModelInferResponse* response);

  const ReplySpec spec_;
  RequestTrace trace_;
  std::vector<int32_t> sent_;      // per row, the tokens in earlier responses
  std::vector<TextStream> texts_;  // per row, if text is requested
};

}  // namespace sluice
