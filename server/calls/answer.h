// Services whose unary methods take one Protobuf message and return one. Slow methods run on their
// own thread, so that no gRPC thread waits.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "base/reason.h"
#include "base/work_queue.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/calls/wire.h"
#include "server/common/status.h"
#include "server/net/grpc_1_51/streamed_unary.h"

namespace sluice {

// The push-back for a caller that is refused because too many calls are already waiting.
inline constexpr absl::Duration kBusyPushback = absl::Seconds(1);

// A call that waits for its work. The thread that claims the ticket finishes the call: the thread
// that completes the work, or the thread that handles the caller's cancellation.
template <typename Request, typename Response>
class LateAnswer final : public grpc::ServerUnaryReactor {
 public:
  using Work = std::function<absl::Status(const Request&, Response*)>;

  LateAnswer(grpc::CallbackServerContext* context, grpc::ByteBuffer* bytes)
      : context_(context), bytes_(bytes) {}

  void Start(Request request, JobQueue* thread, Work work) {
    // From here on, the call and this object may end at any time.
    const std::shared_ptr<Ticket> ticket = ticket_;
    const bool posted =
        thread->Post([ticket, request = std::move(request), work = std::move(work)] {
          if (ticket->load() == nullptr) return;  // the caller cancelled while the call waited
          Response response;
          const absl::Status status = work(request, &response);
          if (LateAnswer* call = ticket->exchange(nullptr)) call->Succeed(status, response);
        });
    if (!posted)
      Refuse(ReasonError(Reason::kTooBusy,
                         "too many calls of this kind are already waiting; retry later"));
  }

  void Refuse(const absl::Status& status) {
    ticket_->store(nullptr);
    End(status);
  }

  void OnCancel() override {
    if (LateAnswer* call = ticket_->exchange(nullptr)) call->End(absl::CancelledError("given up"));
  }
  void OnDone() override { delete this; }

 private:
  using Ticket = std::atomic<LateAnswer*>;

  void Succeed(const absl::Status& status, const Response& response) {
    End(status.ok() ? Serialize(response, bytes_) : status);
  }
  void End(const absl::Status& status) { Finish(FinishStatus(status, kBusyPushback, context_)); }

  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const bytes_;
  const std::shared_ptr<Ticket> ticket_ = std::make_shared<Ticket>(this);
};

// A service whose methods take and return messages.
class AnsweringService : public StreamedUnaryService {
 protected:
  using StreamedUnaryService::StreamedUnaryService;

  // Adds a method that answers at once: it parses the request, calls handle(request, &response),
  // and answers with the response or the error.
  template <typename Request, typename Response>
  void Answer(const char* method, std::function<absl::Status(const Request&, Response*)> handle) {
    Stream(method, [handle = std::move(handle)](auto* context, const auto* request, auto* response,
                                                const auto&) {
      grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
      Request message;
      Response answer;
      absl::Status status = Parse(*request, &message);
      if (status.ok()) status = handle(message, &answer);
      if (status.ok()) status = Serialize(answer, response);
      reactor->Finish(FinishStatus(status, absl::ZeroDuration(), context));
      return reactor;
    });
  }

  // Adds a method that makes `thread` call work(request, &response). It answers at once if `admit`
  // returns an error, or with ResourceExhausted if too much work waits for the thread. Work that
  // has started continues after a cancellation, so `work` must not use the service.
  template <typename Request, typename Response>
  void AnswerLater(const char* method, std::function<absl::Status()> admit, JobQueue* thread,
                   typename LateAnswer<Request, Response>::Work work) {
    Stream(method, [admit = std::move(admit), thread, work = std::move(work)](
                       auto* context, const auto* request, auto* response, const auto&) {
      auto* call = new LateAnswer<Request, Response>(context, response);
      Request message;
      absl::Status status = Parse(*request, &message);
      if (status.ok()) status = admit();
      if (status.ok()) {
        call->Start(std::move(message), thread, work);
      } else {
        call->Refuse(status);
      }
      return call;
    });
  }
};

}  // namespace sluice
