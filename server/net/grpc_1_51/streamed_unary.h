// Unary methods, served so that the daemon knows of a call before its message has arrived.
//
// gRPC tells of a unary call when its message is there in whole. Until then, which may be for ever,
// nothing can end it: a caller that sends a byte a second keeps what it has sent in memory. As a
// stream of one message each way, which is the same on the wire, a call is known from its headers
// on, and a TransferWatch bounds how long its message and its answer may take.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "base/check.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/net/grpc_1_51/transfer_watch.h"
#include "server/security/callers.h"

namespace sluice {

// A handler as gRPC has it for raw unary methods, with the same contract: it is called once with
// the whole message and returns a reactor whose Finish says how the call ends. The caller is the
// one that was identified when the call began; nullptr where callers are not identified.
using UnaryHandler = std::function<grpc::ServerUnaryReactor*(
    grpc::CallbackServerContext*, const grpc::ByteBuffer*, grpc::ByteBuffer*,
    const std::shared_ptr<const Caller>& caller)>;

// Returns what gRPC calls for such a method. `watch` and `callers` outlive it. A call that
// `callers` do not know ends before its message is read; nullptr: everybody may call.
std::unique_ptr<grpc::internal::MethodHandler> MakeStreamedUnary(UnaryHandler handler,
                                                                 TransferWatch* watch,
                                                                 const Callers* callers);

// `Base` is the generated class of the service `full_name`, with its unary methods raw.
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

  // Makes `method` call `handler` of this object from now on.
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
    const google::protobuf::MethodDescriptor* const found = descriptor_->FindMethodByName(method);
    SLUICE_CHECK(found != nullptr);
    this->MarkMethodStreamed(found->index(), nullptr);  // makes it a stream, for gRPC's server
    this->MarkMethodRawCallback(found->index(),
                                MakeStreamedUnary(std::move(handler), watch_, callers_).release());
  }

 private:
  const google::protobuf::ServiceDescriptor* const descriptor_;
  TransferWatch* const watch_;
  const Callers* const callers_;
};

}  // namespace sluice
