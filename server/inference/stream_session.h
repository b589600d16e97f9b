// One ModelStreamInfer call, shared by its reactor, the sinks of its requests and the engine.
//
// Responses are pulled: while none is being written, the session takes the first sink with results,
// has it make a response of all of them, and writes that. So the requests take turns, a slow reader
// gets fewer and longer responses, and the results that wait are bounded by the requests' replies.
// At most kMaxPipelined requests are in progress. No other is read while the replies of those may
// fill a message of the largest size, until one of them was answered in full.
//
// A caller that does not take a response for stream_stall_timeout is given up, and cut off when it
// does not take the end of its call for as long again. A stream has one timer at most. It is set
// when a response is written while none runs, and set again when it runs down during a later
// response, so that a write costs no timer.
//
// The mutex guards everything. reactor_ becomes null when Finish is called, which happens once:
//   * OK when the caller closed its side and every response is written;
//   * CANCELLED or DEADLINE_EXCEEDED in OnCancel or when a write fails: the engine is told to
//     cancel, and the sinks find no reactor. OnCancel must finish, or else Server::Shutdown would
//     hang;
//   * RESOURCE_EXHAUSTED when the caller is given up. It learns that after the response in flight,
//     if it takes that.
// A caller that sends no message in whole while nothing is in progress is left to a TransferWatch,
// which cancels the call: gRPC does not show a message before its last byte, so that one which
// stopped half-way looks like a stream that rests.
//
// Reads and writes that are still in progress then complete and touch nothing but the session,
// which the reactor keeps alive.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/calls/reply_thread.h"
#include "server/inference/frontend.h"
#include "server/inference/stream_sink.h"
#include "server/net/grpc_1_51/transfer_watch.h"

namespace sluice {

inline constexpr int kMaxPipelined = 64;

class StreamSession final : public Delivery, public std::enable_shared_from_this<StreamSession> {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
  using Ticket = StreamSink::Ticket;

  // Neither is owned; `idle` outlives the call.
  StreamSession(InferenceFrontend* frontend, TransferWatch* idle,
                grpc::CallbackServerContext* context, Reactor* reactor)
      : frontend_(frontend),
        idle_(idle),
        context_(context),
        deadline_(frontend->Arrive(*context).rpc_deadline),
        reactor_(reactor) {}

  // Called by the reactor.
  void Start();
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnCancel();
  void OnDone();

  // Called by a sink that has results, on the reply thread.
  void Offer(std::shared_ptr<StreamSink> sink);
  // Returns 0 if there is no reactor: the frontend lives no longer than that.
  absl::Duration Pushback();

  void Deliver() override;

 private:
  struct Running {
    RequestId id = 0;  // 0 until Submit returned
    int64_t reply_bytes = 0;
  };

  absl::Status Submit(Ticket ticket, CallContext call, std::string* id);
  void Admitted(Ticket ticket, RequestId id);

  // Claims the write and returns the sink whose response is written next; nullptr if there is none
  // or if a write is in progress.
  std::shared_ptr<StreamSink> ClaimWrite();
  void WriteNext();
  void StartWrite(const std::shared_ptr<StreamSink>& sink, const StreamSink::Response& response);

  void Expect(Ticket ticket, int64_t reply_bytes);
  void Answered(Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReadMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Begins a rest if the stream can go on only with a message of the caller.
  void RestIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndRest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishIfComplete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Cancels the requests in progress. Returns the status with which the call ends if the caller
  // left.
  absl::Status CancelAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Acts if the timer has run down; called on the reply thread, at each delivery.
  void Watch();
  void WatchUntil(MonoTime time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUpStalled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  InferenceFrontend* const frontend_;
  TransferWatch* const idle_;
  grpc::CallbackServerContext* const context_;
  const MonoTime deadline_;
  grpc::ByteBuffer incoming_;  // belongs to the read in progress
  grpc::ByteBuffer outgoing_;  // belongs to the write in progress

  Mutex mu_;
  Reactor* reactor_ ABSL_GUARDED_BY(mu_);  // nullptr once Finish was called
  // The requests whose last response was not begun.
  absl::flat_hash_map<Ticket, Running> running_ ABSL_GUARDED_BY(mu_);
  int64_t reply_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // that all their replies may have
  std::deque<std::shared_ptr<StreamSink>> ready_ ABSL_GUARDED_BY(mu_);
  Ticket next_ticket_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;  // a write is in progress, or claimed
  // Since when the response in flight waits for the caller, and when to look whether it still does.
  std::optional<MonoTime> writing_since_ ABSL_GUARDED_BY(mu_);
  std::optional<MonoTime> watch_until_ ABSL_GUARDED_BY(mu_);
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;  // the caller was given up
  bool done_ ABSL_GUARDED_BY(mu_) = false;     // gRPC has ended the call: there is no context_
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool resting_ ABSL_GUARDED_BY(mu_) = false;
  TransferWatch::Wait rest_ ABSL_GUARDED_BY(mu_);
  bool half_closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace sluice
