// The implementation of engine/cuda/device.h on the CPU, which checks its callers as strictly as a
// GPU. It counts calls, runs queued work in any legal order, tracks pinned host memory, and fails
// calls as a script requires.
//
//   auto device = MakeSimtDevice({.order = SimtOrder::kRandom});
//   const SimtCounts before = device->counts();
//   ...
//   EXPECT_EQ((device->counts() - before).waits, 1);
//   EXPECT_EQ(device->fault(), "");
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "engine/cuda/device.h"

namespace sluice::simt {

// The algorithms of a simulated library of dense layers.
enum class SimtDense {
  kInvariant,
  kVaries,           // sums run the other way if there are many rows
  kBackwards,        // sums run the other way: invariant, other bits
  kOtherTile,        // another algorithm with the bits of kInvariant
  kOnlyTo64,         // as kOtherTile, but the bits of kBackwards for more than 64 rows
  kWorkspace,        // as kInvariant, but sums pass through a workspace
  kTrustsWorkspace,  // as kWorkspace, but the first row's sums begin with its content
  kDropsNaN,         // if there is a function, it makes a NaN 0
  kWrongFunction,    // if there is a function, its square is applied
  kUnfinished,       // the last column is not written
  kFloatSums,        // sums of int8 are rounded to float
};

// When queued work runs. Each order respects streams and events, and each finds other faults.
enum class SimtOrder {
  kLate,    // when the host waits for it: finds memory that is reused or released too early
  kEarly,   // when it is queued
  kRandom,  // some of it at every call, of any stream: finds waits that are missing
};
constexpr auto EnumNamesOf(SimtOrder) {
  using enum SimtOrder;
  return EnumNameTable<SimtOrder>({{kLate, "late"}, {kEarly, "early"}, {kRandom, "random"}});
}
// Returns the order that the environment variable SLUICE_SIMT_ORDER names; kLate if it is not set.
SimtOrder SimtOrderOfEnvironment();

// The kinds of calls that can fail, by the function of the runtime that each stands for.
enum class SimtCall {
  kAllocate,
  kAllocatePinned,
  kCreateStream,
  kCreateEvent,
  kLaunch,
  kDense,
  kCopy,
  kFill,
  kRecord,
  kWait,
  kBeginCapture,
  kInstantiate,
  kUpload,
  kRun,
  kSynchronizeStream,
  kSynchronizeEvent,
};
constexpr auto EnumNamesOf(SimtCall) {
  using enum SimtCall;
  return EnumNameTable<SimtCall>({{kAllocate, "cudaMallocFromPoolAsync"},
                                  {kAllocatePinned, "cudaMallocHost"},
                                  {kCreateStream, "cudaStreamCreateWithFlags"},
                                  {kCreateEvent, "cudaEventCreateWithFlags"},
                                  {kLaunch, "cudaLaunchKernel"},
                                  {kDense, "cublasLtMatmul"},
                                  {kCopy, "cudaMemcpyAsync"},
                                  {kFill, "cudaMemsetAsync"},
                                  {kRecord, "cudaEventRecord"},
                                  {kWait, "cudaStreamWaitEvent"},
                                  {kBeginCapture, "cudaStreamBeginCapture"},
                                  {kInstantiate, "cudaGraphInstantiate"},
                                  {kUpload, "cudaGraphUpload"},
                                  {kRun, "cudaGraphLaunch"},
                                  {kSynchronizeStream, "cudaStreamSynchronize"},
                                  {kSynchronizeEvent, "cudaEventSynchronize"}});
}

// The failure of one call, which does nothing.
struct SimtFailure {
  SimtCall call;
  int64_t nth;        // counted from 1
  int32_t code;       // of engine/cuda/cuda_errors.h; for kDense a status of the library
  int32_t probe = 0;  // the code that the runtime then returns for a harmless call
};

// Counts since the device was made, all of them int64_t. Captured work counts when its graph runs,
// as nodes. The last five are current use, so their difference is the amount leaked.
struct SimtCounts {
  int64_t waits = 0;     // of the host, for a stream or an event
  int64_t launches = 0;  // of kernels
  int64_t layers = 0;    // of the library
  int64_t runs = 0, nodes = 0;
  int64_t copies_to_device = 0, bytes_to_device = 0;
  int64_t copies_to_host = 0, bytes_to_host = 0;
  int64_t copies_on_device = 0;
  int64_t fills = 0;
  int64_t allocations = 0, pinned_allocations = 0;
  int64_t captures = 0;
  int64_t ran = 0;  // pieces of queued work that ran
  // Multiply-adds of the library's layers without heads, counted in their loops when they run.
  int64_t layer_multiply_adds = 0;
  int64_t refused = 0;  // calls after the device was lost

  int64_t device_bytes = 0, pinned_bytes = 0;
  int64_t streams = 0, events = 0, graphs = 0;

  bool operator==(const SimtCounts&) const = default;
};
SimtCounts operator-(const SimtCounts& after, const SimtCounts& before);

struct SimtOptions {
  uint64_t seed = 1;                  // for the order of blocks and threads, and of work
  std::string architecture = "simt";  // DeviceInfo::architecture, which candidates ask for
  int32_t processors = 1;             // few, so that persistent kernels loop
  int64_t memory_bytes = 1 << 30;
  // The part of memory_bytes that each captured graph takes; 0: it takes none, like a driver that
  // shows none.
  int64_t graph_bytes = 0;
  int32_t shared_bytes_limit = 227 << 10;  // of a block
  // Few runs, since an emulated kernel takes long. Tests of trials ask for more.
  CheckEffort check = {.runs = 1, .busy_bytes = 4 << 10};
  // The algorithms of the library; if empty, there is no library. The first word of an algorithm is
  // its SimtDense. A kept algorithm may be one that is not offered here; another first word is
  // refused.
  std::vector<SimtDense> dense{};
  // The algorithms of some classes of rows, by the last number of rows; other classes have `dense`.
  std::map<int32_t, std::vector<SimtDense>> dense_of_classes{};
  SimtOrder order = SimtOrderOfEnvironment();
  std::vector<SimtFailure> failures{};
};

class SimtDevice : public Device {
 public:
  // Makes live memory unreadable until it is written; a read gives NaN.
  virtual void Poison(void* begin, size_t bytes) = 0;
  // Makes the device lost from here on, as after a fault of its own.
  virtual void Lose(const std::string& fault) = 0;

  virtual SimtCounts counts() const = 0;
  // Returns the number of calls of a kind so far. SimtFailure::nth counts in the same way.
  virtual int64_t calls(SimtCall call) const = 0;
  // Returns the first fault of the program, such as a bad access; empty if there was none, although
  // a scripted failure may have lost the device.
  virtual std::string fault() const = 0;
};

std::unique_ptr<SimtDevice> MakeSimtDevice(const SimtOptions& options = {});

}  // namespace sluice::simt
