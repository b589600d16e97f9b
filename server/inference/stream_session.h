// One ModelStreamInfer call: what its reactor, the sinks of its requests and the engine share.
//
// Responses are pulled: while none is being written, the session takes the first sink that has something
// to say, has it make a response of all that it knows, and writes that. So the requests take turns, a
// slow reader gets fewer and longer responses, and what waits is bounded by the requests' replies. At
// most kMaxPipelined requests are in progress, and no other is read while the replies of those that are
// may fill a message of the largest size: then nothing is read until one was answered in full.
//
// A caller that does not take a response for stream_stall_timeout is given up, and cut off when it does
// not take the end of its call for as long again. A stream has one timer at most, which is set when a
// response is written while none runs, and looks again when it meets a later response: writing costs
// no more for it.
//
// The mutex guards everything. reactor_ becomes null when Finish is called, which happens once:
//   * OK when the caller closed its side and every response is written;
//   * CANCELLED or DEADLINE_EXCEEDED in OnCancel or when a write fails: the engine is told to cancel,
//     and the sinks find no reactor. OnCancel must finish, or else Server::Shutdown would hang;
//   * RESOURCE_EXHAUSTED when the caller is given up. It learns that after the response in flight, if
//     it takes that.
// A caller that sends no message in whole while nothing is in progress is left to a TransferWatch,
// which cancels the call: gRPC does not show a message before its last byte, so that one which stopped
// half-way looks like a stream that rests.
//
// Reads and writes that are still in progress then complete and touch nothing but the session, which
// the reactor keeps alive.
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
  StreamSession(Edge* edge, TransferWatch* idle, grpc::CallbackServerContext* context,
                Reactor* reactor)
      : edge_(edge),
        idle_(idle),
        context_(context),
        deadline_(edge->Arrive(*context).rpc_deadline),
        reactor_(reactor) {}

  // From the reactor.
  void Start();
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnCancel();
  void OnDone();

  // From a sink, on the reply thread: it has something to say.
  void Offer(std::shared_ptr<StreamSink> sink);
  // The edge lives as long as there is a reactor: none, no time.
  absl::Duration Pushback();

  void Deliver() override;

 private:
  struct Running {
    RequestId id = 0;  // 0 until Submit returned
    int64_t reply_bytes = 0;
  };

  absl::Status Submit(Ticket ticket, CallFacts arrival, std::string* id);
  void Admitted(Ticket ticket, RequestId id);

  // The sink whose response is to be written next; nullptr when there is none or not yet. It has
  // claimed the write.
  std::shared_ptr<StreamSink> ClaimWrite();
  void WriteNext();
  void StartWrite(const std::shared_ptr<StreamSink>& sink, const StreamSink::Response& response);

  void Expect(Ticket ticket, int64_t reply_bytes);
  void Answered(Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReadMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A rest begins when nothing but a message of the caller can go on with the stream.
  void RestIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndRest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishIfComplete() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Cancels what is in progress. Says with which status the call ends if it is the caller who left.
  absl::Status CancelAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // On the reply thread, at each delivery: acts when the timer has run down.
  void Watch();
  void WatchUntil(MonoTime time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUpStalled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Edge* const edge_;
  TransferWatch* const idle_;
  grpc::CallbackServerContext* const context_;
  const MonoTime deadline_;
  grpc::ByteBuffer incoming_;  // belongs to the read in progress
  grpc::ByteBuffer outgoing_;  // belongs to the write in progress

  Mutex mu_;
  Reactor* reactor_ ABSL_GUARDED_BY(mu_);  // nullptr once Finish was called
  // Requests whose last response was not begun.
  absl::flat_hash_map<Ticket, Running> running_ ABSL_GUARDED_BY(mu_);
  int64_t reply_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of all these, at most
  std::deque<std::shared_ptr<StreamSink>> ready_ ABSL_GUARDED_BY(mu_);
  Ticket next_ticket_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;  // or about to
  // Since when the response in flight waits for the caller, and when to look whether it still does.
  std::optional<MonoTime> writing_since_ ABSL_GUARDED_BY(mu_);
  std::optional<MonoTime> watch_until_ ABSL_GUARDED_BY(mu_);
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;  // and given up for that
  bool done_ ABSL_GUARDED_BY(mu_) = false;  // gRPC is through with the call: there is no context_
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool resting_ ABSL_GUARDED_BY(mu_) = false;
  TransferWatch::Wait rest_ ABSL_GUARDED_BY(mu_);
  bool half_closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace sluice
