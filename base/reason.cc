#include "base/reason.h"

#include <optional>

#include "absl/strings/cord.h"

namespace sluice {
namespace {

constexpr char kPayload[] = "sluice/reason";

}  // namespace

absl::Status WithReason(absl::Status status, absl::string_view reason) {
  if (!status.ok()) status.SetPayload(kPayload, absl::Cord(reason));
  return status;
}

std::string AttachedReason(const absl::Status& status) {
  const absl::optional<absl::Cord> reason = status.GetPayload(kPayload);
  return reason.has_value() ? std::string(*reason) : std::string();
}

}  // namespace sluice
