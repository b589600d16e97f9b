#include "server/net/grpc_1_51/streamed_unary.h"

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "server/common/callback_times.h"
#include "server/common/status.h"
#include "server/net/grpc_1_51/version.h"

namespace sluice {
namespace {

using Bytes = grpc::ByteBuffer;
using Event = CallbackTimes::Event;
using Stream = grpc::ServerBidiReactor<Bytes, Bytes>;

// Both a reactor, which gRPC's stream sees, and a unary call, which the handler's reactor sees.
// gRPC deletes neither; the stream's OnDone, which comes after all other reactions, ends both.
//
// The handler's reactor hears of a cancellation after the handler has returned, as gRPC promises.
class StreamedUnary final : public Stream, private grpc::ServerCallbackUnary {
 public:
  StreamedUnary(const char* method, const UnaryHandler* handler, TransferWatch* watch,
                grpc::CallbackServerContext* context)
      : method_(method), handler_(handler), watch_(watch), context_(context) {}

  void Start(const Callers* callers) {
    if (callers != nullptr) {
      absl::StatusOr<std::shared_ptr<const Caller>> caller = callers->Identify(*context_);
      if (!caller.ok()) return Finish(FinishStatus(caller.status(), {}, context_));
      caller_ = *std::move(caller);
    }
    watch_->Begin(context_->c_call(), "the call's message did not arrive", &wait_);
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    const CallbackTimes::Scope scope(method_, Event::kMessage);
    watch_->End(&wait_);
    if (!ok) {
      return Stream::Finish(FinishStatus(
          absl::InvalidArgumentError("the call ended without a message"), {}, context_));
    }
    unary_ = (*handler_)(context_, &request_, &response_, caller_);
    request_.Clear();  // the handler has read it or has copied references
    BindReactor(unary_);
    if (bound_or_cancelled_.exchange(true)) unary_->OnCancel();
  }

  void OnCancel() override {
    const CallbackTimes::Scope scope(method_, Event::kCancelled);
    if (bound_or_cancelled_.exchange(true)) unary_->OnCancel();
  }

  void OnDone() override {
    const CallbackTimes::Scope scope(method_, Event::kEnd);
    watch_->End(&wait_);
    if (unary_ != nullptr) unary_->OnDone();
    delete this;
  }

 private:
  void Finish(grpc::Status status) override {
    watch_->Begin(context_->c_call(), "the call's answer was not taken", &wait_,
                  TransferWatch::Kind::kOutgoing, static_cast<int64_t>(response_.Length()));
    if (!status.ok()) return Stream::Finish(std::move(status));
    StartWriteAndFinish(&response_, grpc::WriteOptions(), std::move(status));
  }
  void SendInitialMetadata() override { StartSendInitialMetadata(); }
  // Only the stream counts the conditions on which this call is done.
  grpc::internal::ServerReactor* reactor() override { return unary_; }
  void CallOnDone() override {}

  const char* const method_;
  const UnaryHandler* const handler_;
  TransferWatch* const watch_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<const Caller> caller_;  // nullptr where callers are not identified
  TransferWatch::Wait wait_;
  Bytes request_;
  Bytes response_;
  grpc::ServerUnaryReactor* unary_ = nullptr;  // written by OnReadDone
  // Set by the first of the two events; the second one notifies unary_.
  std::atomic<bool> bound_or_cancelled_ = false;
};

}  // namespace

std::unique_ptr<grpc::internal::MethodHandler> MakeStreamedUnary(const char* method,
                                                                 UnaryHandler handler,
                                                                 TransferWatch* watch,
                                                                 const Callers* callers) {
  const auto shared = std::make_shared<const UnaryHandler>(std::move(handler));
  return std::make_unique<grpc::internal::CallbackBidiHandler<Bytes, Bytes>>(
      [method, shared, watch, callers](grpc::CallbackServerContext* context) {
        const CallbackTimes::Scope scope(method, Event::kBegin);
        auto* call = new StreamedUnary(method, shared.get(), watch, context);
        call->Start(callers);
        return call;
      });
}

}  // namespace sluice
