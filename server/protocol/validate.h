// A protocol message becomes a request of the engine, or a precise error.
//
// Everything in the message is hostile until it has passed here. The checks run from cheap to dear:
// inputs, shapes and sizes, parameters, outputs, size of the reply, and token values last, which
// are checked while they are copied. proto/inference.proto states the rules.
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

// What is known of a call beside its message.
struct CallFacts {
  MonoTime received{};
  MonoTime rpc_deadline = MonoTime::max();
  TraceContext trace{};
  int64_t fresh_seed = 0;  // >= 0, from entropy; used where the caller needs one and gave none
  std::shared_ptr<const Caller> caller{};  // nullptr: nobody asked
};

// What the reply needs to know of its request, which by then belongs to the engine.
struct ReplySpec {
  std::shared_ptr<const Model> model;
  std::string id;
  std::vector<int32_t> lengths;  // of the prompts, per row
  std::vector<Output> outputs;   // in the order of the response
  int32_t num_top = 0;
  int32_t max_tokens = 1;
  std::vector<std::string> stop_texts = {};
  int32_t min_tokens = 0;                            // see StopRules
  bool empty_final_response = false;                 // wanted, where responses are streamed
  std::optional<int64_t> drawn_seed = std::nullopt;  // to be returned
  int64_t cut_tokens = 0;                            // of all rows; returned where there are some
  int64_t most_bytes = 0;                            // of the whole reply
};

struct ValidRequest {
  Request request;
  ReplySpec reply;
};

// InvalidArgument that names the field and the limit, with the reason "input", "parameter",
// "output" or "request". `model` is what the message's name and version resolved to.
absl::StatusOr<ValidRequest> Validate(const inference::ModelInferRequest& message,
                                      std::shared_ptr<const Model> model,
                                      const RequestLimits& limits, const CallFacts& arrival);

}  // namespace sluice
