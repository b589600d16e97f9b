#include "engine/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "engine/cuda/cublaslt.h"
#include "engine/cuda/cuda_stream.h"
#include "engine/cuda/gpu_count.h"
#include "engine/cuda/pinned_pool.h"
#include "kernels/simt/kernel_registry.h"

namespace sluice {
namespace {

class CudaDenseLayer final : public DenseLayer {
 public:
  CudaDenseLayer(const CublasLt& library, const DenseShape& shape,
                 const CublasLt::Algorithm& algorithm)
      : library_(library), shape_(shape), algorithm_(algorithm) {}

  void Run(const DenseArgs& args, DeviceStream& stream) const override {
    static_cast<CudaStream&>(stream).Queue(
        [&](cudaStream_t queue) { return library_.Run(shape_, algorithm_, args, queue); });
  }
  size_t workspace_bytes() const override { return algorithm_.workspace_bytes; }
  DenseAlgorithm algorithm() const override {
    return std::bit_cast<DenseAlgorithm>(algorithm_.opaque);
  }
  std::string Describe() const override { return library_.Describe(algorithm_.opaque); }

 private:
  const CublasLt& library_;
  const DenseShape shape_;
  const CublasLt::Algorithm algorithm_;
};

// The longest time that a wait polls. Some microseconds mean nothing to a step that takes longer.
constexpr std::chrono::milliseconds kLongestSpin{20};

// The most pinned memory that is kept for later use.
constexpr size_t kMaxPinnedKept = size_t{1} << 30;

// A GPU. Memory comes from a pool of its own, which keeps released memory: cudaMalloc and cudaFree
// would wait for all work on the device, including the serving streams. A GPU without pools uses
// cudaMalloc and cudaFree.
class CudaDevice final : public Device {
 public:
  // A null `pool` stands for a GPU without pools.
  CudaDevice(int index, nanoseconds spin, DeviceInfo info, std::vector<KernelInfo> kernels,
             cudaMemPool_t pool, cudaStream_t memory_stream)
      : core_(index, spin),
        info_(std::move(info)),
        kernels_(std::move(kernels)),
        pool_(pool),
        memory_stream_(memory_stream) {}
  ~CudaDevice() override {
    (void)cudaStreamDestroy(memory_stream_);
    if (pool_ != nullptr) (void)cudaMemPoolDestroy(pool_);
  }

  const DeviceInfo& info() const override { return info_; }
  std::vector<KernelInfo> KernelTable() const override { return kernels_; }

  int64_t captures() const override { return core_.captures(); }
  int64_t FreeMemory() const override {
    size_t free = 0, total = 0;
    if (!core_.Use().ok() || cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
    const uint64_t reserved = PoolAttribute(cudaMemPoolAttrReservedMemCurrent);
    const uint64_t used = PoolAttribute(cudaMemPoolAttrUsedMemCurrent);
    return static_cast<int64_t>(free + (reserved > used ? reserved - used : 0));
  }

  absl::StatusOr<DeviceMemory> Allocate(size_t bytes) override {
    SLUICE_CHECK(bytes >= 1);
    void* memory = nullptr;
    SLUICE_RETURN_IF_ERROR(core_.Use());
    if (pool_ == nullptr) {
      SLUICE_RETURN_IF_ERROR(core_.RecordError(cudaMalloc(&memory, bytes), "cudaMalloc"));
      return DeviceMemory(memory, ReleaseMemory{this, false});
    }
    SLUICE_RETURN_IF_ERROR(core_.RecordError(
        cudaMallocFromPoolAsync(&memory, bytes, pool_, memory_stream_), "cudaMallocFromPoolAsync"));
    SLUICE_RETURN_IF_ERROR(
        core_.RecordError(cudaStreamSynchronize(memory_stream_), "cudaStreamSynchronize"));
    return DeviceMemory(memory, ReleaseMemory{this, false});
  }

  absl::StatusOr<PinnedMemory> AllocatePinned(size_t bytes) override {
    SLUICE_CHECK(bytes >= 1);
    SLUICE_RETURN_IF_ERROR(core_.Use());
    SLUICE_ASSIGN_OR_RETURN(void* const memory, pinned_.Take(bytes));
    return PinnedMemory(memory, ReleaseMemory{this, true});
  }

  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() override {
    cudaStream_t stream = nullptr;
    SLUICE_RETURN_IF_ERROR(core_.Use());
    SLUICE_RETURN_IF_ERROR(core_.RecordError(
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
    return std::make_unique<CudaStream>(core_, stream, info_);
  }

  absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    cudaEvent_t event = nullptr;
    SLUICE_RETURN_IF_ERROR(core_.Use());
    SLUICE_RETURN_IF_ERROR(core_.RecordError(
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
        "cudaEventCreateWithFlags"));
    return std::make_unique<CudaEvent>(core_, event);
  }

  // Runs several times in a row, so that the time of a launch by the host counts little.
  absl::StatusOr<double> SecondsOf(DeviceGraph& graph, DeviceStream& stream) override {
    constexpr int kRounds = 7, kRunsInARow = 8;
    std::array<double, kRounds> seconds;
    for (int round = -1; round < kRounds; ++round) {  // the first round warms up
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kRunsInARow; ++i) stream.Run(graph);
      SLUICE_RETURN_IF_ERROR(stream.Synchronize());
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (round >= 0) seconds[round] = taken.count() / kRunsInARow;
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
    return seconds[kRounds / 2];
  }

  absl::StatusOr<std::string> DenseLibrary() const override {
    SLUICE_ASSIGN_OR_RETURN(const CublasLt* library, Library());
    return library->name();
  }
  std::vector<std::unique_ptr<DenseLayer>> DenseCandidates(const DenseShape& shape,
                                                           const RowClass& rows) override {
    std::vector<std::unique_ptr<DenseLayer>> layers;
    const absl::StatusOr<const CublasLt*> library = Library();
    if (!library.ok()) return layers;
    for (const CublasLt::Algorithm& algorithm : (*library)->Algorithms(shape, rows)) {
      layers.push_back(std::make_unique<CudaDenseLayer>(**library, shape, algorithm));
    }
    return layers;
  }

 protected:
  void Release(void* memory, bool pinned) override {
    if (pinned) return pinned_.Release(memory);
    if (!core_.Use().ok()) return;
    (void)(pool_ == nullptr ? cudaFree(memory) : cudaFreeAsync(memory, memory_stream_));
  }

 private:
  uint64_t PoolAttribute(cudaMemPoolAttr attribute) const {
    uint64_t value = 0;
    if (pool_ == nullptr) return 0;
    return cudaMemPoolGetAttribute(pool_, attribute, &value) == cudaSuccess ? value : 0;
  }

  absl::StatusOr<void*> Pin(size_t bytes) {
    void* memory = nullptr;
    SLUICE_RETURN_IF_ERROR(core_.Use());
    SLUICE_RETURN_IF_ERROR(core_.RecordError(cudaMallocHost(&memory, bytes), "cudaMallocHost"));
    return memory;
  }
  void Unpin(void* memory) {
    if (core_.Use().ok()) (void)cudaFreeHost(memory);
  }

  // Returns the library, which the first call opens.
  absl::StatusOr<const CublasLt*> Library() const {
    const MutexLock lock(&library_mutex_);
    if (library_ == nullptr) {
      SLUICE_RETURN_IF_ERROR(core_.Use());
      SLUICE_ASSIGN_OR_RETURN(library_, CublasLt::Open());
    }
    return library_.get();
  }

  mutable CudaCore core_;
  mutable Mutex library_mutex_;
  mutable std::unique_ptr<CublasLt> library_ ABSL_GUARDED_BY(library_mutex_);
  DeviceInfo info_;
  std::vector<KernelInfo> kernels_;
  cudaMemPool_t pool_;
  cudaStream_t memory_stream_;
  PinnedPool pinned_{{.pin = [this](size_t bytes) { return Pin(bytes); },
                      .unpin = [this](void* memory) { Unpin(memory); }},
                     kMaxPinnedKept};
};

absl::StatusOr<cudaMemPool_t> CreatePool(int index) {
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = index;
  cudaMemPool_t pool = nullptr;
  SLUICE_RETURN_IF_ERROR(ToStatus(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate"));
  uint64_t keep = std::numeric_limits<uint64_t>::max();
  absl::Status status =
      ToStatus(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
               "cudaMemPoolSetAttribute");
  if (status.ok()) return pool;
  (void)cudaMemPoolDestroy(pool);
  return status;
}

// Loads the kernel to the current device, allows it the shared memory of `properties`, and returns
// its properties.
absl::StatusOr<KernelInfo> PrepareKernel(const simt::RegisteredKernel& kernel,
                                         const cudaDeviceProp& properties) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel.function);
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
    return absl::FailedPreconditionError(absl::StrCat("this build has no kernels for sm_",
                                                      properties.major, properties.minor,
                                                      ", such as ", kernel.name));
  }
  SLUICE_RETURN_IF_ERROR(ToStatus(error, "cudaFuncGetAttributes"));
  const auto shared_bytes = static_cast<int>(attributes.sharedSizeBytes);
  SLUICE_RETURN_IF_ERROR(ToStatus(
      cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(properties.sharedMemPerBlockOptin) - shared_bytes),
      "cudaFuncSetAttribute"));
  int blocks = 0;
  SLUICE_RETURN_IF_ERROR(ToStatus(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                                      &blocks, kernel.function, attributes.maxThreadsPerBlock, 0),
                                  "cudaOccupancyMaxActiveBlocksPerMultiprocessor"));
  return KernelInfo{.name = kernel.name,
                    .registers = attributes.numRegs,
                    .local_bytes = static_cast<int32_t>(attributes.localSizeBytes),
                    .shared_bytes = shared_bytes,
                    .max_threads = attributes.maxThreadsPerBlock,
                    .blocks_per_processor = blocks};
}

// The runtime loads a kernel at its first use, so it does not load the vendor's library, which has
// half a gigabyte of kernels, as a whole. This project's kernels are loaded here, because loading
// one during a capture fails, and loading one while a request waits stalls the device. The
// library's kernels are loaded when the algorithms are tried.
absl::StatusOr<std::vector<KernelInfo>> PrepareKernels(const cudaDeviceProp& properties) {
  std::vector<KernelInfo> table;
  for (const simt::RegisteredKernel& kernel : simt::RegisteredKernels()) {
    SLUICE_ASSIGN_OR_RETURN(KernelInfo info, PrepareKernel(kernel, properties));
    table.push_back(std::move(info));
  }
  return table;
}

}  // namespace

absl::StatusOr<int> CudaDeviceCount() {
  GpuAnswers answers;
  const cudaError_t error = cudaGetDeviceCount(&answers.count);
  if (error != cudaSuccess) {
    answers.error = std::string(ToStatus(error, "cudaGetDeviceCount").message());
    answers.none_found = error == cudaErrorNoDevice;
    if (cudaDriverGetVersion(&answers.driver_version) != cudaSuccess) answers.driver_version = 0;
    answers.runtime_version = CUDART_VERSION;
  }
  return CountOf(answers);
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index,
                                                       const CudaDeviceOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const int count, CudaDeviceCount());
  if (index < 0 || index >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", index, " does not exist; the number of GPUs is ", count));
  }
  cudaDeviceProp properties;
  SLUICE_RETURN_IF_ERROR(
      ToStatus(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties"));
  const std::string name = absl::StrCat("GPU ", index, " (", properties.name, ", sm_",
                                        properties.major, properties.minor, ")");
  if (properties.major < 8) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " lacks compute capability 8.0, which the CUDA kernels need"));
  }
  SLUICE_RETURN_IF_ERROR(ToStatus(cudaSetDevice(index), "cudaSetDevice"));
  SLUICE_ASSIGN_OR_RETURN(std::vector<KernelInfo> kernels, PrepareKernels(properties));
  DeviceInfo info{.name = properties.name,
                  .architecture = absl::StrCat("sm_", properties.major, properties.minor),
                  .processors = properties.multiProcessorCount,
                  .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                  .shared_bytes_limit = static_cast<int32_t>(properties.sharedMemPerBlockOptin),
                  .check = options.check};
  cudaMemPool_t pool = nullptr;
  if (properties.memoryPoolsSupported != 0) {
    SLUICE_ASSIGN_OR_RETURN(pool, CreatePool(index));
  } else {
    info.warning = absl::StrCat(name, " has no memory pools: loading a model makes others wait");
  }
  cudaStream_t stream = nullptr;
  absl::Status status = ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                 "cudaStreamCreateWithFlags");
  if (!status.ok()) {
    if (pool != nullptr) (void)cudaMemPoolDestroy(pool);
    return status;
  }
  return std::make_unique<CudaDevice>(index, options.spin ? kLongestSpin : nanoseconds(0),
                                      std::move(info), std::move(kernels), pool, stream);
}

}  // namespace sluice
