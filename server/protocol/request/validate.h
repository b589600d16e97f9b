// Converts a message of the protocol to a request of the engine, or returns a precise error.
//
// Everything in the message is untrusted until it has been validated here. Cheap checks come first:
// inputs, shapes and sizes, parameters, outputs and the size of the reply. Token values come last;
// they are checked while they are copied. docs/api.md states the rules.
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

// The properties of a request that its message does not contain. Caller and model are looked up
// once and kept here.
struct CallContext {
  MonoTime received{};
  MonoTime rpc_deadline = MonoTime::max();
  std::string peer{};    // in gRPC's format: "ipv4:192.0.2.1:54321"
  std::string client{};  // a gateway's name for its own caller, as the peer states it
  TraceContext trace{};
  int max_priority = 1;    // the most urgent level allowed for the caller
  int64_t fresh_seed = 0;  // >= 0, from entropy; used if the request needs a seed and has none
  std::shared_ptr<const Caller> caller{};  // nullptr if callers are not identified
  std::string owner{};                     // for taking turns; set by InferenceFrontend::Enter
  std::shared_ptr<const Model> model{};    // the model named by the message
  // The classifier of the adapter named by the message; nullptr if it has none of its own.
  std::shared_ptr<const ClassifierConfig> head{};
  // Called directly before texts are encoded, with a lower bound on their tokens. May refuse the
  // request.
  std::function<absl::Status(int64_t tokens)> before_encoding{};
};

// The part of a request that the reply needs.
struct ReplySpec {
  std::shared_ptr<const RequestSpec> request;
  std::vector<Output> outputs = {};                  // in the order of the response
  std::optional<int64_t> drawn_seed = std::nullopt;  // the seed to return, if one was drawn
  std::vector<ByteRange> ranges = {};                // byte range of each token, for token_offsets
  std::vector<int32_t> token_ids = {};               // of all rows, for token_ids
  std::vector<std::vector<int32_t>> before = {};     // of each row, see TextStream; or empty
  std::vector<int32_t> vector_counts = {};           // of each row, for vectors
  std::vector<int32_t> span_counts = {};             // of each row, for span_embeddings
  std::vector<std::vector<TextSpan>> words = {};     // of each row, for extracted_spans
  TextWindows windows = {};                          // the rows of `request` are these windows
  int64_t cut_tokens = 0;                            // total over all rows; returned unless 0
  int64_t max_bytes = 0;                             // the limit on the whole reply
};

struct ValidRequest {
  Request request;
  ReplySpec reply;
};

// Validates a message. Requires call.model. Returns InvalidArgument that names the field and the
// limit, with the reason "input", "parameter", "output" or "request"; PermissionDenied with the
// reason "priority" for a level that the caller may not use; the errors of call.before_encoding;
// and, while it encodes texts, the errors of CheckInterruption.
absl::StatusOr<ValidRequest> Validate(const inference::ModelInferRequest& message,
                                      const RequestLimits& limits, const CallContext& call);

}  // namespace sluice
