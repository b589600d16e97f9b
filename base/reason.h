// The reasons of errors. Each has a fixed word for programs, its gRPC status, and the action that
// the caller or the operator can take. tools/make_docs.py makes docs/errors.md from the table
// below.
//
//   return ReasonError(Reason::kTooBusy, "too many messages wait to be read");
#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/enum_names.h"

namespace sluice {

enum class Reason {
  kMalformed,
  kRequest,
  kInput,
  kParameter,
  kOutput,
  kCredentialMissing,
  kTokenUnknown,
  kPriority,
  kRateLimited,
  kQueueFull,
  kDeadlineUnreachable,
  kTooBusy,
  kMemory,
  kUnreadAnswers,
  kStreamStalled,
  kDeviceMemory,
  kDeviceLost,
  kHung,
  kDraining,
  kCancelled,
  kUnknown,
  kInvalidArgument,
  kDeadline,
  kNotFound,
  kPermissionDenied,
  kResourceExhausted,
  kFailedPrecondition,
  kOutOfRange,
  kUnimplemented,
  kInternal,
  kUnavailable,
  kDataLoss,
};

// The side that has to change something. Alerts count the errors that are the server's fault.
enum class AtFault { kCaller, kServer };

struct ReasonInfo {
  Reason reason;
  std::string_view name;  // the trailer sluice-reason, and the label of sluice_rejected_total
  absl::StatusCode code;
  bool retryable;  // whether the same call may succeed later
  AtFault at_fault;
  std::string_view cause;
  std::string_view remedy;
};

// The last reason of a code is the reason of errors with no reason attached.
inline constexpr ReasonInfo kReasons[] = {
    {Reason::kMalformed, "malformed", absl::StatusCode::kInvalidArgument, false, AtFault::kCaller,
     "The bytes of the message are not a valid protobuf message of its type.",
     "Generate the client from the daemon's .proto files. Check proxies that change messages."},
    {Reason::kRequest, "request", absl::StatusCode::kInvalidArgument, false, AtFault::kCaller,
     "The request as a whole exceeds a limit, which the message names: its bytes or parts, its "
     "tokens, its id, or the size of its answer.",
     "Split the request, or raise the option that the message names."},
    {Reason::kInput, "input", absl::StatusCode::kInvalidArgument, false, AtFault::kCaller,
     "An input tensor is missing, has a wrong name, type, shape or value, or has a row that is "
     "longer than the model allows.",
     "Correct the input that the message names; shorten the row or set truncate."},
    {Reason::kParameter, "parameter", absl::StatusCode::kInvalidArgument, false, AtFault::kCaller,
     "A parameter is unknown or out of its range, or the model does not have it.",
     "Correct the parameter that the message names."},
    {Reason::kOutput, "output", absl::StatusCode::kInvalidArgument, false, AtFault::kCaller,
     "A requested output is unknown, or the model does not compute it.",
     "Request one of the outputs that the message names."},
    {Reason::kCredentialMissing, "credential_missing", absl::StatusCode::kUnauthenticated, false,
     AtFault::kCaller, "The call has neither a bearer token nor the certificate of a known caller.",
     "Send a token, or use a certificate from server.auth.callers_file."},
    {Reason::kTokenUnknown, "token_unknown", absl::StatusCode::kUnauthenticated, false,
     AtFault::kCaller, "The bearer token is not in server.auth.callers_file.",
     "Correct the token, or add the caller to the file."},
    {Reason::kPriority, "priority", absl::StatusCode::kPermissionDenied, false, AtFault::kCaller,
     "The caller may not use this level of priority (max_priority in the file of callers).",
     "Request a level that the caller may use, or no level."},
    {Reason::kRateLimited, "rate_limited", absl::StatusCode::kResourceExhausted, true,
     AtFault::kCaller,
     "The caller sends more requests or tokens per second than server.rate allows.",
     "Retry after grpc-retry-pushback-ms; send less, or raise the caller's rate."},
    {Reason::kQueueFull, "queue_full", absl::StatusCode::kResourceExhausted, true, AtFault::kServer,
     "The model's requests reached a limit of engine.queue, which the message names.",
     "Retry after grpc-retry-pushback-ms. Add replicas, or limit the rate of callers "
     "(server.rate)."},
    {Reason::kDeadlineUnreachable, "deadline_unreachable", absl::StatusCode::kResourceExhausted,
     true, AtFault::kServer,
     "According to the measured costs, the request would miss its deadline.",
     "Retry after grpc-retry-pushback-ms. Add replicas, or give calls a longer deadline."},
    {Reason::kTooBusy, "too_busy", absl::StatusCode::kResourceExhausted, true, AtFault::kServer,
     "Too many long messages, or too many calls of this kind, are waiting.",
     "Retry after grpc-retry-pushback-ms. Send fewer at a time, or add replicas."},
    {Reason::kMemory, "memory", absl::StatusCode::kResourceExhausted, true, AtFault::kServer,
     "The process is near server.memory.limit_bytes, or too many long messages are being read.",
     "Retry after grpc-retry-pushback-ms. Send fewer long messages at a time, or give the daemon "
     "more memory."},
    {Reason::kUnreadAnswers, "unread_answers", absl::StatusCode::kResourceExhausted, true,
     AtFault::kServer,
     "The unsent and unread answers leave too little of "
     "server.grpc.max_unread_bytes for this answer.",
     "Retry after grpc-retry-pushback-ms. Read answers sooner, send fewer requests at a time, or "
     "raise the option."},
    {Reason::kStreamStalled, "stream_stalled", absl::StatusCode::kResourceExhausted, true,
     AtFault::kCaller,
     "The caller read no response of the stream for server.grpc.stream_stall_timeout.",
     "Read responses as they arrive, and open a new stream."},
    {Reason::kDeviceMemory, "device_memory", absl::StatusCode::kResourceExhausted, true,
     AtFault::kServer, "The device has too little memory for a step with only this request.",
     "Lower engine.batch.max_batch_tokens, or serve fewer models on the device."},
    {Reason::kDeviceLost, "device_lost", absl::StatusCode::kUnavailable, true, AtFault::kServer,
     "The GPU failed. The process exits and is restarted.",
     "Retry at another replica. Look at the log and at the host's GPU errors."},
    {Reason::kHung, "hung", absl::StatusCode::kUnavailable, true, AtFault::kServer,
     "A step of the model does not end. The process exits and is restarted.",
     "Retry at another replica. The log names the step (engine.watchdog)."},
    {Reason::kDraining, "draining", absl::StatusCode::kUnavailable, true, AtFault::kServer,
     "The daemon is shutting down, or the model is being removed.",
     "Retry at another replica. Set server.lifecycle.drain_delay so that load balancers notice a "
     "shutdown before it starts."},
    {Reason::kCancelled, "cancelled", absl::StatusCode::kCancelled, false, AtFault::kCaller,
     "The caller cancelled the call.", "No action is needed."},
    {Reason::kUnknown, "unknown", absl::StatusCode::kUnknown, false, AtFault::kServer,
     "The operating system or a library returned an error that fits no other code.",
     "Read the message and the log."},
    {Reason::kInvalidArgument, "invalid_argument", absl::StatusCode::kInvalidArgument, false,
     AtFault::kCaller, "The call has an invalid field, which the message names.",
     "Correct the field."},
    {Reason::kDeadline, "deadline", absl::StatusCode::kDeadlineExceeded, false, AtFault::kServer,
     "The deadline passed before the answer was complete.",
     "Give calls a longer deadline, or add replicas."},
    {Reason::kNotFound, "not_found", absl::StatusCode::kNotFound, false, AtFault::kCaller,
     "The model, its version or the named object does not exist.",
     "Request one of the served models, which the message names."},
    {Reason::kPermissionDenied, "permission_denied", absl::StatusCode::kPermissionDenied, false,
     AtFault::kCaller, "The call is not allowed at this address, or a file may not be read.",
     "Use server.admin.address to manage models; check the permissions of files."},
    {Reason::kResourceExhausted, "resource_exhausted", absl::StatusCode::kResourceExhausted, true,
     AtFault::kServer, "There are too few descriptors or too little memory to load a model.",
     "Give the daemon more of the resource that the message names."},
    {Reason::kFailedPrecondition, "failed_precondition", absl::StatusCode::kFailedPrecondition,
     false, AtFault::kServer, "The daemon's current options or ladder do not allow this.",
     "Change the option that the message names."},
    {Reason::kOutOfRange, "out_of_range", absl::StatusCode::kOutOfRange, false, AtFault::kServer,
     "A file of the model exceeds a limit.", "Correct the file that the message names."},
    {Reason::kUnimplemented, "unimplemented", absl::StatusCode::kUnimplemented, false,
     AtFault::kCaller, "This daemon or device does not support the function.",
     "Do not use this function here."},
    {Reason::kInternal, "internal", absl::StatusCode::kInternal, false, AtFault::kServer,
     "A computation produced values that are not finite, or a step failed.",
     "Read the log; check the model with sluice verify."},
    {Reason::kUnavailable, "unavailable", absl::StatusCode::kUnavailable, true, AtFault::kServer,
     "The daemon is not ready: it is loading models or shutting down.",
     "Retry later or at another replica."},
    {Reason::kDataLoss, "data_loss", absl::StatusCode::kDataLoss, false, AtFault::kServer,
     "A file of the model was cut while it was read.", "Copy the file again."},
};

consteval auto EnumNamesOf(Reason) {
  EnumName<Reason> names[std::size(kReasons)]{};
  for (size_t i = 0; i < std::size(kReasons); ++i) {
    names[i] = {kReasons[i].reason, kReasons[i].name};
  }
  return EnumNameTable<Reason>(names);
}

constexpr const ReasonInfo& InfoOf(Reason reason) { return kReasons[static_cast<size_t>(reason)]; }

// Returns an error with the reason's status code and the reason attached.
absl::Status ReasonError(Reason reason, absl::string_view message);

// Returns the attached reason, or else the last reason of the error's code, or else kUnknown.
// Requires an error.
Reason ReasonOf(const absl::Status& error);

}  // namespace sluice
