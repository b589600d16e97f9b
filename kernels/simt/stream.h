// The stream that launches kernels. A stream belongs to a CUDA device or to the emulator of this
// folder; engine/cuda/device.h has the rest of a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace sluice::kernels::cuda {

// A __global__ function of one argument. Made by KernelOf (kernels/simt/simt.h).
struct Kernel {
  const char* name;
  const void* function;  // the function that the CUDA runtime launches
  // Runs `function` as the current thread of the emulator; null on CUDA.
  void (*run_thread)(const void* function, const void* argument) = nullptr;
};

struct LaunchShape {
  int32_t blocks;            // >= 1
  int32_t threads;           // per block, a multiple of 32, <= 1024
  int32_t shared_bytes = 0;  // per block
  // Whether blocks may start before the previous launch has ended. Requires that every thread calls
  // WaitForPrevious (kernels/simt/simt.h).
  bool overlaps_previous = false;
};

// The shared memory that a block may use on every GPU of compute capability 8.0 and above.
inline constexpr int32_t kSharedBytesOfEveryGpu = 99 << 10;

// Runs launches in order. Launch copies the argument, so a captured launch repeats with the values
// of its capture. Data that varies from step to step must be on the device.
//
// The stream keeps the first failure, and later launches do nothing. The stream's owner gets the
// failure from the next call that returns a status.
class Stream {
 public:
  virtual ~Stream() = default;

  virtual void Launch(const Kernel& kernel, const LaunchShape& shape, const void* argument,
                      size_t argument_bytes) = 0;
  // Returns the number of multiprocessors of the device, which determines the size of a persistent
  // grid.
  virtual int32_t processors() const = 0;
  // Returns the most shared memory, in bytes, that a block may take. A launch with more fails.
  virtual int32_t shared_bytes_limit() const = 0;
};

template <typename Argument>
void Launch(Stream& stream, const Kernel& kernel, const LaunchShape& shape,
            const Argument& argument) {
  static_assert(std::is_trivially_copyable_v<Argument>);
  stream.Launch(kernel, shape, &argument, sizeof(argument));
}

// Returns the number of blocks for a kernel that loops over up to `items`: enough to fill the
// device, and at most the number of items.
inline int32_t PersistentBlocks(const Stream& stream, int64_t items, int32_t per_processor) {
  const int64_t resident = int64_t{stream.processors()} * per_processor;
  const int64_t blocks = items < resident ? items : resident;
  return blocks < 1 ? 1 : static_cast<int32_t>(blocks);
}

}  // namespace sluice::kernels::cuda
