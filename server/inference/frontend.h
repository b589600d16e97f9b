// What inference calls share, unary or streamed: from a message to an admitted request.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "grpcpp/server_context.h"
#include "server/calls/reply_thread.h"
#include "server/inference/health.h"
#include "server/protocol/validate.h"
#include "server/security/callers.h"

namespace sluice {

// Hears of requests that never reached the engine. `model` is empty when it is not a served one, so
// that callers cannot make up metric labels. Thread-safe.
class RefusalObserver {
 public:
  virtual ~RefusalObserver() = default;
  virtual void OnRefused(std::string_view model, std::string_view reason) = 0;
};

// Thread-safe. Owns nothing.
class Edge {
 public:
  // `stream_stall_timeout`: see GrpcOptions. `callers`: nullptr where nobody is asked who they are.
  Edge(const RequestLimits& limits, nanoseconds stream_stall_timeout, Engine* engine, Clock* clock,
       ReplyThread* replies, RefusalObserver* refusals, const Health* health,
       const Callers* callers = nullptr)
      : max_rows_(limits.max_rows),
        max_reply_bytes_(limits.max_reply_bytes),
        stream_stall_timeout_(stream_stall_timeout),
        engine_(engine),
        clock_(clock),
        replies_(replies),
        refusals_(refusals),
        health_(health),
        callers_(callers) {}

  // For requests and streams that begin from now on; `max_reply_bytes` stays.
  void SetLimits(const RequestLimits& limits, nanoseconds stream_stall_timeout) {
    max_rows_ = limits.max_rows;
    stream_stall_timeout_ = stream_stall_timeout;
  }

  // Reads the clock, the gRPC deadline and the trace context of a call.
  CallFacts Arrive(const grpc::CallbackServerContext& context) const;

  // Whose request it is, into `arrival`, and whether that caller may make one more. Errors as of
  // Callers::Identify and Caller::TakeRequest; they are counted. Cheap: before the message is looked at
  // where that is possible.
  absl::Status Enter(const grpc::CallbackServerContext& context, CallFacts* arrival);

  // Resolves, validates, counts the tokens against the caller's limit and submits. While models are
  // still being loaded, one that is not there yet is Unavailable and not NotFound. On error the sink
  // that `make_sink` may have made is never called.
  using MakeSink = std::function<std::shared_ptr<Sink>(ReplySpec)>;
  absl::StatusOr<RequestId> Submit(const inference::ModelInferRequest& message,
                                   const CallFacts& arrival, const MakeSink& make_sink);

  // Counts bytes that were no message.
  void Refuse(const absl::Status& status);

  // Cancels what the caller gave up, and says with which status its call ends. A request whose
  // deadline passed is left to the engine, which ends it as expired: gRPC reports both in one way,
  // but the counts tell them apart.
  absl::Status GiveUp(RequestId id, MonoTime deadline);

  // How long a refused caller should wait: the engine's estimate of when its queue is worked off.
  absl::Duration Pushback();

  ReplyThread* replies() const { return replies_; }
  MonoTime Now() const { return clock_->Now(); }
  nanoseconds stream_stall_timeout() const { return stream_stall_timeout_; }
  int32_t max_rows() const { return max_rows_; }
  int64_t max_reply_bytes() const { return max_reply_bytes_; }

 private:
  absl::StatusOr<RequestId> SubmitValid(ValidRequest valid, const CallFacts& arrival,
                                        const MakeSink& make_sink);

  std::atomic<int32_t> max_rows_;
  const int64_t max_reply_bytes_;
  std::atomic<nanoseconds> stream_stall_timeout_;
  Engine* const engine_;
  Clock* const clock_;
  ReplyThread* const replies_;
  RefusalObserver* const refusals_;
  const Health* const health_;
  const Callers* const callers_;

  // Refusals come in floods, and Stats takes the engine's locks: the estimate is kept for a while.
  Mutex mu_;
  MonoTime estimated_ ABSL_GUARDED_BY(mu_){};
  absl::Duration pushback_ ABSL_GUARDED_BY(mu_);
};

// Parses a W3C traceparent, "00-<32 hex>-<16 hex>-<2 hex>"; all zero when it is malformed.
TraceContext ParseTraceparent(std::string_view header);

}  // namespace sluice
