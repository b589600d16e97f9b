// Unary methods, served so that the daemon sees a call before its message has arrived.
//
// gRPC reports a unary call only when its whole message has arrived, which may never happen. Until
// then nothing can end the call: a caller that sends one byte per second makes the daemon keep all
// of its data in memory. If the method is served as a stream of one message each way, which is the
// same on the wire, the call is visible as soon as its headers arrive. A TransferWatch then limits
// the time for its message and its answer.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/net/grpc_1_51/transfer_watch.h"
#include "server/security/callers.h"

namespace sluice {

// A handler with the signature and the contract of gRPC's handlers of raw unary methods. It is
// called once with the whole message and returns a reactor; the call ends with the status passed to
// the reactor's Finish. The message is gone when the handler returns. The handler also gets the
// caller that was identified when the call started, or nullptr if callers are not identified.
using UnaryHandler = std::function<grpc::ServerUnaryReactor*(
    grpc::CallbackServerContext*, const grpc::ByteBuffer*, grpc::ByteBuffer*,
    const std::shared_ptr<const Caller>& caller)>;

// A service that serves all methods as streams of raw messages. gRPC parses no message, so the
// handlers report malformed ones.
class StreamedUnaryService : public grpc::Service {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

 protected:
  // `full_name` is the service's name with its package. `watch` and `callers` outlive the service.
  // A unary call that `callers` cannot identify ends before its message is read. If `callers` is
  // nullptr, every call is served.
  StreamedUnaryService(const char* full_name, TransferWatch* watch, const Callers* callers);

  // Adds the unary method `method`, a static text.
  void Stream(const char* method, UnaryHandler handler);

  // Adds `method`, a static text, whose answer is a stream. `make` is called as soon as a call's
  // headers arrive. The reactor reads the messages itself.
  void StreamAnswers(const char* method,
                     std::function<Reactor*(grpc::CallbackServerContext*)> make);

  // Returns a reactor that ends the stream with `status` before any message is read.
  static Reactor* RefuseStream(const absl::Status& status, grpc::CallbackServerContext* context);

  TransferWatch* watch() const { return watch_; }

 private:
  void Add(const char* method, std::unique_ptr<grpc::internal::MethodHandler> handler);

  const google::protobuf::ServiceDescriptor* const descriptor_;
  TransferWatch* const watch_;
  const Callers* const callers_;
  std::list<std::string> paths_;  // gRPC refers to them
};

}  // namespace sluice
