#include "loadtest/simulate/cost_file.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "engine/journal/schedule_json.h"
#include "nlohmann/json.hpp"

namespace sluice::loadtest {
namespace {

constexpr size_t kMostBytes = 16 << 20;

}  // namespace

absl::StatusOr<CostModel> ReadCosts(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  if (text.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is longer than ", kMostBytes, " bytes"));
  }
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("costs")) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not JSON with \"costs\""));
  }
  const absl::StatusOr<CostState> state = CostsFromJson(object["costs"]);
  if (!state.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", state.status().message()));
  }
  CostModel costs;
  costs.Restore(*state);
  return costs;
}

}  // namespace sluice::loadtest
