#include "server/common/status.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr size_t kMaxMessageBytes = 4096;
constexpr size_t kMaxPrintableBytes = 64;
constexpr char kPushbackPayload[] = "sluice/pushback-ms";

struct CodeEntry {
  absl::StatusCode code;
  grpc::StatusCode grpc;
  std::string_view name;
  std::string_view reason;
};

constexpr CodeEntry kCodes[] = {
    {absl::StatusCode::kOk, grpc::StatusCode::OK, "OK", ""},
    {absl::StatusCode::kCancelled, grpc::StatusCode::CANCELLED, "CANCELLED", "cancelled"},
    {absl::StatusCode::kUnknown, grpc::StatusCode::UNKNOWN, "UNKNOWN", "unknown"},
    {absl::StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT, "INVALID_ARGUMENT",
     "invalid_argument"},
    {absl::StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED",
     "deadline"},
    {absl::StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND, "NOT_FOUND", "not_found"},
    {absl::StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS, "ALREADY_EXISTS",
     "already_exists"},
    {absl::StatusCode::kPermissionDenied, grpc::StatusCode::PERMISSION_DENIED, "PERMISSION_DENIED",
     "permission_denied"},
    {absl::StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED,
     "RESOURCE_EXHAUSTED", "queue_full"},
    {absl::StatusCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION,
     "FAILED_PRECONDITION", "failed_precondition"},
    {absl::StatusCode::kAborted, grpc::StatusCode::ABORTED, "ABORTED", "aborted"},
    {absl::StatusCode::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE, "OUT_OF_RANGE", "out_of_range"},
    {absl::StatusCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED, "UNIMPLEMENTED",
     "unimplemented"},
    {absl::StatusCode::kInternal, grpc::StatusCode::INTERNAL, "INTERNAL", "internal"},
    {absl::StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE, "UNAVAILABLE", "unavailable"},
    {absl::StatusCode::kDataLoss, grpc::StatusCode::DATA_LOSS, "DATA_LOSS", "data_loss"},
    {absl::StatusCode::kUnauthenticated, grpc::StatusCode::UNAUTHENTICATED, "UNAUTHENTICATED",
     "unauthenticated"},
};

const CodeEntry& EntryOf(absl::StatusCode code) {
  for (const CodeEntry& entry : kCodes) {
    if (entry.code == code) return entry;
  }
  return kCodes[static_cast<int>(absl::StatusCode::kUnknown)];
}

}  // namespace

std::string ReasonOf(const absl::Status& status) {
  std::string reason = AttachedReason(status);
  return reason.empty() ? std::string(EntryOf(status.code()).reason) : reason;
}

std::string_view CodeName(absl::StatusCode code) { return EntryOf(code).name; }

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(EntryOf(status.code()).grpc,
                      std::string(status.message().substr(0, kMaxMessageBytes)));
}

absl::Status WithPushback(absl::Status status, absl::Duration pushback) {
  const absl::Duration whole = absl::Ceil(pushback, absl::Milliseconds(1));
  if (!status.ok()) {
    status.SetPayload(kPushbackPayload, absl::Cord(absl::StrCat(PushbackMs(whole))));
  }
  return status;
}

absl::Duration PushbackOf(const absl::Status& status, absl::Duration otherwise) {
  const absl::optional<absl::Cord> attached = status.GetPayload(kPushbackPayload);
  int64_t ms = 0;
  if (!attached.has_value() || !absl::SimpleAtoi(std::string(*attached), &ms)) return otherwise;
  return absl::Milliseconds(ms);
}

int64_t PushbackMs(absl::Duration pushback) {
  return std::max<int64_t>(1, absl::ToInt64Milliseconds(pushback));
}

grpc::Status FinishStatus(const absl::Status& status, absl::Duration pushback,
                          grpc::CallbackServerContext* context) {
  if (status.ok()) return grpc::Status::OK;
  context->AddTrailingMetadata(kReasonTrailer, ReasonOf(status));
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    context->AddTrailingMetadata(kPushbackTrailer,
                                 absl::StrCat(PushbackMs(PushbackOf(status, pushback))));
  }
  return ToGrpc(status);
}

std::string Printable(absl::string_view text) {
  if (text.size() <= kMaxPrintableBytes) return absl::StrCat("\"", absl::CHexEscape(text), "\"");
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMaxPrintableBytes)), "...\"");
}

}  // namespace sluice
