#include "cascades/einsum/device_description.h"

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "base/status_macros.h"

namespace sluice::einsum {
namespace {

constexpr int64_t kMostWorkers = 1 << 20;
constexpr size_t kMostLevels = 8;
constexpr size_t kLongestName = 256;
constexpr size_t kLongestText = 64 << 10;
constexpr double kSlowest = 1;
constexpr double kFastest = 1e18;
constexpr double kMostBytes = 1e18;
constexpr double kLongestLaunch = 1;

DeviceDescription::Level ReadLevel(ObjectReader reader) {
  reader.AllowOnly({"name", "bytes", "bytes_per_second", "shared", "worker_bytes_per_second"});
  return {.name = reader.String("name", kLongestName),
          .bytes = reader.Number("bytes", 1, kMostBytes),
          .bytes_per_second = reader.Number("bytes_per_second", kSlowest, kFastest),
          .shared = reader.Boolean("shared", false),
          .worker_bytes_per_second = reader.Number("worker_bytes_per_second", 0, kFastest, 0)};
}

}  // namespace

absl::StatusOr<DeviceDescription> ReadDeviceDescription(std::string_view json) {
  if (json.size() > kLongestText) {
    return absl::InvalidArgumentError(
        absl::StrCat("a device description has at most ", kLongestText, " bytes"));
  }
  SLUICE_ASSIGN_OR_RETURN(const nlohmann::json root, ParseJson(json, /*max_depth=*/3));
  if (!root.is_object())
    return absl::InvalidArgumentError("a device description must be a JSON object");
  absl::Status status;
  ObjectReader reader(root, "", &status);
  reader.AllowOnly({"name", "workers", "flops_per_second", "bf16_flops_per_second",
                    "int8_flops_per_second", "exponentials_per_second", "launch_seconds",
                    "levels"});
  DeviceDescription device{
      .name = reader.String("name", kLongestName),
      .workers = static_cast<int32_t>(reader.Integer("workers", 1, kMostWorkers)),
      .flops_per_second = reader.Number("flops_per_second", kSlowest, kFastest),
      .bf16_flops_per_second = reader.Number("bf16_flops_per_second", 0, kFastest, 0),
      .int8_flops_per_second = reader.Number("int8_flops_per_second", 0, kFastest, 0),
      .exponentials_per_second = reader.Number("exponentials_per_second", kSlowest, kFastest),
      .launch_seconds = reader.Number("launch_seconds", 0, kLongestLaunch)};
  const nlohmann::json* levels = reader.Find("levels");
  if (levels == nullptr || !levels->is_array() || levels->empty() || levels->size() > kMostLevels) {
    reader.Fail("levels", absl::StrCat("must be a list of 1 to ", kMostLevels, " objects"));
    return status;
  }
  for (size_t i = 0; i < levels->size(); ++i) {
    const std::string path = absl::StrCat("levels[", i, "]");
    if (!(*levels)[i].is_object()) {
      reader.Fail(path, "must be an object");
      return status;
    }
    device.levels.push_back(ReadLevel(ObjectReader((*levels)[i], path + ".", &status)));
    const auto& level = device.levels.back();
    if (i > 0 && level.bytes < device.levels[i - 1].bytes) {
      reader.Fail(path + ".bytes", "must not be less than the bytes of the previous level");
    }
  }
  SLUICE_RETURN_IF_ERROR(status);
  return device;
}

std::string DeviceDescriptionJson(const DeviceDescription& device) {
  nlohmann::ordered_json levels = nlohmann::ordered_json::array();
  for (const DeviceDescription::Level& level : device.levels) {
    levels.push_back({{"name", level.name},
                      {"bytes", level.bytes},
                      {"bytes_per_second", level.bytes_per_second},
                      {"shared", level.shared},
                      {"worker_bytes_per_second", level.worker_bytes_per_second}});
  }
  const nlohmann::ordered_json root = {{"name", device.name},
                                       {"workers", device.workers},
                                       {"flops_per_second", device.flops_per_second},
                                       {"bf16_flops_per_second", device.bf16_flops_per_second},
                                       {"int8_flops_per_second", device.int8_flops_per_second},
                                       {"exponentials_per_second", device.exponentials_per_second},
                                       {"launch_seconds", device.launch_seconds},
                                       {"levels", levels}};
  return root.dump(2) + "\n";
}

}  // namespace sluice::einsum
