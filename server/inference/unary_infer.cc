#include "server/inference/unary_infer.h"

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "server/calls/wire.h"
#include "server/common/status.h"
#include "server/protocol/reply/reply.h"
#include "server/protocol/reply/token_buffer.h"

namespace sluice {
namespace {

// Up to this many short replies that end together take less time to make than waking another thread
// to make them.
constexpr int64_t kFewTogether = 4;
constexpr int64_t kFewBytes = 16 << 10;

class UnaryInfer;

// The sink of a call: prepares the request, collects results on the engine's thread, and answers
// there or on a reply thread. Stays alive until the engine has ended the request, even if the call
// ends first.
class UnarySink final : public Sink,
                        public Delivery,
                        public std::enable_shared_from_this<UnarySink> {
 public:
  UnarySink(InferenceFrontend* frontend, MonoTime deadline, UnaryInfer* call)
      : frontend_(frontend), replies_(frontend->replies()), deadline_(deadline), call_(call) {}

  // Parses, validates and submits the message. Ends the call after an error.
  void Prepare(const grpc::ByteBuffer& bytes, CallContext context);

  void OnTokens(const GeneratedToken* tokens, int count) override {
    tokens_.Append(tokens, count, builder_->spec().request->num_top);
  }

  void OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) override {
    status_ = status;
    reply_ = std::move(reply);
    builder_->set_trace(trace);
    const bool few = trace.ended_together <= kFewTogether && most_bytes_ <= kFewBytes;
    if (few) return Deliver();
    replies_->Post(shared_from_this());
  }

  void Deliver() override;

  // Claims the right to call Finish. Returns nullptr if it has already been claimed.
  UnaryInfer* Claim() { return call_.exchange(nullptr); }
  bool claimed() const { return call_ == nullptr; }

  // Cancels the request, or ensures that it is cancelled as soon as it is submitted. Returns the
  // final status of the call.
  absl::Status GiveUp();

 private:
  absl::StatusOr<RequestId> Submit(const grpc::ByteBuffer& bytes, CallContext context);

  // May be destroyed once the call has been prepared and has ended.
  InferenceFrontend* const frontend_;
  ReplyThreads* const replies_;
  const MonoTime deadline_;
  // These are set before the engine has the sink.
  std::optional<ReplyBuilder> builder_;
  int64_t most_bytes_ = 0;  // of the reply
  MemoryShare unread_;
  TokenBuffer tokens_;
  absl::Status status_;
  Reply reply_;
  std::atomic<UnaryInfer*> call_;

  Mutex mu_;
  RequestId id_ ABSL_GUARDED_BY(mu_) = 0;  // 0 until it was submitted
  bool given_up_ ABSL_GUARDED_BY(mu_) = false;
};

class UnaryInfer final : public grpc::ServerUnaryReactor {
 public:
  UnaryInfer(InferenceFrontend* frontend, grpc::CallbackServerContext* context,
             grpc::ByteBuffer* response)
      : frontend_(frontend), context_(context), response_(response) {}

  // gRPC calls OnCancel only after the handler has returned, so it does not race with this code.
  void Start(const grpc::ByteBuffer& bytes, std::shared_ptr<const Caller> caller) {
    CallContext call = frontend_->Arrive(*context_);
    call.caller = std::move(caller);
    if (absl::Status status = frontend_->Enter(&call); !status.ok()) return End(status);
    if (absl::Status status = frontend_->CheckQueue(bytes, call); !status.ok()) return End(status);
    const auto sink = std::make_shared<UnarySink>(frontend_, call.rpc_deadline, this);
    sink_ = sink;
    if (InferenceFrontend::IsQuick(bytes)) return sink->Prepare(bytes, std::move(call));
    const auto check = [sink] {
      return sink->claimed() ? absl::CancelledError("cancelled by the caller") : absl::OkStatus();
    };
    // From here on, the call and `bytes` may end at any time.
    const absl::Status posted =
        frontend_->PrepareLater(call, check, [sink, bytes, call] { sink->Prepare(bytes, call); });
    if (posted.ok()) return;
    sink->Claim();
    End(posted);
  }

  // Ends the call. Requires that the sink's Claim granted the right to do so, or that there is no
  // sink.
  void End(const absl::Status& status) {
    const bool refused = status.code() == absl::StatusCode::kResourceExhausted;
    const absl::Duration pushback = refused ? frontend_->Pushback() : absl::ZeroDuration();
    Finish(FinishStatus(status, pushback, context_));
  }

  grpc::ByteBuffer* response() { return response_; }
  // Keeps the memory of the answer until gRPC is done with the call.
  void Hold(MemoryShare unread) { unread_ = std::move(unread); }

  void OnCancel() override {
    if (sink_ == nullptr || sink_->claimed()) return;  // the call was refused
    const absl::Status status = sink_->GiveUp();
    if (UnaryInfer* call = sink_->Claim()) call->End(status);
  }

  void OnDone() override { delete this; }

 private:
  InferenceFrontend* const frontend_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  std::shared_ptr<UnarySink> sink_;  // only Start writes it
  MemoryShare unread_;
};

absl::StatusOr<RequestId> UnarySink::Submit(const grpc::ByteBuffer& bytes, CallContext context) {
  inference::ModelInferRequest message;
  MemoryShare parsed;
  SLUICE_RETURN_IF_ERROR(frontend_->Read(bytes, context, &message, &parsed));
  return frontend_->Submit(message, std::move(context), [this](ReplySpec spec, MemoryShare unread) {
    most_bytes_ = spec.max_bytes;
    builder_.emplace(std::move(spec));
    unread_ = std::move(unread);
    return shared_from_this();
  });
}

void UnarySink::Prepare(const grpc::ByteBuffer& bytes, CallContext context) {
  const absl::StatusOr<RequestId> id = Submit(bytes, std::move(context));
  if (!id.ok()) {
    if (UnaryInfer* call = Claim()) call->End(id.status());
    return;
  }
  MutexLock lock(&mu_);
  id_ = *id;
  if (given_up_) frontend_->GiveUp(id_, deadline_).IgnoreError();
}

absl::Status UnarySink::GiveUp() {
  MutexLock lock(&mu_);
  given_up_ = true;
  return frontend_->GiveUp(id_, deadline_);
}

void UnarySink::Deliver() {
  UnaryInfer* call = Claim();
  if (call == nullptr) return;
  if (!status_.ok()) return call->End(status_);
  absl::Status status;
  {
    inference::ModelInferResponse response;
    builder_->Build(tokens_, &reply_, &response);
    // Released before the message is serialised, to hold one copy less. The engine still holds the
    // sink.
    reply_ = Reply();
    tokens_.Clear();
    status = Serialize(response, call->response());
  }
  unread_.Shrink(static_cast<int64_t>(call->response()->Length()));
  call->Hold(std::move(unread_));
  call->End(status);
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
