// How requests reach the server. Messages travel as bytes on both ways: whoever needs the content
// of an answer parses it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
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
  std::string message;  // of an error
  // When code is OK exactly one of these is set, for as long as OnAnswer runs: a unary answer as it
  // came, for most runs need not parse it, or one that had to be parsed.
  const grpc::ByteBuffer* bytes = nullptr;  // a ModelInferResponse
  const inference::ModelInferResponse* parsed = nullptr;
};

class CallSink {
 public:
  virtual ~CallSink() = default;
  // Once per call, on a thread of gRPC or within Send; must not block. `call` is as in Send.
  virtual void OnAnswer(int64_t call, const Answer& answer) = 0;
  // A streamed answer that is not the last one of its call.
  virtual void OnPart(int64_t call) {}
};

// Thread-safe. Outlived by its sink, outlives its calls: the destructor waits for them.
class Transport {
 public:
  virtual ~Transport() = default;
  // `request` is a serialised ModelInferRequest without an id. After `deadline` the call ends with
  // DEADLINE_EXCEEDED.
  virtual void Send(int64_t call, const grpc::Slice& request, SystemTime deadline) = 0;
};

using Channels = std::vector<std::shared_ptr<grpc::Channel>>;

// `count` connections of their own to HOST:PORT, all of whose calls show the token; Unavailable
// when there is none within `timeout`, NotFound for a file that cannot be read.
absl::StatusOr<Channels> Connect(const std::string& address,
                                 const client::ConnectionArguments& connection, int count,
                                 std::chrono::nanoseconds timeout);

// ModelInfer; calls are spread over the channels in turn.
std::unique_ptr<Transport> MakeUnaryTransport(const Channels& channels, CallSink* sink);

// ModelStreamInfer: `streams` streams per channel, requests spread over them in turn and told apart
// by their ids. A call ends with its last answer (parameter triton_final_response, or the only one
// where the server does not set it); an error_message ends it with the status that the server names
// (parameter error_code), or UNKNOWN. Deadlines of single calls do not exist on a stream: all that
// has not ended at `until` ends with DEADLINE_EXCEEDED. When a stream breaks, all its calls end
// with its status, and so do those that follow.
std::unique_ptr<Transport> MakeStreamTransport(const Channels& channels, int streams,
                                               SystemTime until, CallSink* sink);

}  // namespace sluice::load
