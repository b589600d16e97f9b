#include "base/reason.h"

#include <optional>
#include <string>

#include "absl/strings/cord.h"

namespace sluice {
namespace {

constexpr char kPayload[] = "sluice/reason";

}  // namespace

absl::Status ReasonError(Reason reason, absl::string_view message) {
  const ReasonInfo& info = InfoOf(reason);
  absl::Status error(info.code, message);
  error.SetPayload(kPayload, absl::Cord(absl::string_view(info.name.data(), info.name.size())));
  return error;
}

Reason ReasonOf(const absl::Status& error) {
  SLUICE_CHECK(!error.ok());
  if (const absl::optional<absl::Cord> attached = error.GetPayload(kPayload)) {
    if (const std::optional<Reason> reason = EnumOf<Reason>(std::string(*attached))) return *reason;
  }
  Reason last = Reason::kUnknown;
  for (const ReasonInfo& info : kReasons) {
    if (info.code == error.code()) last = info.reason;
  }
  return last;
}

}  // namespace sluice
