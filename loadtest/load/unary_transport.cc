#include <grpcpp/generic/generic_stub.h>

#include <atomic>

#include "base/mutex.h"
#include "loadtest/load/transport.h"

namespace sluice::load {
namespace {

constexpr char kUnaryMethod[] = "/inference.GRPCInferenceService/ModelInfer";

class UnaryTransport final : public Transport {
 public:
  UnaryTransport(const Channels& channels, CallSink* sink) : sink_(sink) {
    for (const auto& channel : channels) {
      stubs_.push_back(std::make_unique<grpc::GenericStub>(channel));
    }
  }

  ~UnaryTransport() override {
    const MutexLock lock(&mu_);
    while (running_ > 0) none_left_.Wait(&mu_);
  }

  void Send(int64_t number, const grpc::Slice& request, SystemTime deadline) override {
    auto* call = new Call(number, request);
    call->context.set_deadline(deadline);
    {
      const MutexLock lock(&mu_);
      ++running_;
    }
    grpc::GenericStub& stub = *stubs_[next_.fetch_add(1) % stubs_.size()];
    stub.UnaryCall(&call->context, kUnaryMethod, grpc::StubOptions(), &call->request,
                   &call->response, [this, call](grpc::Status status) { Received(call, status); });
  }

 private:
  struct Call {
    Call(int64_t of, const grpc::Slice& bytes) : number(of), request(&bytes, 1) {}

    const int64_t number;
    grpc::ClientContext context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
  };

  void Received(Call* call, const grpc::Status& status) {
    Answer answer;
    answer.code = status.error_code();
    answer.message = status.error_message();
    if (status.ok()) answer.bytes = &call->response;
    sink_->OnAnswer(call->number, answer);
    delete call;
    const MutexLock lock(&mu_);
    if (--running_ == 0) none_left_.SignalAll();
  }

  CallSink* const sink_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::atomic<uint64_t> next_{0};
  Mutex mu_;
  CondVar none_left_;
  int64_t running_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace

std::unique_ptr<Transport> MakeUnaryTransport(const Channels& channels, CallSink* sink) {
  return std::make_unique<UnaryTransport>(channels, sink);
}

}  // namespace sluice::load
