#include "cascades/einsum/device_description.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

DeviceDescription Described() {
  return {.name = "two cores",
          .workers = 2,
          .flops_per_second = 1.5e11,
          .bf16_flops_per_second = 3e11,
          .int8_flops_per_second = 7e11,
          .exponentials_per_second = 2e9,
          .launch_seconds = 4e-6,
          .levels = {{.name = "L2", .bytes = 1 << 20, .bytes_per_second = 1e11},
                     {.name = "memory",
                      .bytes = 1e12,
                      .bytes_per_second = 2e10,
                      .shared = true,
                      .worker_bytes_per_second = 1.2e10}}};
}

TEST(DeviceDescription, RoundTripsItsText) {
  const auto device = ReadDeviceDescription(DeviceDescriptionJson(Described()));
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(*device, Described());
}

struct BadDescriptionRow {
  const char* name;
  const char* replaced;  // in the text of Described()
  const char* by;
  const char* error;  // a part of the message
};
class BadDescriptionTable : public TableTest<BadDescriptionRow> {};

TEST_P(BadDescriptionTable, IsRefused) {
  std::string json = DeviceDescriptionJson(Described());
  const size_t at = json.find(row().replaced);
  ASSERT_NE(at, json.npos) << json;
  json.replace(at, std::string(row().replaced).size(), row().by);
  const auto device = ReadDeviceDescription(json);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(device.status().message().find(row().error), std::string::npos) << device.status();
}

const BadDescriptionRow kBadDescriptionRows[] = {
    {"ZeroWorkers", "\"workers\": 2", "\"workers\": 0", "workers is 0, must be in [1, "},
    {"AFractionOfAWorker", "\"workers\": 2", "\"workers\": 2.5", "workers is not an integer"},
    {"NoWorkers", "\"workers\": 2,", "", "workers is missing"},
    {"ANegativeRate", "\"flops_per_second\": 1", "\"flops_per_second\": -1",
     "flops_per_second is -1"},
    {"ALaunchOfMinutes", "4e-06", "60", "launch_seconds is 60"},
    {"AnUnknownKey", "\"workers\"", "\"cores\": 2, \"workers\"", "cores"},
    {"AnUnknownKeyOfALevel", "\"shared\": true", "\"shared\": true, \"ways\": 8", "ways"},
    {"ABandwidthOfALevel", "\"bytes_per_second\": 20000000000.0", "\"bytes_per_second\": 0",
     "levels[1].bytes_per_second is 0"},
    {"ALevelSmallerThanTheOneBefore", "1000000000000.0", "4096",
     "levels[1].bytes must not be less"},
    {"ALevelThatIsNoObject", "\"levels\": [", "\"levels\": [7, ", "levels[0] must be an object"},
    {"ATextThatIsNoJson", "{", "", "JSON"},
    {"ATextThatIsNoObject", "{", "[] ", "JSON"},
};
SLUICE_TABLE(BadDescriptionTable, kBadDescriptionRows);

TEST(DeviceDescription, HasAtLeastOneLevelAndNotMoreThanEight) {
  DeviceDescription none = Described();
  none.levels.clear();
  EXPECT_EQ(ReadDeviceDescription(DeviceDescriptionJson(none)).status().message(),
            "levels must be a list of 1 to 8 objects");
  DeviceDescription many = Described();
  many.levels.insert(many.levels.begin(), 7, many.levels[0]);
  EXPECT_FALSE(ReadDeviceDescription(DeviceDescriptionJson(many)).ok());
  many.levels.erase(many.levels.begin());
  EXPECT_TRUE(ReadDeviceDescription(DeviceDescriptionJson(many)).ok());
}

TEST(DeviceDescription, IsAnObjectOfBoundedSize) {
  EXPECT_FALSE(ReadDeviceDescription("[]").ok());
  EXPECT_FALSE(ReadDeviceDescription(std::string(1 << 20, ' ')).ok());
}

}  // namespace
}  // namespace sluice::einsum
