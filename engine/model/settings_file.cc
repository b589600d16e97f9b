#include "engine/model/settings_file.h"

#include "absl/strings/str_cat.h"
#include "base/error_at.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

constexpr size_t kMaxSettingsBytes = size_t{8} << 20;
constexpr int kMaxSettingsDepth = 32;

}  // namespace

absl::Status OfFile(const std::string& file, const absl::Status& status) {
  return ErrorAt(file, status);
}

absl::StatusOr<nlohmann::json> ReadSettings(const Directory& directory, const std::string& file) {
  if (!directory.Has(file)) return nlohmann::json::object();
  SLUICE_ASSIGN_OR_RETURN(const auto text, directory.Read(file, kMaxSettingsBytes));
  auto document = ParseJson(text, kMaxSettingsDepth);
  if (!document.ok()) return OfFile(file, document.status());
  if (!document->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(file, " is not a JSON object"));
  }
  return document;
}

}  // namespace sluice
