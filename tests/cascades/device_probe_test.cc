#include "cascades/device_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "kernels/cpu/profile.h"
#include "kernels/cpu/thread_pool.h"

namespace sluice::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ProbeDevice, DescribesAPlausibleProcessor) {
  kernels::ThreadPool pool(2);
  const kernels::Context context = {kernels::BestProfile(), &pool};
  const einsum::DeviceDescription device = ProbeDevice(context);
  EXPECT_EQ(device.workers, 2);
  EXPECT_GT(device.flops_per_second, 0);
  EXPECT_EQ(device.bf16_flops_per_second > 0, kernels::MultipliesInBf16(context.profile));
  EXPECT_GT(device.exponentials_per_second, 0);
  EXPECT_GT(device.launch_seconds, 0);
  ASSERT_GE(device.levels.size(), 2u);
  for (size_t i = 0; i < device.levels.size(); ++i) {
    const einsum::DeviceDescription::Level& level = device.levels[i];
    SCOPED_TRACE(level.name);
    EXPECT_GT(level.bytes_per_second, 0);
    EXPECT_EQ(level.worker_bytes_per_second > 0, level.shared);
    EXPECT_GT(level.bytes, i == 0 ? 0 : device.levels[i - 1].bytes);
  }
  EXPECT_TRUE(device.levels.back().shared);
  // Measured values are within the limits of a file.
  const auto read = einsum::ReadDeviceDescription(einsum::DeviceDescriptionJson(device));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, device);
}

class ReadDeviceFileTest : public ::testing::Test {
 protected:
  // Reads a file with this content.
  absl::StatusOr<einsum::DeviceDescription> Read(const std::string& text) const {
    std::ofstream(path_) << text;
    return ReadDeviceFile(path_);
  }

  const std::string path_ = ::testing::TempDir() + "device_probe_test_device.json";
  const einsum::DeviceDescription device_ = {
      .name = "two cores",
      .workers = 2,
      .flops_per_second = 1e11,
      .exponentials_per_second = 1e9,
      .launch_seconds = 1e-6,
      .levels = {{.name = "memory", .bytes = 1e15, .bytes_per_second = 1e10, .shared = true}}};
  const std::string json_ = einsum::DeviceDescriptionJson(device_);
};

TEST_F(ReadDeviceFileTest, ReturnsTheDescriptionInTheFile) {
  const auto device = Read(json_);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(*device, device_);
}

TEST_F(ReadDeviceFileTest, ErrorsNameTheFile) {
  const absl::Status missing = ReadDeviceFile(path_ + ".missing").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), StartsWith("cannot read " + path_ + ".missing: "));

  const absl::Status damaged = Read(json_.substr(0, json_.size() / 2)).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(damaged.message()), StartsWith(path_ + ": "));

  std::string changed = json_;
  changed.replace(changed.find("\"workers\": 2"), 12, "\"workers\": 0");
  const absl::Status wrong = Read(changed).status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wrong.message()), StartsWith(path_ + ": workers is 0"));

  // The description is followed only by space, so that only its length is wrong.
  const absl::Status too_long = Read(json_ + std::string(64 << 10, ' ')).status();
  EXPECT_EQ(too_long.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_long.message()),
              AllOf(StartsWith(path_ + ": "), HasSubstr("at most 65536")));
}

}  // namespace
}  // namespace sluice::testing
