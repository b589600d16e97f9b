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

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
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
  context->AddTrailingMetadata(kReasonTrailer, std::string(NameOf(ReasonOf(status))));
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
