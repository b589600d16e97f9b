// Streams, events and graphs of the CUDA runtime; for cuda_device.cc.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "engine/cuda/device.h"
#include "engine/cuda/poll.h"

namespace sluice {

// Returns whether the runtime accepts nothing more in this process after the error.
inline bool LosesDevice(cudaError_t error) {
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

inline absl::Status ToStatus(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string text =
      absl::StrCat(call, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  if (LosesDevice(error)) return absl::UnavailableError(text);
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

// The state that a device shares with its streams and events.
class CudaCore {
 public:
  // Waits poll for at most `spin` before they block.
  CudaCore(int index, nanoseconds spin) : index_(index), spin_(spin) {}

  // Makes the device current. Called before anything else is asked of the runtime, since the thread
  // may have served another device.
  absl::Status Use() {
    if (lost_.load(std::memory_order_relaxed)) return absl::UnavailableError("the GPU is lost");
    return RecordError(cudaSetDevice(index_), "cudaSetDevice");
  }
  // Returns the error as a status, and remembers a loss of the device.
  absl::Status RecordError(cudaError_t error, const char* call) {
    absl::Status status = ToStatus(error, call);
    if (absl::IsUnavailable(status)) lost_.store(true, std::memory_order_relaxed);
    return status;
  }
  void CountCapture() { captures_.fetch_add(1, std::memory_order_relaxed); }
  int64_t captures() const { return captures_.load(std::memory_order_relaxed); }
  nanoseconds spin() const { return spin_; }

 private:
  const int index_;
  const nanoseconds spin_;
  std::atomic<bool> lost_{false};
  std::atomic<int64_t> captures_{0};
};

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(CudaCore& core, cudaEvent_t event) : core_(core), event_(event) {}
  ~CudaEvent() override { (void)cudaEventDestroy(event_); }

  cudaEvent_t get() const { return event_; }
  absl::Status Synchronize() override {
    SLUICE_RETURN_IF_ERROR(core_.Use());
    cudaError_t error = cudaErrorNotReady;
    const auto done = [&] { return (error = cudaEventQuery(event_)) != cudaErrorNotReady; };
    if (!PollFor(core_.spin(), done, std::chrono::steady_clock::now)) {
      error = cudaEventSynchronize(event_);
    }
    return core_.RecordError(error, "cudaEventSynchronize");
  }

 private:
  CudaCore& core_;
  cudaEvent_t event_;
};

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(cudaGraphExec_t graph, size_t nodes) : graph_(graph), nodes_(nodes) {}
  ~CudaGraph() override {
    if (graph_ != nullptr) (void)cudaGraphExecDestroy(graph_);
  }

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
    void* arguments[] = {const_cast<void*>(argument)};
    RecordError(cudaLaunchKernel(kernel.function, dim3(static_cast<unsigned>(shape.blocks)),
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
  void CopyOnDevice(void* to, const void* from, size_t bytes) override {
    Copy(to, from, bytes, cudaMemcpyDeviceToDevice);
  }
  void Fill(void* device, uint8_t byte, size_t bytes) override {
    if (Ready()) RecordError(cudaMemsetAsync(device, byte, bytes, stream_), "cudaMemsetAsync");
  }

  void Record(DeviceEvent& event) override {
    if (!Ready()) return;
    RecordError(cudaEventRecord(static_cast<CudaEvent&>(event).get(), stream_), "cudaEventRecord");
  }
  void Wait(DeviceEvent& event) override {
    if (!Ready()) return;
    RecordError(cudaStreamWaitEvent(stream_, static_cast<CudaEvent&>(event).get(), 0),
                "cudaStreamWaitEvent");
  }

  // Queues work by calling `queue`, which returns its error.
  template <typename Function>
  void Queue(Function queue) {
    if (Ready()) status_.Update(queue(stream_));
  }

  // The mode is thread-local: work of other threads on the device neither fails nor is recorded.
  void BeginCapture() override {
    if (!Ready()) return;
    RecordError(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                "cudaStreamBeginCapture");
  }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override {
    cudaGraph_t graph = nullptr;
    RecordError(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    size_t nodes = 0;
    if (status_.ok()) RecordError(cudaGraphGetNodes(graph, nullptr, &nodes), "cudaGraphGetNodes");
    if (status_.ok())
      RecordError(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    auto captured = std::make_unique<CudaGraph>(executable, nodes);
    if (status_.ok()) RecordError(cudaGraphUpload(executable, stream_), "cudaGraphUpload");
    SLUICE_RETURN_IF_ERROR(Synchronize());
    core_.CountCapture();
    return captured;
  }
  void Run(DeviceGraph& graph) override {
    if (!Ready()) return;
    RecordError(cudaGraphLaunch(static_cast<CudaGraph&>(graph).get(), stream_), "cudaGraphLaunch");
  }

  absl::Status TakeStatus() override { return std::exchange(status_, absl::OkStatus()); }
  absl::Status Synchronize() override {
    if (Ready()) RecordError(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return std::exchange(status_, absl::OkStatus());
  }

 private:
  void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (Ready()) RecordError(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpyAsync");
  }

  bool Ready() {
    if (status_.ok()) status_ = core_.Use();
    return status_.ok();
  }
  void RecordError(cudaError_t error, const char* call) {
    status_.Update(core_.RecordError(error, call));
  }

  CudaCore& core_;
  cudaStream_t stream_;
  int32_t processors_;
  absl::Status status_;  // the first failure that was not returned yet
};

}  // namespace sluice
