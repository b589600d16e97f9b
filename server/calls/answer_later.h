// Unary methods whose answers take long. The work runs on a thread of its own, so that no thread of
// gRPC waits. For services whose methods are raw (see wire.h).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "base/work_queue.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/calls/wire.h"
#include "server/common/status.h"

namespace sluice {

// The push-back for a caller that is refused because too many calls wait already.
inline constexpr absl::Duration kBusyPushback = absl::Seconds(1);

// A call that waits for its work. Whichever thread claims the ticket finishes the call: the one
// that completes the work, or the one on which the caller cancels.
template <typename Request, typename Response>
class LateAnswer final : public grpc::ServerUnaryReactor {
 public:
  using Work = std::function<absl::Status(const Request&, Response*)>;

  LateAnswer(grpc::CallbackServerContext* context, grpc::ByteBuffer* bytes)
      : context_(context), bytes_(bytes) {}

  void Start(Request request, JobQueue* thread, Work work) {
    // The call, and this object with it, may end at any time from here on.
    const std::shared_ptr<Ticket> ticket = ticket_;
    const bool posted =
        thread->Post([ticket, request = std::move(request), work = std::move(work)] {
          if (ticket->load() == nullptr) return;  // the caller cancelled while the call waited
          Response response;
          const absl::Status status = work(request, &response);
          if (LateAnswer* call = ticket->exchange(nullptr)) call->Succeed(status, response);
        });
    if (!posted) Refuse(ReasonError(Reason::kTooBusy, "too many calls of this kind wait"));
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

// Parses the message and makes `thread` call work(request, &response), which returns absl::Status.
// Answers at once if `admitted` is an error, or with ResourceExhausted if too much work waits for
// the thread. A cancellation does not end work that has begun.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* AnswerLater(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer& request, grpc::ByteBuffer* response,
                                      const absl::Status& admitted, JobQueue* thread,
                                      typename LateAnswer<Request, Response>::Work work) {
  auto* call = new LateAnswer<Request, Response>(context, response);
  Request message;
  absl::Status status = Parse(request, &message);
  if (status.ok()) status = admitted;
  if (status.ok()) {
    call->Start(std::move(message), thread, std::move(work));
  } else {
    call->Refuse(status);
  }
  return call;
}

}  // namespace sluice
