#include "loadtest/bench/daemon/bare_server.h"

#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/inference.grpc.pb.h"

namespace sluice::loadtest {
namespace {

using RawService = inference::GRPCInferenceService::WithRawCallbackMethod_ModelInfer<
    inference::GRPCInferenceService::Service>;

class BareService final : public RawService {
 public:
  explicit BareService(int response_bytes) : slice_(std::string(response_bytes, 'x')) {}

  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* /*request*/,
                                       grpc::ByteBuffer* response) override {
    *response = grpc::ByteBuffer(&slice_, 1);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const grpc::Slice slice_;
};

}  // namespace

absl::Status ServeBare(const std::string& address, int response_bytes) {
  sigset_t end;
  sigemptyset(&end);
  sigaddset(&end, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &end, nullptr);  // blocked before gRPC starts its threads

  BareService service(response_bytes);
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server) return absl::UnavailableError(absl::StrCat("cannot listen on ", address));

  int signal = 0;
  sigwait(&end, &signal);
  server->Shutdown();
  return absl::OkStatus();
}

}  // namespace sluice::loadtest
