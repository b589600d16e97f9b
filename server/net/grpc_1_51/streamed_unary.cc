#include "server/net/grpc_1_51/streamed_unary.h"

#include <atomic>
#include <functional>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "grpc/grpc.h"
#include "grpcpp/impl/codegen/call_op_set.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "server/common/callback_times.h"
#include "server/common/peer.h"
#include "server/common/status.h"
#include "server/net/grpc_1_51/call_guard.h"
#include "server/net/grpc_1_51/version.h"

namespace sluice {
namespace {

class StreamedUnary;

}  // namespace
}  // namespace sluice

// Access to the parts of a call's context that are reserved for gRPC's own handlers. All
// specialisations of CallbackUnaryHandler are friends of a context. This one exists only for the
// access and handles nothing.
template <>
class grpc::internal::CallbackUnaryHandler<sluice::StreamedUnary, grpc::ByteBuffer> {
 public:
  // Makes `done` run once the call is over for the peer, and reports a cancellation to
  // `controller`.
  static void AwaitCompletion(grpc::CallbackServerContext* context, Call* call,
                              std::function<void(bool)> done, ServerCallbackCall* controller) {
    context->BeginCompletionOp(call, std::move(done), controller);
  }
  static void NoticeFailedRead(grpc::CallbackServerContext* context) {
    context->MaybeMarkCancelledOnRead();
  }
  // Adds initial metadata, trailing metadata and the status to the operations that end the call.
  template <typename Ops>
  static void AddEnd(grpc::CallbackServerContext* context, const grpc::Status& status, Ops* ops) {
    ops->SendInitialMetadata(&context->initial_metadata_, context->initial_metadata_flags());
    context->sent_initial_metadata_ = true;
    ops->ServerSendStatus(&context->trailing_metadata_, status);
  }
  static void Release(grpc::CallbackServerContext* context) {
    if (context->context_allocator() != nullptr) context->context_allocator()->Release(context);
  }
};

namespace sluice {
namespace {

using Bytes = grpc::ByteBuffer;
using Event = CallbackTimes::Event;
using Context = grpc::internal::CallbackUnaryHandler<StreamedUnary, Bytes>;
using grpc::internal::CallbackWithSuccessTag;
using grpc::internal::CallOpRecvMessage;
using grpc::internal::CallOpSendInitialMetadata;
using grpc::internal::CallOpSendMessage;
using grpc::internal::CallOpServerSendStatus;
using grpc::internal::CallOpSet;
using grpc::internal::MethodHandler;

// The data that a method shares with its calls.
struct Method {
  const char* name;
  UnaryHandler handler;
  TransferWatch* watch;
  const Callers* callers;
};

// Forwards a cancellation on a thread of gRPC's executor.
class CancelRelay final : public grpc::internal::ServerReactor {
 public:
  CancelRelay(const char* method, grpc::ServerUnaryReactor* const* unary)
      : method_(method), unary_(unary) {}
  void OnCancel() override {
    const CallbackTimes::Scope scope(method_, Event::kCancelled);
    (*unary_)->OnCancel();
  }
  void OnDone() override {}

 private:
  const char* const method_;
  grpc::ServerUnaryReactor* const* const unary_;
};

// A batch operation that ends when the call is over for the peer.
class CallOpAwaitPeer {
 public:
  void AwaitPeer() { wanted_ = true; }

 protected:
  void AddOp(grpc_op* ops, size_t* count) {
    if (!wanted_) return;
    grpc_op* const op = &ops[(*count)++];
    *op = {};
    op->op = GRPC_OP_RECV_CLOSE_ON_SERVER;
    op->data.recv_close_on_server.cancelled = &cancelled_;
  }
  void FinishOp(bool* /*status*/) {}
  void SetInterceptionHookPoint(grpc::internal::InterceptorBatchMethodsImpl* /*methods*/) {}
  void SetFinishInterceptionHookPoint(grpc::internal::InterceptorBatchMethodsImpl* /*methods*/) {}
  void SetHijackingState(grpc::internal::InterceptorBatchMethodsImpl* /*methods*/) {}

 private:
  bool wanted_ = false;
  int cancelled_ = 0;
};

// A call, in the memory of gRPC's call. It is done when it has started, Finish has been called, and
// the call is over for the peer. The thread of the last of these events ends it, which takes less
// time than notifying another thread, as gRPC's stream handlers always do.
//
// A cancellation is reported to the handler's reactor after the handler has returned, as gRPC
// promises, unless the call has already been answered. Ending an answered call, such as most
// refusals, takes one batch of operations. Otherwise one batch reports a cancellation while the
// answer is made, and another batch sends the answer.
class StreamedUnary final : public grpc::ServerCallbackUnary {
 public:
  static void Start(const Method& method, const MethodHandler::HandlerParameter& param) {
    grpc_call* const call = param.call->call();
    grpc_call_ref(call);
    void* const memory =
        grpc::g_core_codegen_interface->grpc_call_arena_alloc(call, sizeof(StreamedUnary));
    (new (memory) StreamedUnary(method, param))->Start();
  }

  void Finish(grpc::Status status) override {
    method_.watch->BeginOutgoing(context_->c_call(), "the caller did not read the answer",
                                 static_cast<int64_t>(response_.Length()), &wait_);
    Context::AddEnd(context_, status, &finish_);
    if (status.ok()) SLUICE_CHECK(finish_.SendMessagePtr(&response_).ok());
    const bool await_peer = !awaits_peer_.exchange(true);
    if (await_peer) finish_.AwaitPeer();
    const auto done = [this, await_peer](bool) {
      if (await_peer) Done();
      Done();
    };
    finish_tag_.Set(call_.call(), done, &finish_, /*can_inline=*/true);
    finish_.set_core_cq_tag(&finish_tag_);
    call_.PerformOps(&finish_);  // the call may be gone from here on
  }
  // No handler sends its initial metadata before its answer.
  void SendInitialMetadata() override { SLUICE_CHECK(false); }

 private:
  StreamedUnary(const Method& method, const MethodHandler::HandlerParameter& param)
      : method_(method),
        context_(static_cast<grpc::CallbackServerContext*>(param.server_context)),
        call_(*param.call),
        await_next_call_(param.call_requester),
        relay_(method.name, &unary_) {}

  void Start() {
    const CallbackTimes::Scope scope(method_.name, Event::kBegin);
    if (absl::Status refused = CallGuard::Check(*context_); !refused.ok()) {
      Finish(FinishStatus(refused, {}, context_));
      return Done();
    }
    if (method_.callers != nullptr) {
      absl::StatusOr<std::shared_ptr<const Caller>> caller = method_.callers->Identify(*context_);
      if (!caller.ok()) {
        Finish(FinishStatus(caller.status(), {}, context_));
        return Done();
      }
      caller_ = *std::move(caller);
    }
    method_.watch->BeginIncoming(
        context_->c_call(), "the call's message did not arrive",
        {.address = AddressOf(context_->peer()), .caller = caller_ ? caller_->name() : ""}, &wait_);
    read_.RecvMessage(&request_);
    read_tag_.Set(
        call_.call(), [this](bool ok) { HandleMessage(ok); }, &read_,
        /*can_inline=*/false);
    read_.set_core_cq_tag(&read_tag_);
    call_.PerformOps(&read_);
  }

  void HandleMessage(bool ok) {
    const CallbackTimes::Scope scope(method_.name, Event::kMessage);
    method_.watch->End(&wait_);
    if (!ok) {
      Context::NoticeFailedRead(context_);
      Finish(FinishStatus(absl::InvalidArgumentError("the call ended without a message"), {},
                          context_));
      return Done();
    }
    unary_ = method_.handler(context_, &request_, &response_, caller_);
    request_.Clear();     // the handler has read it or has copied references
    BindReactor(unary_);  // finishes the call if it has been answered
    if (!awaits_peer_.exchange(true)) {
      Context::AwaitCompletion(
          context_, &call_, [this](bool) { Done(); }, this);
    }
    MaybeCallOnCancel(&relay_);
    Done();
  }

  // Counts one of the three conditions for the call to be done.
  void Done() { MaybeDone(/*inline_ondone=*/true); }

  void CallOnDone() override {
    const CallbackTimes::Scope scope(method_.name, Event::kEnd);
    method_.watch->End(&wait_);
    if (unary_ != nullptr) unary_->OnDone();
    grpc_call* const call = call_.call();
    const std::function<void()> await_next_call = std::move(await_next_call_);
    Context::Release(context_);
    this->~StreamedUnary();
    grpc_call_unref(call);
    await_next_call();
  }

  grpc::internal::ServerReactor* reactor() override { return &relay_; }

  const Method& method_;
  grpc::CallbackServerContext* const context_;
  grpc::internal::Call call_;
  std::function<void()> await_next_call_;
  std::shared_ptr<const Caller> caller_;  // nullptr if callers are not identified
  TransferWatch::Wait wait_;
  Bytes request_;
  Bytes response_;
  grpc::ServerUnaryReactor* unary_ = nullptr;  // written by HandleMessage
  CancelRelay relay_;
  CallOpSet<CallOpRecvMessage<Bytes>> read_;
  CallbackWithSuccessTag read_tag_;
  std::atomic<bool> awaits_peer_ = false;  // whether an operation that awaits the peer has started
  CallOpSet<CallOpSendInitialMetadata, CallOpSendMessage, CallOpServerSendStatus, CallOpAwaitPeer>
      finish_;
  CallbackWithSuccessTag finish_tag_;
};

// A stream that ends before any message is read.
class RefusedStream final : public StreamedUnaryService::Reactor {
 public:
  explicit RefusedStream(grpc::Status status) { Finish(std::move(status)); }
  void OnDone() override { delete this; }
};

// gRPC treats the method as a stream and therefore calls this when the headers of a call have
// arrived.
class StreamedUnaryHandler final : public MethodHandler {
 public:
  explicit StreamedUnaryHandler(Method method) : method_(std::move(method)) {}

  void RunHandler(const HandlerParameter& param) override { StreamedUnary::Start(method_, param); }

 private:
  const Method method_;
};

}  // namespace

StreamedUnaryService::StreamedUnaryService(const char* full_name, TransferWatch* watch,
                                           const Callers* callers)
    : descriptor_(google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(full_name)),
      watch_(watch),
      callers_(callers) {
  SLUICE_CHECK(descriptor_ != nullptr);
}

void StreamedUnaryService::Stream(const char* method, UnaryHandler handler) {
  Add(method,
      std::make_unique<StreamedUnaryHandler>(Method{
          .name = method, .handler = std::move(handler), .watch = watch_, .callers = callers_}));
}

void StreamedUnaryService::StreamAnswers(
    const char* method, std::function<Reactor*(grpc::CallbackServerContext*)> make) {
  Add(method, std::make_unique<grpc::internal::CallbackBidiHandler<Bytes, Bytes>>(
                  [method, make = std::move(make)](grpc::CallbackServerContext* context) {
                    const CallbackTimes::Scope scope(method, Event::kBegin);
                    absl::Status refused = CallGuard::Check(*context);
                    return refused.ok() ? make(context) : RefuseStream(refused, context);
                  }));
}

StreamedUnaryService::Reactor* StreamedUnaryService::RefuseStream(
    const absl::Status& status, grpc::CallbackServerContext* context) {
  return new RefusedStream(FinishStatus(status, {}, context));
}

void StreamedUnaryService::Add(const char* method,
                               std::unique_ptr<grpc::internal::MethodHandler> handler) {
  using grpc::internal::RpcServiceMethod;
  SLUICE_CHECK(descriptor_->FindMethodByName(method) != nullptr);
  const std::string& path =
      paths_.emplace_back(absl::StrCat("/", descriptor_->full_name(), "/", method));
  auto added = std::make_unique<RpcServiceMethod>(
      path.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, handler.release());
  added->SetServerApiType(RpcServiceMethod::ApiType::RAW_CALL_BACK);
  AddMethod(added.release());
}

}  // namespace sluice
