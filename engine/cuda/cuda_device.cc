#include "engine/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/check.h"

namespace sluice {
namespace {

constexpr int32_t kSharedBytesWithoutAsking = 48 << 10;

absl::Status ToStatus(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text =
      absl::StrCat(call, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

class CudaEvent final : public DeviceEvent {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }

  cudaEvent_t get() const { return event_; }
  absl::Status Synchronize() override {
    return ToStatus(cudaEventSynchronize(event_), "cudaEventSynchronize");
  }

 private:
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
  CudaStream(int device, cudaStream_t stream, int32_t processors)
      : device_(device), stream_(stream), processors_(processors) {}
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
    Note(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return std::exchange(status_, absl::OkStatus());
  }

 private:
  void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (Ready()) Note(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpyAsync");
  }

  // The calling thread may have served another device.
  bool Ready() {
    Note(cudaSetDevice(device_), "cudaSetDevice");
    return status_.ok();
  }
  void Note(cudaError_t error, const char* call) { status_.Update(ToStatus(error, call)); }

  int device_;
  cudaStream_t stream_;
  int32_t processors_;
  absl::Status status_;  // the first failure that nobody has been told of
};

// Memory comes from a pool of its own, which keeps what is released: cudaMalloc and cudaFree would
// wait for all work on the device, that of the serving streams included.
class CudaDevice final : public Device {
 public:
  CudaDevice(int index, DeviceInfo info, cudaMemPool_t pool, cudaStream_t memory_stream)
      : index_(index), info_(std::move(info)), pool_(pool), memory_stream_(memory_stream) {}
  ~CudaDevice() override {
    (void)cudaStreamDestroy(memory_stream_);
    (void)cudaMemPoolDestroy(pool_);
  }

  const DeviceInfo& info() const override { return info_; }

  int64_t FreeMemory() const override {
    size_t free = 0, total = 0;
    if (!Use().ok() || cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
    return static_cast<int64_t>(free);
  }

  absl::StatusOr<DeviceMemory> Allocate(size_t bytes) override {
    SLUICE_CHECK(bytes >= 1);
    void* memory = nullptr;
    absl::Status status = Use();
    if (status.ok()) {
      status = ToStatus(cudaMallocFromPoolAsync(&memory, bytes, pool_, memory_stream_),
                        "cudaMallocFromPoolAsync");
    }
    if (status.ok()) {
      status = ToStatus(cudaStreamSynchronize(memory_stream_), "cudaStreamSynchronize");
    }
    if (!status.ok()) return status;
    return DeviceMemory(memory, ReleaseMemory{this, false});
  }

  absl::StatusOr<PinnedMemory> AllocatePinned(size_t bytes) override {
    SLUICE_CHECK(bytes >= 1);
    void* memory = nullptr;
    absl::Status status = Use();
    if (status.ok()) status = ToStatus(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    if (!status.ok()) return status;
    return PinnedMemory(memory, ReleaseMemory{this, true});
  }

  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() override {
    cudaStream_t stream = nullptr;
    absl::Status status = Use();
    if (status.ok()) {
      status = ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                        "cudaStreamCreateWithFlags");
    }
    if (!status.ok()) return status;
    return std::make_unique<CudaStream>(index_, stream, info_.processors);
  }

  absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    cudaEvent_t event = nullptr;
    absl::Status status = Use();
    if (status.ok()) {
      status = ToStatus(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                        "cudaEventCreateWithFlags");
    }
    if (!status.ok()) return status;
    return std::make_unique<CudaEvent>(event);
  }

 protected:
  void Release(void* memory, bool pinned) override {
    (void)Use();
    (void)(pinned ? cudaFreeHost(memory) : cudaFreeAsync(memory, memory_stream_));
  }

 private:
  absl::Status Use() const { return ToStatus(cudaSetDevice(index_), "cudaSetDevice"); }

  int index_;
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
