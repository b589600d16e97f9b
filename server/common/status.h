// The only place that converts statuses to gRPC statuses.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/reason.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"

namespace sluice {

// The names of the trailers. gRPC clients with a retry policy wait for the push-back. The reason is
// a fixed word for programs; the message is for people.
inline constexpr char kPushbackTrailer[] = "grpc-retry-pushback-ms";
inline constexpr char kReasonTrailer[] = "sluice-reason";

// Codes keep their numbers. Messages are cut at 4 KiB, which is below the metadata limit of any
// peer.
grpc::Status ToGrpc(const absl::Status& status);

// Attaches the push-back of this refused call: the delay before a retry may succeed.
absl::Status WithPushback(absl::Status status, absl::Duration pushback);

// Returns the attached push-back, or else `otherwise`.
absl::Duration PushbackOf(const absl::Status& status, absl::Duration otherwise);

// Returns the push-back in milliseconds as it is announced: at least 1.
int64_t PushbackMs(absl::Duration pushback);

// Calls ToGrpc and adds the trailers of an error to `context`, whose call must not have finished.
// Announces `pushback` only with ResourceExhausted, and only if no push-back is attached to
// `status`.
grpc::Status FinishStatus(const absl::Status& status, absl::Duration pushback,
                          grpc::CallbackServerContext* context);

// Returns `text`, which came from a caller, in a form that is safe for messages and logs: in double
// quotes, with everything but printable ASCII escaped, and cut after 64 bytes.
std::string Printable(absl::string_view text);

}  // namespace sluice
