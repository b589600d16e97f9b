// Shared by the tests of the CUDA kernels: dtypes and the device.
#pragma once

#include <string>

#include "kernels/cuda/rows.h"
#include "kernels/simt/stream.h"
#include "tests/kernels/common/values.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/support/device_lab.h"

namespace sluice::kernels::cuda {

using DTypes = testing::Types<float, BFloat16>;

// A device's stream that reports at most `limit` bytes of shared memory for a block, and
// `processors` as the device's number of processors unless that is 0.
class LimitedStream final : public Stream {
 public:
  LimitedStream(Stream& stream, int32_t limit, int32_t processors = 0)
      : stream_(stream),
        limit_(std::min(limit, stream.shared_bytes_limit())),
        processors_(processors > 0 ? processors : stream.processors()) {}

  void Launch(const Kernel& kernel, const LaunchShape& shape, const void* argument,
              size_t argument_bytes) override {
    EXPECT_LE(shape.shared_bytes, limit_) << kernel.name;
    stream_.Launch(kernel, shape, argument, argument_bytes);
  }
  int32_t processors() const override { return processors_; }
  int32_t shared_bytes_limit() const override { return limit_; }

 private:
  Stream& stream_;
  int32_t limit_;
  int32_t processors_;
};

// A device's stream that reports another number of processors. Products choose tiles by it.
class StreamOfProcessors final : public Stream {
 public:
  StreamOfProcessors(Stream& stream, int32_t processors)
      : stream_(stream), processors_(processors) {}

  void Launch(const Kernel& kernel, const LaunchShape& shape, const void* argument,
              size_t argument_bytes) override {
    kernel_ = kernel.name;
    stream_.Launch(kernel, shape, argument, argument_bytes);
  }
  int32_t processors() const override { return processors_; }
  int32_t shared_bytes_limit() const override { return stream_.shared_bytes_limit(); }
  // Returns the last kernel that was launched.
  const std::string& kernel() const { return kernel_; }

 private:
  Stream& stream_;
  int32_t processors_;
  std::string kernel_;
};
// With few processors, all products with enough rows have large tiles. With many, no product does.
inline constexpr int32_t kFewProcessors = 1, kManyProcessors = 1000;

// A device, a seed that differs between tests but not between runs, and the live rows of a step
// that is smaller than its bucket.
class OpTest : public testing::Test {
 protected:
  OpTest() { RecordProperty("seed", static_cast<int>(kSeed)); }

  static constexpr uint64_t kSeed = 20261121;
  std::mt19937_64 random_{kSeed};
  DeviceLab lab_{MakeDeviceUnderTest(kSeed)};

  LiveRows Live(int32_t count, int32_t spare = 3) {
    return {lab_.Put<int32_t>({count}), count + spare};
  }
};

}  // namespace sluice::kernels::cuda
