// A unary call that the test runs step by step, like a caller that reads late or never.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "proto/inference.pb.h"
#include "server/common/status.h"
#include "tests/server/daemon/server_fixture.h"
#include "tests/server/protocol/messages.h"

namespace sluice::testing {

inline constexpr char kModelInfer[] = "/inference.GRPCInferenceService/ModelInfer";

// Returns a request for the logits of `rows` rows: 4 * 258 bytes each.
inline inference::ModelInferRequest LogitsRequest(const std::string& id, int rows) {
  inference::ModelInferRequest request;
  request.set_model_name("text");
  request.set_id(id);
  AddInput(&request, "input_ids", "INT32", {rows, 1}, Bytes(std::vector<int32_t>(rows, 1)));
  SetInt(&request, "max_tokens", 1);
  request.add_outputs()->set_name("logits");
  return request;
}

class LazyCall {
 public:
  // Sends only the headers.
  explicit LazyCall(const std::shared_ptr<grpc::Channel>& channel,
                    const std::string& method = kModelInfer)
      : stub_(channel), call_(stub_.PrepareCall(&context_, method, &queue_)) {
    call_->StartCall(this);
    Await();
  }
  // Sends the message as well.
  LazyCall(const std::shared_ptr<grpc::Channel>& channel,
           const google::protobuf::MessageLite& request, const std::string& method = kModelInfer)
      : LazyCall(channel, method) {
    const grpc::Slice slice(request.SerializeAsString());
    call_->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), this);
    Await();
  }
  ~LazyCall() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  // Waits until the daemon starts to answer.
  void AwaitHeaders() {
    call_->ReadInitialMetadata(this);
    Await();
  }
  // Reads the answer, if there is one, and the end of the call.
  grpc::Status Read() {
    grpc::ByteBuffer answer;
    grpc::Status status;
    call_->Read(&answer, this);
    Await();
    call_->Finish(&status, this);
    Await();
    bytes_ = static_cast<int64_t>(answer.Length());
    return status;
  }
  int64_t bytes() const { return bytes_; }  // the size of the answer that was read
  std::string Reason() const { return Trailer(context_, kReasonTrailer); }

 private:
  void Await() {
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  int64_t bytes_ = 0;
};

}  // namespace sluice::testing
