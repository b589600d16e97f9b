#include "engine/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace sluice {
namespace {

constexpr int32_t kSharedBytesWithoutAsking = 48 << 10;

// Of the errors after which the runtime accepts nothing more in this process.
bool LosesDevice(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
      return true;
    default:
      return false;
  }
}

absl::Status ToStatus(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text =
      absl::StrCat(call, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  if (LosesDevice(error)) return absl::UnavailableError(text);
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

// What a device's streams and events share with it.
class CudaCore {
 public:
  explicit CudaCore(int index) : index_(index) {}

  // To be called before anything else is asked of the runtime: the thread may have served another
  // device.
  absl::Status Use() {
    if (lost_.load(std::memory_order_relaxed)) return absl::UnavailableError("the GPU is lost");
    return Told(cudaSetDevice(index_), "cudaSetDevice");
  }
  absl::Status Told(cudaError_t error, const char* call) {
    absl::Status status = ToStatus(error, call);
    if (absl::IsUnavailable(status)) lost_.store(true, std::memory_order_relaxed);
    return status;
  }
  void CountCapture() { captures_.fetch_add(1, std::memory_order_relaxed); }
  int64_t captures() const { return captures_.load(std::memory_order_relaxed); }

 private:
  const int index_;
  std::atomic<bool> lost_{false};
  std::atomic<int64_t> captures_{0};
};

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(CudaCore& core, cudaEvent_t event) : core_(core), event_(event) {}
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }

  cudaEvent_t get() const { return event_; }
  absl::Status Synchronize() override {
    absl::Status status = core_.Use();
    if (status.ok()) status = core_.Told(cudaEventSynchronize(event_), "cudaEventSynchronize");
    return status;
  }

 private:
  CudaCore& core_;
  cudaEvent_t event_;
};

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(cudaGraphExec_t graph, size_t nodes) : graph_(graph), nodes_(nodes) {}
  ~CudaGraph() override { (void)cudaGraphExecDestroy(graph_); }

  cudaGraphExec_t get() const { return graph_; }
  int64_t nodes() const override { return static_cast<int64_t>(nodes_); }

 private:
  cudaGraphExec_t graph_;
  size_t nodes_;
};

class CudaStream final : public DeviceStream {
 public:
  CudaStream(CudaCore& core, cudaStream_t stream, int32_t processors)
      : core_(core), stream_(stream), processors_(processors) {}
  ~CudaStream() override { (void)cudaStreamDestroy(stream_); }

  int32_t processors() const override { return processors_; }

  void Launch(const kernels::cuda::Kernel& kernel, const kernels::cuda::LaunchShape& shape,
              const void* argument, size_t) override {
    if (!Ready()) return;
    if (shape.shared_bytes > kSharedBytesWithoutAsking) {
      Note(cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                shape.shared_bytes),
           kernel.name);
    }
    void* arguments[] = {const_cast<void*>(argument)};
    Note(cudaLaunchKernel(kernel.function, dim3(static_cast<unsigned>(shape.blocks)),
                          dim3(static_cast<unsigned>(shape.threads)), arguments,
                          static_cast<size_t>(shape.shared_bytes), stream_),
         kernel.name);
  }

  void CopyToDevice(void* device, const void* host, size_t bytes) override {
    Copy(device, host, bytes, cudaMemcpyHostToDevice);
  }
  void CopyToHost(void* host, const void* device, size_t bytes) override {
    Copy(host, device, bytes, cudaMemcpyDeviceToHost);
  }
  void Fill(void* device, uint8_t byte, size_t bytes) override {
    if (Ready()) Note(cudaMemsetAsync(device, byte, bytes, stream_), "cudaMemsetAsync");
  }

  void Record(DeviceEvent& event) override {
    if (!Ready()) return;
    Note(cudaEventRecord(static_cast<CudaEvent&>(event).get(), stream_), "cudaEventRecord");
  }
  void Wait(DeviceEvent& event) override {
    if (!Ready()) return;
    Note(cudaStreamWaitEvent(stream_, static_cast<CudaEvent&>(event).get(), 0),
         "cudaStreamWaitEvent");
  }

  // Thread-local: what other threads do with the device meanwhile neither fails nor is recorded.
  void BeginCapture() override {
    if (!Ready()) return;
    Note(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
         "cudaStreamBeginCapture");
  }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override {
    cudaGraph_t graph = nullptr;
    Note(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    size_t nodes = 0;
    if (status_.ok()) Note(cudaGraphGetNodes(graph, nullptr, &nodes), "cudaGraphGetNodes");
    if (status_.ok()) Note(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    absl::Status status = std::exchange(status_, absl::OkStatus());
    if (!status.ok()) return status;
    core_.CountCapture();
    return std::make_unique<CudaGraph>(executable, nodes);
  }
  void Upload(DeviceGraph& graph) override {
    if (!Ready()) return;
    Note(cudaGraphUpload(static_cast<CudaGraph&>(graph).get(), stream_), "cudaGraphUpload");
  }
  void Run(DeviceGraph& graph) override {
    if (!Ready()) return;
    Note(cudaGraphLaunch(static_cast<CudaGraph&>(graph).get(), stream_), "cudaGraphLaunch");
  }

  absl::Status Synchronize() override {
    if (Ready()) Note(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return std::exchange(status_, absl::OkStatus());
  }

 private:
  void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (Ready()) Note(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpyAsync");
  }

  bool Ready() {
    if (status_.ok()) status_ = core_.Use();
    return status_.ok();
  }
  void Note(cudaError_t error, const char* call) { status_.Update(core_.Told(error, call)); }

  CudaCore& core_;
  cudaStream_t stream_;
  int32_t processors_;
  absl::Status status_;  // the first failure that nobody has been told of
};

// Memory comes from a pool of its own, which keeps what is released: cudaMalloc and cudaFree would
// wait for all work on the device, that of the serving streams included.
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
    return static_cast<int64_t>(free);
  }

  absl::StatusOr<DeviceMemory> Allocate(size_t bytes) override {
    SLUICE_CHECK(bytes >= 1);
    void* memory = nullptr;
    absl::Status status = core_.Use();
    if (status.ok()) {
      status = core_.Told(cudaMallocFromPoolAsync(&memory, bytes, pool_, memory_stream_),
                          "cudaMallocFromPoolAsync");
    }
    if (status.ok()) {
      status = core_.Told(cudaStreamSynchronize(memory_stream_), "cudaStreamSynchronize");
    }
    if (!status.ok()) return status;
    return DeviceMemory(memory, ReleaseMemory{this, false});
  }

  absl::StatusOr<PinnedMemory> AllocatePinned(size_t bytes) override {
    SLUICE_CHECK(bytes >= 1);
    void* memory = nullptr;
    absl::Status status = core_.Use();
    if (status.ok()) status = core_.Told(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    if (!status.ok()) return status;
    return PinnedMemory(memory, ReleaseMemory{this, true});
  }

  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() override {
    cudaStream_t stream = nullptr;
    absl::Status status = core_.Use();
    if (status.ok()) {
      status = core_.Told(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                          "cudaStreamCreateWithFlags");
    }
    if (!status.ok()) return status;
    return std::make_unique<CudaStream>(core_, stream, info_.processors);
  }

  absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    cudaEvent_t event = nullptr;
    absl::Status status = core_.Use();
    if (status.ok()) {
      status = core_.Told(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                          "cudaEventCreateWithFlags");
    }
    if (!status.ok()) return status;
    return std::make_unique<CudaEvent>(core_, event);
  }

 protected:
  void Release(void* memory, bool pinned) override {
    if (!core_.Use().ok()) return;
    (void)(pinned ? cudaFreeHost(memory) : cudaFreeAsync(memory, memory_stream_));
  }

 private:
  mutable CudaCore core_;
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
  absl::Status status = ToStatus(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
  if (!status.ok()) return status;
  uint64_t keep = std::numeric_limits<uint64_t>::max();
  status = ToStatus(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
                    "cudaMemPoolSetAttribute");
  if (status.ok()) return pool;
  (void)cudaMemPoolDestroy(pool);
  return status;
}

}  // namespace

absl::StatusOr<int> CudaDeviceCount() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice) return 0;
  if (error == cudaSuccess) return count;
  return absl::FailedPreconditionError(ToStatus(error, "cudaGetDeviceCount").message());
}

absl::StatusOr<std::unique_ptr<Device>> MakeCudaDevice(int index) {
  const absl::StatusOr<int> count = CudaDeviceCount();
  if (!count.ok()) return count.status();
  if (index < 0 || index >= *count) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", index, " does not exist; there are ", *count));
  }
  cudaDeviceProp properties;
  absl::Status status =
      ToStatus(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  if (status.ok()) status = ToStatus(cudaSetDevice(index), "cudaSetDevice");
  if (!status.ok()) return status;
  if (properties.major < 8 || properties.memoryPoolsSupported == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("GPU ", index, " (", properties.name, ", sm_", properties.major,
                     properties.minor, ") lacks compute capability 8.0 or memory pools"));
  }
  const absl::StatusOr<cudaMemPool_t> pool = CreatePool(index);
  if (!pool.ok()) return pool.status();
  cudaStream_t stream = nullptr;
  status = ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                    "cudaStreamCreateWithFlags");
  if (!status.ok()) {
    (void)cudaMemPoolDestroy(*pool);
    return status;
  }
  return std::make_unique<CudaDevice>(
      index,
      DeviceInfo{.name = properties.name,
                 .architecture = absl::StrCat("sm_", properties.major, properties.minor),
                 .processors = properties.multiProcessorCount,
                 .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem)},
      *pool, stream);
}

}  // namespace sluice
