// A CUDA device as the engine uses it: memory, streams, events, capture and replay. It is
// implemented over the CUDA runtime (cuda_device.cc) and by the emulator of kernels/simt.
//
// Ownership: a Device outlives all that it made.
//
// Threads: a Device is thread-safe; a stream, an event and a graph are used by one thread at a
// time.
//
// Errors: calls that queue work return nothing. The first failure of a stream is kept and returned
// by its next EndCapture, TakeStatus or Synchronize. An error of the device itself (a bad access, a
// lost device) is sticky: every later call fails as Unavailable and does not use the device any
// more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/dense_layer.h"
#include "kernels/simt/stream.h"

namespace sluice {

// How hard the device's owner tries a kernel before it may serve (engine/cuda/row_check.h).
struct CheckEffort {
  int32_t runs = 20;              // of each batch; every second one beside a busy stream
  int32_t busy_bytes = 64 << 20;  // that a work of the busy stream reads
};

struct DeviceInfo {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  std::string architecture;  // "sm_90"; part of the numerics profile
  int32_t processors;
  int64_t memory_bytes;
  int32_t shared_bytes_limit;  // of a block
  std::string warning = "";    // features that this GPU lacks, for the log; or empty
  CheckEffort check = {};
};

// A device's information about a kernel; unknown values are 0.
struct KernelInfo {
  std::string name;          // with the type of the argument
  int32_t registers = 0;     // of a thread
  int32_t local_bytes = 0;   // of a thread: registers that were spilled, and arrays
  int32_t shared_bytes = 0;  // of a block, without the memory that a launch adds
  int32_t max_threads = 0;   // of a block
  // The blocks of max_threads that a processor runs at a time if a launch adds no shared memory.
  int32_t blocks_per_processor = 0;
};

class Device;

struct ReleaseMemory {
  Device* device = nullptr;
  bool pinned = false;
  void operator()(void* memory) const;
};
using DeviceMemory = std::unique_ptr<void, ReleaseMemory>;  // 256-byte aligned
using PinnedMemory = std::unique_ptr<void, ReleaseMemory>;  // host memory, page-locked

// A point in the work of a stream.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Blocks until the work before the last Record is done; returns at once if there was none.
  virtual absl::Status Synchronize() = 0;
};

// Captured work, ready to run. Runs of one graph follow one another.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual int64_t nodes() const = 0;
  // Returns the device memory that the capture took: the decrease of free memory, or an estimate by
  // the number of nodes if the driver shows no decrease, because it took the memory from a reserve.
  virtual int64_t memory_bytes() const = 0;
};

// The estimate of the memory of a graph's node. A public measurement of empty kernels with CUDA
// 11.2 and driver 470 found about 66 KB for each (NVIDIA developer forum, "Increasing memory
// footprint with large task graphs"). Newer drivers need less.
inline constexpr int64_t kNodeBytes = 64 << 10;

class DeviceStream : public kernels::cuda::Stream {
 public:
  // Copies. Host memory is pinned, and is read or written when the stream reaches the copy, not
  // during the call.
  virtual void CopyToDevice(void* device, const void* host, size_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* device, size_t bytes) = 0;
  virtual void CopyOnDevice(void* to, const void* from, size_t bytes) = 0;
  virtual void Fill(void* device, uint8_t byte, size_t bytes) = 0;

  virtual void Record(DeviceEvent& event) = 0;
  // Makes work that is queued from here on start after the last Record of `event`.
  virtual void Wait(DeviceEvent& event) = 0;

  // Work that is queued between BeginCapture and EndCapture is recorded instead of run: launches
  // with their arguments, copies with their addresses. Record and Wait must not be called in
  // between. Other threads and streams are not affected.
  virtual void BeginCapture() = 0;
  // Returns the graph, already on the device, so its first Run takes no longer than later ones.
  // Returns ResourceExhausted if device memory does not suffice for it.
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() = 0;
  virtual void Run(DeviceGraph& graph) = 0;

  // Returns the first failure to queue something since the last call; does not wait.
  virtual absl::Status TakeStatus() = 0;
  // Blocks until all queued work is done.
  virtual absl::Status Synchronize() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // Returns the bytes that Allocate may still return, including memory that the device keeps from
  // earlier allocations; 0 after a sticky error.
  virtual int64_t FreeMemory() const = 0;
  // Returns the number of graphs captured so far.
  virtual int64_t captures() const = 0;
  // Returns the kernels of this project by name; empty if the device does not have the list.
  virtual std::vector<KernelInfo> KernelTable() const { return {}; }

  // Returns ResourceExhausted if memory does not suffice. Requires `bytes` >= 1. The content is
  // undefined. Releasing does not wait for queued work, so memory must be kept until the work that
  // uses it is done. Allocating does not wait either, except on a device without memory pools, and
  // for pinned memory of a size that was not released before.
  virtual absl::StatusOr<DeviceMemory> Allocate(size_t bytes) = 0;
  virtual absl::StatusOr<PinnedMemory> AllocatePinned(size_t bytes) = 0;

  virtual absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent() = 0;

  // Runs a captured graph several times on `stream` and returns the seconds that a run takes, as
  // the median. An emulator runs nothing and returns a figure that depends only on the graph.
  virtual absl::StatusOr<double> SecondsOf(DeviceGraph& graph, DeviceStream& stream) = 0;

  // Returns the vendor's library of dense layers by name and version, which is part of the numerics
  // profile; or FailedPrecondition with the reason why there is none.
  virtual absl::StatusOr<std::string> DenseLibrary() const = 0;
  // Returns the library's algorithms for a class of rows of a shape, the one that it considers best
  // first; empty if it has none. They can compute the class and one tried number of rows beyond
  // each edge; the algorithms of the largest class can compute all classes. None of them splits
  // sums over k.
  virtual std::vector<std::unique_ptr<DenseLayer>> DenseCandidates(const DenseShape& shape,
                                                                   const RowClass& rows) = 0;

 protected:
  friend struct ReleaseMemory;
  virtual void Release(void* memory, bool pinned) = 0;
};

inline void ReleaseMemory::operator()(void* memory) const { device->Release(memory, pinned); }

}  // namespace sluice
