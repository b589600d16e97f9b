// Turns a message of the protocol into a request of the engine, or returns a precise error.
//
// Everything in the message is untrusted until it has passed here. Cheap checks come first: inputs,
// shapes and sizes, parameters, outputs and the size of the reply. Token values come last; they are
// checked while they are copied. docs/api.md states the rules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/request.h"
#include "proto/inference.pb.h"
#include "server/protocol/tensors/outputs.h"
#include "server/protocol/text/text_windows.h"

namespace sluice {

inline constexpr size_t kMaxRequestIdBytes = 256;

class Caller;  // security/callers.h

struct RequestLimits {
  int32_t max_rows = 1024;             // GrpcOptions::max_rows
  int64_t max_reply_bytes = 64 << 20;  // GrpcOptions::max_message_bytes
};

// What is known about a request beside its message. Caller and model are looked up once and kept
// here.
struct CallContext {
  MonoTime received{};
  MonoTime rpc_deadline = MonoTime::max();
  std::string peer{};  // as gRPC writes it: "ipv4:192.0.2.1:54321"
  TraceContext trace{};
  int max_priority = 1;    // the most urgent level that the caller may ask for
  int64_t fresh_seed = 0;  // >= 0, from entropy; used if the request needs a seed and has none
  std::shared_ptr<const Caller> caller{};  // nullptr where callers are not identified
  std::shared_ptr<const Model> model{};    // the model that the message names
  // Called before texts are encoded, with a lower bound of their tokens. May refuse the request.
  std::function<absl::Status(int64_t tokens)> before_encoding{};
};

// The part of a request that the reply needs.
struct ReplySpec {
  std::shared_ptr<const RequestSpec> request;
  std::vector<Output> outputs = {};                  // in the order of the response
  std::optional<int64_t> drawn_seed = std::nullopt;  // the seed to return, if one was drawn
  std::vector<ByteRange> ranges = {};                // of the tokens, for token_offsets
  TextWindows windows = {};                          // of which the rows of `request` are
  int64_t cut_tokens = 0;                            // over all rows; returned unless 0
  int64_t max_bytes = 0;                             // the limit on the whole reply
};

struct ValidRequest {
  Request request;
  ReplySpec reply;
};

// Validates a message. Requires call.model. Returns InvalidArgument that names the field and the
// limit, with the reason "input", "parameter", "output" or "request", PermissionDenied with the
// reason "priority" for a level that the caller may not have, or the errors of call.before_encoding
// and, while it encodes texts, of CheckInterruption.
absl::StatusOr<ValidRequest> Validate(const inference::ModelInferRequest& message,
                                      const RequestLimits& limits, const CallContext& call);

}  // namespace sluice
