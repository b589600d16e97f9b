// Converts messages of unary and streamed calls to admitted requests.
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
#include "server/common/refusal_log.h"
#include "server/inference/serving_context.h"
#include "server/protocol/request/validate.h"
#include "server/security/callers.h"

namespace sluice {

// Thread-safe. One object serves all addresses. The services that use it are destroyed first.
class InferenceFrontend {
 public:
  // `context` outlives this object.
  InferenceFrontend(ServingContext& context, const GrpcOptions& options);

  // Sets the limits for requests and streams that start from now on, except max_message_bytes,
  // which also limits replies.
  void SetLimits(const GrpcOptions& options);

  // Returns the context of a request that arrives now: its time, gRPC deadline, trace and seed.
  CallContext Arrive(const grpc::CallbackServerContext& context) const;

  // Sets the owner of the call, and counts a request against its caller's limit. Returns and counts
  // the errors of Caller::TakeRequest and Overload::Refusal. Called after the caller was identified
  // and before the functions below. Should be called before the message is read, if possible.
  absl::Status Enter(CallContext* call);

  // If a few fields of the message already show that the engine would refuse it because its queue
  // is full, returns and counts that error. Such a message is refused without being parsed, even if
  // it is malformed.
  absl::Status CheckQueue(const grpc::ByteBuffer& bytes, const CallContext& call);

  // Returns whether a message is short and has no texts to encode. Such a message can be parsed and
  // submitted on the thread where it arrives.
  static bool IsQuick(const grpc::ByteBuffer& bytes);

  // Runs `prepare`, which parses and submits a message, on another thread, where callers take
  // turns. It runs in the scope of `check` (base/interruption.h) and of the call's deadline.
  // Returns ResourceExhausted if too many messages wait.
  absl::Status PrepareLater(const CallContext& call, std::function<absl::Status()> check,
                            std::function<void()> prepare);

  // Parses a message within the limits of requests. Sets `parsed` to the memory of the message and
  // of the objects made from it; short messages are not counted. Returns and counts the errors of
  // Parse, and the error for a message that does not fit into memory.
  absl::Status Read(const grpc::ByteBuffer& bytes, const CallContext& call,
                    inference::ModelInferRequest* message, MemoryShare* parsed);

  // Resolves the model, validates, counts the tokens against the caller's limit and submits. While
  // models are still being loaded, a model that is not loaded yet is Unavailable rather than
  // NotFound. After an error, the sink from `make_sink` is never called. `unread` is the memory
  // that the answer may take; the sink releases it when the caller has read the answer.
  using MakeSink = absl::FunctionRef<std::shared_ptr<Sink>(ReplySpec reply, MemoryShare unread)>;
  absl::StatusOr<RequestId> Submit(const inference::ModelInferRequest& message, CallContext call,
                                   MakeSink make_sink);

  // Cancels a request that its caller has abandoned, and returns the final status of its call. gRPC
  // reports cancellations and expired deadlines in the same way, but the counts distinguish them:
  // if the deadline has passed, the engine ends the request as expired.
  absl::Status GiveUp(RequestId id, MonoTime deadline);

  // Returns the push-back for a refused caller: the engine's estimate of the time to finish the
  // waiting requests, or the running ones if none wait.
  absl::Duration Pushback();

  ReplyThreads* replies() const { return context_.replies; }
  MonoTime Now() const { return context_.clock->Now(); }
  nanoseconds stream_stall_timeout() const { return stream_stall_timeout_; }
  int32_t max_rows() const { return max_rows_; }
  int64_t max_reply_bytes() const { return max_reply_bytes_; }

 private:
  // Validates, and takes the request's tokens from its caller's limit. The minimum tokens of its
  // texts are taken first and stay taken after an error, because texts have been encoded. Sets
  // `taken` to all tokens taken.
  absl::StatusOr<ValidRequest> ValidateAndCharge(const inference::ModelInferRequest& message,
                                                 CallContext* call, int64_t* taken) const;

  // Counts a call that was refused before its model was known.
  void Refuse(const absl::Status& status);
  // Logs a refusal, at most once a second for each identified caller and once for all others, also
  // outside the sample of the access log.
  void LogRefusal(const absl::Status& status, const CallContext& call);

  // Returns the parsing limits of requests: lists of numbers may take twice the bytes of the
  // largest message.
  WireLimits wire_limits() const {
    return {.parts = WireLimits{}.parts + max_rows_,
            .bytes = WireLimits{}.bytes + 2 * max_reply_bytes_};
  }

  // Returns and counts the error for a request whose answer does not fit into the remaining memory.
  absl::Status RefuseUnread(const Model& model, int64_t bytes);

  std::atomic<int32_t> max_rows_;
  const int64_t max_reply_bytes_;
  std::atomic<nanoseconds> stream_stall_timeout_;
  ServingContext& context_;
  LineRate refusal_lines_;  // for callers that are not identified

  // The estimate is cached briefly, because refusals come in bursts and Stats takes the engine's
  // locks.
  Mutex mu_;
  MonoTime estimated_ ABSL_GUARDED_BY(mu_){};
  absl::Duration pushback_ ABSL_GUARDED_BY(mu_);

  JobPool preparations_;  // last, because its jobs use the other members
};

// Parses a W3C traceparent, "00-<32 hex>-<16 hex>-<2 hex>". Returns all zeros if it is malformed.
TraceContext ParseTraceparent(std::string_view header);

}  // namespace sluice
