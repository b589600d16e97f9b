// The engine's results become a protocol message.
#pragma once

#include <span>

#include "engine/request.h"
#include "proto/inference.pb.h"
#include "server/validate.h"

namespace sluice {

// `tokens` in any order, each (row, index) once; `reply` as the engine completed it for the outputs
// of `spec`. Every output comes as raw contents, empty ones too, padded as proto/inference.proto
// says.
void BuildResponse(const ReplySpec& spec, std::span<const GeneratedToken> tokens,
                   const Reply& reply, inference::ModelInferResponse* response);

}  // namespace sluice
