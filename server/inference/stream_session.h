// One ModelStreamInfer call, shared by its reactor, the sinks of its requests and the engine.
//
// Responses are pulled: if none is being written, the session takes the first sink with results,
// makes it build a response from all of them, and writes that response. Requests therefore take
// turns, a slow reader gets fewer and longer responses, and the waiting results are limited by the
// size of the requests' replies. At most kMaxPipelined requests are in progress. If their replies
// together may fill a message of the largest size, no other request is read until one of them has
// been answered completely.
//
// If the caller does not read a response within stream_stall_timeout, the session gives up the
// stream. If the caller then does not read the end of its call within the same time, the call is
// cut off. A stream has at most one timer. It is set when a response is written and no timer is
// running. If it expires during a later response, it is set again, so that a write does not need
// its own timer.
//
// The mutex guards everything. reactor_ becomes null when Finish is called, which happens once,
// with one of these statuses:
//   * OK when the caller has closed its side and every response is written;
//   * CANCELLED or DEADLINE_EXCEEDED in OnCancel, or when a write fails: the session cancels the
//     requests in the engine, and the sinks find no reactor. OnCancel must call Finish, or
//     Server::Shutdown would hang;
//   * RESOURCE_EXHAUSTED when the stream is given up. The caller receives it after the response in
//     flight, if it reads that response.
// While no request is in progress, a TransferWatch cancels the call of a caller that does not send
// a whole message in time. gRPC does not show a message before its last byte, so a message that
// stopped half-way looks like an idle stream.
//
// Reads and writes that are still in progress at Finish complete later. They use only the session,
// which the reactor keeps alive.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/calls/reply_thread.h"
#include "server/common/peer.h"
#include "server/inference/frontend.h"
#include "server/inference/stream_sink.h"
#include "server/net/grpc_1_51/transfer_watch.h"

namespace sluice {

inline constexpr int kMaxPipelined = 64;

class StreamSession final : public Delivery, public std::enable_shared_from_this<StreamSession> {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
  using Ticket = StreamSink::Ticket;

  // The parts of the daemon that a session uses. They are not owned; StartStreamInfer states their
  // lifetimes.
  struct Parts {
    InferenceFrontend* frontend;
    const Callers* callers;  // nullptr if callers are not identified
    TransferWatch* idle;
  };
  // `caller` is the name of the caller that opened the stream, or empty.
  StreamSession(const Parts& parts, std::string caller, grpc::CallbackServerContext* context,
                Reactor* reactor)
      : frontend_(parts.frontend),
        callers_(parts.callers),
        idle_(parts.idle),
        context_(context),
        address_(AddressOf(context->peer())),
        caller_(std::move(caller)),
        replies_(frontend_->replies()->OfNextCall()),
        deadline_(frontend_->Arrive(*context).rpc_deadline),
        reactor_(reactor) {}

  // Called by the reactor.
  void Start();
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnCancel();
  void OnDone();

  // Adds a sink that has results; the sink calls this on the reply thread.
  void Offer(std::shared_ptr<StreamSink> sink);
  // Returns the push-back for a refused request, or 0 if there is no reactor, because the frontend
  // may then have been destroyed.
  absl::Duration Pushback();

  void Deliver() override;

 private:
  struct Running {
    RequestId id = 0;  // 0 until Submit has returned
    int64_t reply_bytes = 0;
  };

  // Counts its errors, see Callers::Identify.
  absl::Status Identify(CallContext* call);
  // Parses, validates and submits the message that was read, then reads the next one.
  void Prepare(Ticket ticket, CallContext call);
  // Answers the message that was read with an error, then reads the next one.
  void RefuseRead(Ticket ticket, const absl::Status& status, std::string id);
  void EndRead();
  absl::Status Submit(Ticket ticket, CallContext call, std::string* id);
  void Admitted(Ticket ticket, RequestId id);

  // Claims the write and returns the sink whose response is written next. Returns nullptr if no
  // sink has results or if a write is in progress.
  std::shared_ptr<StreamSink> ClaimWrite();
  void WriteNext();
  void StartWrite(const std::shared_ptr<StreamSink>& sink, const StreamSink::Response& response);

  void Expect(Ticket ticket, int64_t reply_bytes);
  void Answered(Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReadMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Starts the idle wait if only a message from the caller can continue the stream.
  void RestIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndRest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishIfComplete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Cancels the requests in progress. Returns the final status for a caller that has left.
  absl::Status CancelAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Checks whether the caller has stalled if the timer has expired. The reply thread calls this at
  // each delivery.
  void Watch();
  void WatchUntil(MonoTime time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUpStalled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  InferenceFrontend* const frontend_;
  const Callers* const callers_;
  TransferWatch* const idle_;
  grpc::CallbackServerContext* const context_;
  const std::string address_;
  const std::string caller_;
  ReplyThread* const replies_;  // also used by its requests
  const MonoTime deadline_;
  grpc::ByteBuffer incoming_;  // belongs to the read in progress
  grpc::ByteBuffer outgoing_;  // belongs to the write in progress

  Mutex mu_;
  Reactor* reactor_ ABSL_GUARDED_BY(mu_);  // nullptr once Finish has been called
  // The requests whose last response has not been started.
  absl::flat_hash_map<Ticket, Running> running_ ABSL_GUARDED_BY(mu_);
  int64_t reply_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // the largest total size of their replies
  std::deque<std::shared_ptr<StreamSink>> ready_ ABSL_GUARDED_BY(mu_);
  Ticket next_ticket_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;  // a write is in progress or claimed
  // Owns the memory of the response in flight.
  std::shared_ptr<StreamSink> writing_sink_ ABSL_GUARDED_BY(mu_);
  // The time when the write of the response in flight started, and the time of the next check.
  std::optional<MonoTime> writing_since_ ABSL_GUARDED_BY(mu_);
  std::optional<MonoTime> watch_until_ ABSL_GUARDED_BY(mu_);
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;  // the caller did not read a response in time
  bool done_ ABSL_GUARDED_BY(mu_) = false;     // gRPC has ended the call, so context_ is invalid
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool resting_ ABSL_GUARDED_BY(mu_) = false;
  TransferWatch::Wait rest_ ABSL_GUARDED_BY(mu_);
  bool half_closed_ ABSL_GUARDED_BY(mu_) = false;
};

// Handles a call of the raw method ModelStreamInfer. Never blocks. The parts outlive the call.
StreamSession::Reactor* StartStreamInfer(const StreamSession::Parts& parts, std::string caller,
                                         grpc::CallbackServerContext* context);

}  // namespace sluice
