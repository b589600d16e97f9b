// The engine's results become protocol messages.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/text_stream.h"
#include "engine/request.h"
#include "proto/inference.pb.h"
#include "server/protocol/token_buffer.h"
#include "server/protocol/validate.h"

namespace sluice {

// Answers one request, in one response or in several that together say the same: the tokens since the
// response before, the text that they complete, and with the last one whatever else was asked for.
// Every output comes as raw contents, empty ones too, padded as proto/inference.proto says.
class ReplyBuilder {
 public:
  explicit ReplyBuilder(ReplySpec spec);
  ReplyBuilder(const ReplyBuilder&) = delete;  // the texts refer to the spec
  ReplyBuilder& operator=(const ReplyBuilder&) = delete;

  const ReplySpec& spec() const { return spec_; }

  // Sets what every response of the request has: model, id and a seed that was drawn.
  void Identify(inference::ModelInferResponse* response) const;

  // `tokens`: those that came since the last call, in the order in which they came. `reply`, with the
  // last call only: as the engine completed it for the outputs of the spec; nullptr before.
  void Build(const TokenBuffer& tokens, const Reply* reply,
             inference::ModelInferResponse* response);

 private:
  const ReplySpec spec_;
  std::vector<int32_t> sent_;      // per row: tokens that earlier responses had
  std::vector<TextStream> texts_;  // per row, where text is asked for
};

}  // namespace sluice
