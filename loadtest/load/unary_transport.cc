#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/container/flat_hash_set.h"
#include "base/mutex.h"
#include "loadtest/load/transport.h"

namespace sluice::load {
namespace {

constexpr char kUnaryMethod[] = "/inference.GRPCInferenceService/ModelInfer";

class UnaryTransport final : public Transport {
 public:
  UnaryTransport(const Channels& channels, SystemTime until, CallSink* sink) : sink_(sink) {
    for (const auto& channel : channels) {
      stubs_.push_back(std::make_unique<grpc::GenericStub>(channel));
    }
    const auto left = until - std::chrono::system_clock::now();
    end_ = std::thread([this, at = std::chrono::steady_clock::now() + left] { CancelAllAt(at); });
  }

  ~UnaryTransport() override {
    {
      const MutexLock lock(&mu_);
      while (!running_.empty()) changed_.Wait(&mu_);
      stopping_ = true;
      changed_.SignalAll();
    }
    end_.join();
  }

  void Send(int64_t number, const grpc::Slice& request,
            std::optional<SystemTime> deadline) override {
    auto* call = new Call(number, request);
    if (deadline.has_value()) call->context.set_deadline(*deadline);
    {
      const MutexLock lock(&mu_);
      running_.insert(call);
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
    {
      const MutexLock lock(&mu_);
      if (ended_ && answer.code == grpc::StatusCode::CANCELLED) {
        answer = {.code = grpc::StatusCode::DEADLINE_EXCEEDED, .message = "the run has ended"};
      }
    }
    sink_->OnAnswer(call->number, answer);
    const MutexLock lock(&mu_);
    running_.erase(call);
    delete call;
    if (running_.empty()) changed_.SignalAll();
  }

  void CancelAllAt(std::chrono::steady_clock::time_point at) {
    const MutexLock lock(&mu_);
    while (!stopping_ && std::chrono::steady_clock::now() < at) changed_.WaitUntil(&mu_, at);
    ended_ = true;
    for (Call* call : running_) call->context.TryCancel();
  }

  CallSink* const sink_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
  std::atomic<uint64_t> next_{0};
  Mutex mu_;
  CondVar changed_;  // no call runs, or stopping_ was set
  absl::flat_hash_set<Call*> running_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // whether the calls were cancelled
  std::thread end_;
};

}  // namespace

std::unique_ptr<Transport> MakeUnaryTransport(const Channels& channels, SystemTime until,
                                              CallSink* sink) {
  return std::make_unique<UnaryTransport>(channels, until, sink);
}

}  // namespace sluice::load
