#include "client/stream_error.h"

#include <optional>
#include <string>

#include "base/reason.h"

namespace sluice::client {
namespace {

absl::StatusCode CodeNamed(const std::string& name) {
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    const auto candidate = static_cast<absl::StatusCode>(code);
    if (absl::StatusCodeToString(candidate) == name) return candidate;
  }
  return absl::StatusCode::kUnknown;
}

}  // namespace

absl::Status ReceivedError(absl::StatusCode code, std::string_view reason,
                           const std::string& message) {
  const std::optional<Reason> known = EnumOf<Reason>(reason);
  if (known.has_value() && InfoOf(*known).code == code) return ReasonError(*known, message);
  return absl::Status(code, message);
}

bool HasReason(const absl::Status& error) {
  return error != absl::Status(error.code(), error.message());  // the reason is its only payload
}

absl::Status StreamError(const inference::ModelStreamInferResponse& response) {
  if (response.error_message().empty()) return absl::OkStatus();
  const auto& parameters = response.infer_response().parameters();
  const auto code = parameters.find("error_code");
  const auto reason = parameters.find("error_reason");
  return ReceivedError(code == parameters.end() ? absl::StatusCode::kUnknown
                                                : CodeNamed(code->second.string_param()),
                       reason == parameters.end() ? "" : reason->second.string_param(),
                       response.error_message());
}

}  // namespace sluice::client
