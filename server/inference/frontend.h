// Turns messages of unary and streamed calls into admitted requests.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/job_pool.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/calls/wire_scan.h"
#include "server/common/options.h"
#include "server/inference/serving_context.h"
#include "server/protocol/request/validate.h"
#include "server/security/callers.h"

namespace sluice {

// Thread-safe. One object serves all addresses. It is destroyed after the services that use it.
class InferenceFrontend {
 public:
  // `context` outlives this object.
  InferenceFrontend(ServingContext& context, const GrpcOptions& options);

  // Sets the limits of requests and streams that begin from now on, except max_message_bytes, which
  // also limits replies.
  void SetLimits(const GrpcOptions& options);

  // Returns the context of a request that arrives now: its time, gRPC deadline, trace and a seed.
  CallContext Arrive(const grpc::CallbackServerContext& context) const;

  // Identifies the caller of a request on a stream. Returns nullptr if `callers` is nullptr, which
  // means that callers are not identified. Returns and counts the errors of Callers::Identify.
  absl::StatusOr<std::shared_ptr<const Caller>> Identify(
      const Callers* callers, const grpc::CallbackServerContext& context);

  // Counts a request of the call's caller against its limit. Returns the errors of
  // Caller::TakeRequest, or of Overload::Refusal, and counts them. Should be called before the
  // message is read, where that is possible.
  absl::Status Enter(const CallContext& call);

  // Returns the error with which the engine would refuse the message because its queue is full,
  // where that is known from a few of its fields, and counts it. Such a message is not parsed, so
  // that it is refused even if it is not well-formed.
  absl::Status CheckQueue(const grpc::ByteBuffer& bytes, const CallContext& call);

  // Returns whether a message is short and has no texts to encode, so that it takes no time worth
  // speaking of to parse and submit it where it arrives.
  static bool IsQuick(const grpc::ByteBuffer& bytes);

  // Runs `prepare`, which parses and submits a message, on a thread of its own, where the callers
  // take turns. It is run in the scope of `check` (base/interruption.h) and of the call's deadline.
  // Returns ResourceExhausted if too many messages wait.
  absl::Status PrepareLater(const CallContext& call, std::function<absl::Status()> check,
                            std::function<void()> prepare);

  // Parses a message, within the limits of requests, and sets `parsed` to the memory that it and
  // what is made of it take; that of short messages is not counted. Returns the errors of Parse,
  // and those of a message for which there is no memory, and counts them.
  absl::Status Read(const grpc::ByteBuffer& bytes, const CallContext& call,
                    inference::ModelInferRequest* message, MemoryShare* parsed);

  // Resolves the model, validates, counts the tokens against the caller's limit and submits. While
  // models are still being loaded, a model that is not there yet is Unavailable rather than
  // NotFound. After an error, the sink that `make_sink` may have made is never called.
  // `unread` is the memory that the answer may take; the sink gives it back when the caller has
  // taken the answer.
  using MakeSink = absl::FunctionRef<std::shared_ptr<Sink>(ReplySpec reply, MemoryShare unread)>;
  absl::StatusOr<RequestId> Submit(const inference::ModelInferRequest& message, CallContext call,
                                   MakeSink make_sink);

  // Cancels a request that its caller has given up, and returns the status with which its call
  // ends. gRPC reports a cancellation and an expired deadline in the same way, but the counts
  // distinguish them: a request whose deadline has passed is left to the engine, which ends it as
  // expired.
  absl::Status GiveUp(RequestId id, MonoTime deadline);

  // Returns how long a refused caller should wait: the engine's forecast of the time that what
  // waits takes, or what runs if nothing waits.
  absl::Duration Pushback();

  ReplyThreads* replies() const { return context_.replies; }
  TransferWatch* idle_streams() const { return &context_.idle_streams; }
  MonoTime Now() const { return context_.clock->Now(); }
  nanoseconds stream_stall_timeout() const { return stream_stall_timeout_; }
  int32_t max_rows() const { return max_rows_; }
  int64_t max_reply_bytes() const { return max_reply_bytes_; }

 private:
  // Validates, and takes the request's tokens from its caller's limit: first those that its texts
  // have at least, which stay taken after an error because texts have been encoded. Sets `taken` to
  // all of them.
  absl::StatusOr<ValidRequest> ValidateAndCharge(const inference::ModelInferRequest& message,
                                                 CallContext* call, int64_t* taken) const;

  // Counts a call that was refused before its model is known.
  void Refuse(const absl::Status& status);

  // Returns the limits of requests as they are parsed: lists of numbers may take twice the bytes of
  // the largest message.
  WireLimits wire_limits() const {
    return {.parts = WireLimits{}.parts + max_rows_,
            .bytes = WireLimits{}.bytes + 2 * max_reply_bytes_};
  }

  // Returns the error of a request for whose answer no memory is left, and counts it.
  absl::Status RefuseUnread(const Model& model, int64_t bytes);

  std::atomic<int32_t> max_rows_;
  const int64_t max_reply_bytes_;
  std::atomic<nanoseconds> stream_stall_timeout_;
  ServingContext& context_;

  // The estimate is kept for a while, because refusals come in floods and Stats takes the engine's
  // locks.
  Mutex mu_;
  MonoTime estimated_ ABSL_GUARDED_BY(mu_){};
  absl::Duration pushback_ ABSL_GUARDED_BY(mu_);

  JobPool preparations_;  // last: its jobs use the other members
};

// Parses a W3C traceparent, "00-<32 hex>-<16 hex>-<2 hex>". Returns all zeros if it is malformed.
TraceContext ParseTraceparent(std::string_view header);

}  // namespace sluice
