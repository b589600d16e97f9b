// Collects one request's results on the engine's thread and makes its responses on the reply thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "engine/request.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/calls/reply_thread.h"
#include "server/protocol/reply.h"
#include "server/protocol/token_buffer.h"

namespace sluice {

class StreamSession;

// Once there is something to say it is posted to the reply thread, which offers it to the session; the
// session asks for the next response when it can write one. Whatever came until then is in that
// response: so the tokens that wait are bounded by those that the request may generate.
//
// The engine calls OnTokens and OnDone; all else runs on the reply thread. The lock is held for copies
// of tokens only.
class StreamSink final : public Sink,
                         public Delivery,
                         public std::enable_shared_from_this<StreamSink> {
 public:
  using Ticket = uint64_t;  // of a request within its stream

  // A request that is refused is one that is done at once: `spec` then needs no more than its id.
  StreamSink(ReplySpec spec, ReplyThread* replies, std::shared_ptr<StreamSession> session,
             Ticket ticket);

  Ticket ticket() const { return ticket_; }

  void OnTokens(const GeneratedToken* tokens, int count) override;
  void OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) override;
  void Deliver() override;

  struct Response {
    grpc::ByteBuffer bytes;
    bool last = false;          // of this request
    bool more_at_once = false;  // another one is to be made without anything to come
  };
  // To be called once for each time that it was offered, or that more_at_once said so.
  Response Next();

 private:
  // Everything that came since the last call.
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
  const bool streams_;  // each step's tokens, and not all at the end

  Mutex mu_;
  TokenBuffer arriving_ ABSL_GUARDED_BY(mu_);
  bool posted_ ABSL_GUARDED_BY(mu_) = false;  // and not yet taken
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  Reply reply_ ABSL_GUARDED_BY(mu_);

  // The reply thread's.
  TokenBuffer taken_;
  Reply taken_reply_;
  bool answered_ = false;  // only the empty final response is left
};

}  // namespace sluice
