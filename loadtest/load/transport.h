// Transports requests to the server. Messages are bytes in both directions; an answer is parsed
// only if its content is needed.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/credentials.h"
#include "proto/inference.pb.h"

namespace sluice::load {

using SystemTime = std::chrono::system_clock::time_point;

// The end of a call.
struct Answer {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string message;  // the text of an error
  // If code is OK, exactly one of these is set, and it is valid while OnAnswer runs. A unary answer
  // stays in its original bytes, because most runs need not parse it.
  const grpc::ByteBuffer* bytes = nullptr;  // a ModelInferResponse
  const inference::ModelInferResponse* parsed = nullptr;
};

class CallSink {
 public:
  virtual ~CallSink() = default;
  // Called once per call, on a gRPC thread or within Send. It must not block. `call` is the same as
  // in Send.
  virtual void OnAnswer(int64_t call, const Answer& answer) = 0;
  // Called for a streamed answer that is not the last one of its call.
  virtual void OnPart(int64_t call) {}
};

// Sends calls. It is thread-safe, and its sink must outlive it. The destructor waits for all calls.
class Transport {
 public:
  virtual ~Transport() = default;
  // Sends a request, a serialised ModelInferRequest without an id. The call ends with
  // DEADLINE_EXCEEDED after `deadline`, if it has one.
  virtual void Send(int64_t call, const grpc::Slice& request,
                    std::optional<SystemTime> deadline) = 0;
};

using Channels = std::vector<std::shared_ptr<grpc::Channel>>;

// Opens `count` separate connections to HOST:PORT. All their calls carry the token. Returns
// Unavailable if there is no connection within `timeout`, and NotFound if a file cannot be read.
absl::StatusOr<Channels> Connect(const std::string& address,
                                 const client::ConnectionArguments& connection, int count,
                                 std::chrono::nanoseconds timeout);

// Returns a transport that uses ModelInfer and spreads the calls over the channels in turn. Calls
// without a deadline that have not ended at `until` end with DEADLINE_EXCEEDED.
std::unique_ptr<Transport> MakeUnaryTransport(const Channels& channels, SystemTime until,
                                              CallSink* sink);

// Returns a transport that uses ModelStreamInfer. There are `streams` streams per channel. Requests
// are spread over them in turn and distinguished by their ids. A call ends with its last answer
// (parameter triton_final_response, or the only answer if the server does not set it). An
// error_message ends it with the status that the server names (parameter error_code), or UNKNOWN.
// Individual calls on a stream have no deadlines: calls that have not ended at `until` end with
// DEADLINE_EXCEEDED. When a stream breaks, all its calls and all later ones end with its status.
std::unique_ptr<Transport> MakeStreamTransport(const Channels& channels, int streams,
                                               SystemTime until, CallSink* sink);

}  // namespace sluice::load
