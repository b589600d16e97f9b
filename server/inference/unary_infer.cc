#include "server/inference/unary_infer.h"

#include <atomic>
#include <memory>
#include <utility>

#include "server/calls/wire.h"
#include "server/common/status.h"
#include "server/protocol/reply.h"
#include "server/protocol/token_buffer.h"

namespace sluice {
namespace {

class UnaryInfer;

// The sink of a call: collects results on the engine's thread and answers on the reply thread.
class UnarySink final : public Sink,
                        public Delivery,
                        public std::enable_shared_from_this<UnarySink> {
 public:
  UnarySink(ReplySpec spec, ReplyThread* replies, UnaryInfer* call)
      : builder_(std::move(spec)), replies_(replies), call_(call) {}

  void OnTokens(const GeneratedToken* tokens, int count) override {
    tokens_.Append(tokens, count, builder_.spec().request->num_top);
  }

  void OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) override {
    status_ = status;
    reply_ = std::move(reply);
    replies_->Post(shared_from_this());
  }

  void Deliver() override;

  // Claims the right to call Finish. Returns nullptr if it has been claimed already.
  UnaryInfer* Claim() { return call_.exchange(nullptr); }

 private:
  ReplyBuilder builder_;
  ReplyThread* const replies_;
  TokenBuffer tokens_;
  absl::Status status_;
  Reply reply_;
  std::atomic<UnaryInfer*> call_;
};

class UnaryInfer final : public grpc::ServerUnaryReactor {
 public:
  UnaryInfer(InferenceFrontend* frontend, grpc::CallbackServerContext* context,
             grpc::ByteBuffer* response)
      : frontend_(frontend), context_(context), response_(response) {}

  // Parses, validates and submits the request. gRPC calls OnCancel only after the handler has
  // returned, so nothing here races with it.
  void Start(const grpc::ByteBuffer& bytes, std::shared_ptr<const Caller> caller) {
    CallContext call = frontend_->Arrive(*context_);
    call.caller = std::move(caller);
    deadline_ = call.rpc_deadline;
    if (absl::Status status = frontend_->Enter(call); !status.ok()) return End(status);
    inference::ModelInferRequest message;
    if (absl::Status status = Parse(bytes, &message); !status.ok()) {
      frontend_->Refuse(status);
      return End(status);
    }
    const auto make_sink = [this](ReplySpec spec) {
      sink_ = std::make_shared<UnarySink>(std::move(spec), frontend_->replies(), this);
      return sink_;
    };
    absl::StatusOr<RequestId> id = frontend_->Submit(message, std::move(call), make_sink);
    if (!id.ok()) {
      sink_.reset();
      return End(id.status());
    }
    id_ = *id;
  }

  // Ends the call. Requires that the sink's Claim granted the right to do so, or that there is no
  // sink.
  void End(const absl::Status& status) {
    const bool refused = status.code() == absl::StatusCode::kResourceExhausted;
    const absl::Duration pushback = refused ? frontend_->Pushback() : absl::ZeroDuration();
    Finish(FinishStatus(status, pushback, context_));
  }

  grpc::ByteBuffer* response() { return response_; }

  void OnCancel() override {
    if (sink_ == nullptr) return;  // the call was refused and finished in Start
    const absl::Status status = frontend_->GiveUp(id_, deadline_);
    if (UnaryInfer* call = sink_->Claim()) call->End(status);
  }

  void OnDone() override { delete this; }

 private:
  InferenceFrontend* const frontend_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  // Only Start writes these.
  std::shared_ptr<UnarySink> sink_;
  RequestId id_ = 0;
  MonoTime deadline_ = MonoTime::max();
};

void UnarySink::Deliver() {
  UnaryInfer* call = Claim();
  if (call == nullptr) return;
  if (!status_.ok()) return call->End(status_);
  inference::ModelInferResponse response;
  builder_.Build(tokens_, &reply_, &response);
  call->End(Serialize(response, call->response()));
}

}  // namespace

grpc::ServerUnaryReactor* StartUnaryInfer(InferenceFrontend* frontend,
                                          grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response,
                                          std::shared_ptr<const Caller> caller) {
  auto* call = new UnaryInfer(frontend, context, response);
  call->Start(*request, std::move(caller));
  return call;
}

}  // namespace sluice
