// The sink of one request of a stream. It collects results on the engine's thread and makes
// responses from them on the reply thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "engine/request.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/calls/reply_thread.h"
#include "server/protocol/reply/reply.h"
#include "server/protocol/reply/token_buffer.h"

namespace sluice {

class StreamSession;

// A sink with results is posted to the reply thread, which offers it to the session. The session
// calls Next when it can write a response. The response contains all results so far, so the waiting
// tokens are limited by the tokens that the request may generate.
//
// The engine calls OnTokens and OnDone; everything else runs on the reply thread. The lock is held
// only while tokens are copied.
class StreamSink final : public Sink,
                         public Delivery,
                         public std::enable_shared_from_this<StreamSink> {
 public:
  using Ticket = uint64_t;  // identifies a request within its stream

  // For a refused request, which is done at once, `spec` needs only the id. The sink keeps
  // `unread`, the memory of its responses, until it is destroyed.
  StreamSink(ReplySpec spec, ReplyThread* replies, std::shared_ptr<StreamSession> session,
             Ticket ticket, MemoryShare unread = {});

  Ticket ticket() const { return ticket_; }

  void OnTokens(const GeneratedToken* tokens, int count) override;
  void OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) override;
  void Deliver() override;

  struct Response {
    grpc::ByteBuffer bytes;
    bool last = false;          // no further response of this request follows
    bool more_at_once = false;  // another response can be made from the present results
  };
  // Makes the next response. Must be called once for each offer, and once for each more_at_once.
  Response Next();

 private:
  // The results since the previous call.
  struct Arrived {
    bool done = false;
    absl::Status status;
  };
  Arrived Take();

  inference::ModelStreamInferResponse Answer(const Arrived& arrived);
  inference::ModelStreamInferResponse Error(const absl::Status& status);

  ReplyBuilder builder_;
  ReplyThread* const replies_;
  const std::shared_ptr<StreamSession> session_;
  const Ticket ticket_;
  const MemoryShare unread_;
  const bool streams_;  // responses carry the tokens of each step, not all of them at the end

  Mutex mu_;
  TokenBuffer arriving_ ABSL_GUARDED_BY(mu_);
  bool posted_ ABSL_GUARDED_BY(mu_) = false;  // posted to the reply thread and not yet taken
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  Reply reply_ ABSL_GUARDED_BY(mu_);
  RequestTrace trace_ ABSL_GUARDED_BY(mu_);

  // The following are used by the reply thread only.
  TokenBuffer taken_;
  Reply taken_reply_;
  bool answered_ = false;  // only the empty final response remains
};

}  // namespace sluice
