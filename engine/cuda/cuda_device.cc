#include "engine/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdlib>
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

// A GPU. Memory comes from a pool of its own, which keeps released memory: cudaMalloc and cudaFree
// would wait for all work on the device, including that of the serving streams.
class CudaDevice final : public Device {
 public:
  CudaDevice(int index, DeviceInfo info, cudaMemPool_t pool, cudaStream_t memory_stream)
      : core_(index), info_(std::move(info)), pool_(pool), memory_stream_(memory_stream) {}
  ~CudaDevice() override {
    (void)cudaStreamDestroy(memory_stream_);
    (void)cudaMemPoolDestroy(pool_);
  }

  const DeviceInfo& info() const override { return info_; }

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
    SLUICE_RETURN_IF_ERROR(core_.RecordError(
        cudaMallocFromPoolAsync(&memory, bytes, pool_, memory_stream_), "cudaMallocFromPoolAsync"));
    SLUICE_RETURN_IF_ERROR(
        core_.RecordError(cudaStreamSynchronize(memory_stream_), "cudaStreamSynchronize"));
    return DeviceMemory(memory, ReleaseMemory{this, false});
  }

  absl::StatusOr<PinnedMemory> AllocatePinned(size_t bytes) override {
    SLUICE_CHECK(bytes >= 1);
    void* memory = nullptr;
    SLUICE_RETURN_IF_ERROR(core_.Use());
    SLUICE_RETURN_IF_ERROR(core_.RecordError(cudaMallocHost(&memory, bytes), "cudaMallocHost"));
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
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags"));
    return std::make_unique<CudaEvent>(core_, event);
  }

  absl::StatusOr<std::string> DenseLibrary() const override {
    SLUICE_ASSIGN_OR_RETURN(const CublasLt* library, Library());
    return library->name();
  }
  std::vector<std::unique_ptr<DenseLayer>> DenseCandidates(const DenseShape& shape) override {
    std::vector<std::unique_ptr<DenseLayer>> layers;
    const absl::StatusOr<const CublasLt*> library = Library();
    if (!library.ok()) return layers;
    for (const CublasLt::Algorithm& algorithm : (*library)->Algorithms(shape)) {
      layers.push_back(std::make_unique<CudaDenseLayer>(**library, shape, algorithm));
    }
    return layers;
  }

 protected:
  void Release(void* memory, bool pinned) override {
    if (!core_.Use().ok()) return;
    (void)(pinned ? cudaFreeHost(memory) : cudaFreeAsync(memory, memory_stream_));
  }

 private:
  uint64_t PoolAttribute(cudaMemPoolAttr attribute) const {
    uint64_t value = 0;
    return cudaMemPoolGetAttribute(pool_, attribute, &value) == cudaSuccess ? value : 0;
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
  cudaMemPool_t pool_;
  cudaStream_t memory_stream_;
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

}  // namespace

absl::StatusOr<int> CudaDeviceCount() {
  // Eager loading loads all kernels with the device, and none while a graph is captured or a
  // request waits. Only the first call of the runtime reads this variable.
  (void)setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice) return 0;
  if (error == cudaSuccess) return count;
  return absl::FailedPreconditionError(ToStatus(error, "cudaGetDeviceCount").message());
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index) {
  SLUICE_ASSIGN_OR_RETURN(const int count, CudaDeviceCount());
  if (index < 0 || index >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", index, " does not exist; there are ", count));
  }
  cudaDeviceProp properties;
  SLUICE_RETURN_IF_ERROR(
      ToStatus(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties"));
  SLUICE_RETURN_IF_ERROR(ToStatus(cudaSetDevice(index), "cudaSetDevice"));
  if (properties.major < 8 || properties.memoryPoolsSupported == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("GPU ", index, " (", properties.name, ", sm_", properties.major,
                     properties.minor, ") lacks compute capability 8.0 or memory pools"));
  }
  SLUICE_ASSIGN_OR_RETURN(const cudaMemPool_t pool, CreatePool(index));
  cudaStream_t stream = nullptr;
  absl::Status status = ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                 "cudaStreamCreateWithFlags");
  if (!status.ok()) {
    (void)cudaMemPoolDestroy(pool);
    return status;
  }
  return std::make_unique<CudaDevice>(
      index,
      DeviceInfo{.name = properties.name,
                 .architecture = absl::StrCat("sm_", properties.major, properties.minor),
                 .processors = properties.multiProcessorCount,
                 .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                 .shared_bytes_limit = static_cast<int32_t>(properties.sharedMemPerBlockOptin)},
      pool, stream);
}

}  // namespace sluice
