// Unary methods, served so that the daemon knows of a call before its message has arrived.
//
// gRPC reports a unary call only when its whole message has arrived, which may be never. Until then
// nothing can end the call: a caller that sends one byte per second makes the daemon keep in memory
// all that it has sent. If the method is served as a stream of one message each way, which is the
// same on the wire, a call is known as soon as its headers arrive, and a TransferWatch bounds how
// long its message and its answer may take.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/check.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/common/callback_times.h"
#include "server/net/grpc_1_51/transfer_watch.h"
#include "server/security/callers.h"

namespace sluice {

// A handler with the signature and the contract of gRPC's handlers of raw unary methods: it is
// called once with the whole message and returns a reactor whose Finish says how the call ends. The
// message is gone when it returns. In addition it gets the caller that was identified when the call
// began, or nullptr where callers are not identified.
using UnaryHandler = std::function<grpc::ServerUnaryReactor*(
    grpc::CallbackServerContext*, const grpc::ByteBuffer*, grpc::ByteBuffer*,
    const std::shared_ptr<const Caller>& caller)>;

// Returns the handler that gRPC calls for such a method. `watch`, `callers` and the name outlive
// it. A call that `callers` do not know ends before its message is read; if `callers` is nullptr,
// everybody may call.
std::unique_ptr<grpc::internal::MethodHandler> MakeStreamedUnary(const char* method,
                                                                 UnaryHandler handler,
                                                                 TransferWatch* watch,
                                                                 const Callers* callers);

// A service whose unary methods are streamed. `Base` is the generated class of the service
// `full_name`, with its unary methods raw.
template <typename Base>
class StreamedUnaryService : public Base {
 protected:
  StreamedUnaryService(const char* full_name, TransferWatch* watch, const Callers* callers)
      : descriptor_(
            google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(full_name)),
        watch_(watch),
        callers_(callers) {
    SLUICE_CHECK(descriptor_ != nullptr);
  }

  // Makes `method`, a static text, call `handler` of this object from now on.
  template <typename Service>
  void Stream(const char* method,
              grpc::ServerUnaryReactor* (Service::*handler)(grpc::CallbackServerContext*,
                                                            const grpc::ByteBuffer*,
                                                            grpc::ByteBuffer*)) {
    auto* const self = static_cast<Service*>(this);
    Stream(method, [self, handler](auto* context, auto* request, auto* response, const auto&) {
      return (self->*handler)(context, request, response);
    });
  }
  void Stream(const char* method, UnaryHandler handler) {
    StreamBy(method, MakeStreamedUnary(method, std::move(handler), watch_, callers_));
  }
  // Makes `method`, which answers one message with a stream, call `make` of this object as soon as
  // a call's headers arrive. The reactor reads the message itself.
  template <typename Service>
  void StreamAnswers(const char* method,
                     grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* (Service::*make)(
                         grpc::CallbackServerContext*)) {
    auto* const self = static_cast<Service*>(this);
    StreamBy(
        method,
        std::make_unique<grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>>(
            [self, make, method](grpc::CallbackServerContext* context) {
              const CallbackTimes::Scope scope(method, CallbackTimes::Event::kBegin);
              return (self->*make)(context);
            }));
  }
  TransferWatch* watch() const { return watch_; }

 private:
  void StreamBy(const char* method, std::unique_ptr<grpc::internal::MethodHandler> handler) {
    const google::protobuf::MethodDescriptor* const found = descriptor_->FindMethodByName(method);
    SLUICE_CHECK(found != nullptr);
    this->MarkMethodStreamed(found->index(), nullptr);  // gRPC's server then treats it as a stream
    this->MarkMethodRawCallback(found->index(), handler.release());
  }

  const google::protobuf::ServiceDescriptor* const descriptor_;
  TransferWatch* const watch_;
  const Callers* const callers_;
};

}  // namespace sluice
