// The one place where statuses become gRPC statuses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/reason.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"

namespace sluice {

// Trailers. The pushback is what gRPC clients with a retry policy wait for; the reason is a fixed
// word for programs, where the message is for people.
inline constexpr char kPushbackTrailer[] = "grpc-retry-pushback-ms";
inline constexpr char kReasonTrailer[] = "sluice-reason";

// The attached reason (see WithReason), or one that follows from the code: "queue_full" for
// ResourceExhausted, "unavailable", "deadline", ... Empty for ok.
std::string ReasonOf(const absl::Status& status);

// "INVALID_ARGUMENT" and so on, as gRPC spells them.
std::string_view CodeName(absl::StatusCode code);

// Codes map by name; messages are cut at 4 KiB, so that no peer's metadata limit is met.
grpc::Status ToGrpc(const absl::Status& status);

// Attaches after how long a refused call may succeed, where that is known of this very call.
absl::Status WithPushback(absl::Status status, absl::Duration pushback);

// The attached one, else `otherwise`.
absl::Duration PushbackOf(const absl::Status& status, absl::Duration otherwise);

// As it is announced: at least 1.
int64_t PushbackMs(absl::Duration pushback);

// ToGrpc with the trailers of an error added to `context`, which must not have finished. `pushback`
// is announced with ResourceExhausted only, where none is attached.
grpc::Status FinishStatus(const absl::Status& status, absl::Duration pushback,
                          grpc::CallbackServerContext* context);

// `text` from a caller, fit for a message or a log: in double quotes, other than printable ASCII
// escaped, cut after 64 bytes.
std::string Printable(absl::string_view text);

}  // namespace sluice
