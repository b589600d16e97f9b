// Makes a request of the engine of a protocol message, or a precise error.
//
// Everything in the message is hostile until it has passed here. The checks run from cheap to dear:
// inputs, shapes and sizes, parameters, outputs, size of the reply, and token values last, which
// are checked while they are copied. docs/api.md states the rules.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/request.h"
#include "proto/inference.pb.h"
#include "server/protocol/outputs.h"

namespace sluice {

inline constexpr size_t kMaxRequestIdBytes = 256;

class Caller;  // security/callers.h

struct RequestLimits {
  int32_t max_rows = 1024;             // GrpcOptions::max_rows
  int64_t max_reply_bytes = 64 << 20;  // GrpcOptions::max_message_bytes
};

// What is known of one request's call beside its message. Caller and model are looked up once, and
// found here from then on.
struct CallContext {
  MonoTime received{};
  MonoTime rpc_deadline = MonoTime::max();
  TraceContext trace{};
  int64_t fresh_seed = 0;  // >= 0, from entropy; used where the request needs one and gives none
  std::shared_ptr<const Caller> caller{};  // nullptr: callers are not identified
  std::shared_ptr<const Model> model{};    // the snapshot that the message's name and version name
};

// The part of a request that its reply needs.
struct ReplySpec {
  std::shared_ptr<const RequestSpec> request;
  std::vector<Output> outputs = {};                  // in the order of the response
  std::optional<int64_t> drawn_seed = std::nullopt;  // to be returned
  int64_t cut_tokens = 0;                            // of all rows; returned unless it is 0
  int64_t max_bytes = 0;                             // that the whole reply may have
};

struct ValidRequest {
  Request request;
  ReplySpec reply;
};

// Requires call.model. Returns InvalidArgument that names the field and the limit, with the reason
// "input", "parameter", "output" or "request".
absl::StatusOr<ValidRequest> Validate(const inference::ModelInferRequest& message,
                                      const RequestLimits& limits, const CallContext& call);

}  // namespace sluice
