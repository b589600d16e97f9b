#include "server/unary_infer.h"

#include <atomic>
#include <memory>
#include <utility>

#include "server/infer_sink.h"
#include "server/status.h"
#include "server/wire.h"

namespace sluice {
namespace {

class UnaryInfer;

class UnarySink final : public InferSink {
 public:
  UnarySink(ReplySpec spec, ReplyThread* replies, UnaryInfer* call)
      : InferSink(std::move(spec), replies), call_(call) {}

  // The right to call Finish, or nullptr when somebody else has it.
  UnaryInfer* Claim() { return call_.exchange(nullptr); }

 private:
  void Answer(const absl::Status& status, inference::ModelInferResponse response) override;

  std::atomic<UnaryInfer*> call_;
};

class UnaryInfer final : public grpc::ServerUnaryReactor {
 public:
  UnaryInfer(Edge* edge, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : edge_(edge), context_(context), response_(response) {}

  // gRPC calls OnCancel only after the handler returned, so nothing here races with it.
  void Start(const grpc::ByteBuffer& bytes) {
    const CallFacts arrival = edge_->Arrive(*context_);
    deadline_ = arrival.rpc_deadline;
    inference::ModelInferRequest message;
    if (absl::Status status = Parse(bytes, &message); !status.ok()) {
      edge_->Refuse(status);
      return End(status);
    }
    const auto make_sink = [this](ReplySpec spec) {
      sink_ = std::make_shared<UnarySink>(std::move(spec), edge_->replies(), this);
      return sink_;
    };
    absl::StatusOr<RequestId> id = edge_->Submit(message, arrival, make_sink);
    if (!id.ok()) {
      sink_.reset();
      return End(id.status());
    }
    id_ = *id;
  }

  // For the one who claimed the call.
  void End(const absl::Status& status) {
    const bool refused = status.code() == absl::StatusCode::kResourceExhausted;
    const absl::Duration pushback = refused ? edge_->Pushback() : absl::ZeroDuration();
    Finish(FinishStatus(status, pushback, context_));
  }

  grpc::ByteBuffer* response() { return response_; }

  void OnCancel() override {
    if (sink_ == nullptr) return;  // refused: finished in Start
    const absl::Status status = edge_->GiveUp(id_, deadline_);
    if (UnaryInfer* call = sink_->Claim()) call->End(status);
  }

  void OnDone() override { delete this; }

 private:
  Edge* const edge_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  // Written by Start only.
  std::shared_ptr<UnarySink> sink_;
  RequestId id_ = 0;
  MonoTime deadline_ = MonoTime::max();
};

void UnarySink::Answer(const absl::Status& status, inference::ModelInferResponse response) {
  UnaryInfer* call = Claim();
  if (call == nullptr) return;
  call->End(status.ok() ? Serialize(response, call->response()) : status);
}

}  // namespace

grpc::ServerUnaryReactor* StartUnaryInfer(Edge* edge, grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) {
  auto* call = new UnaryInfer(edge, context, response);
  call->Start(*request);
  return call;
}

}  // namespace sluice
