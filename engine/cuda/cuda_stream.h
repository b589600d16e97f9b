// Streams, events and graphs of the CUDA runtime; for cuda_device.cc.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "engine/cuda/cuda_errors.h"
#include "engine/cuda/device.h"
#include "engine/cuda/poll.h"

namespace sluice {

static_assert(cudaErrorMemoryAllocation == kCudaOutOfMemory);
static_assert(cudaErrorStreamCaptureUnsupported == kCudaCaptureUnsupported);

// Returns the runtime's result of a harmless call. After a sticky error this is that error or
// another one. The call is allowed while the thread captures.
inline cudaError_t Probe() {
  (void)cudaGetLastError();  // clears an error that is not sticky
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode);
  size_t free = 0, total = 0;
  if (error == cudaSuccess) {
    error = cudaMemGetInfo(&free, &total);
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
  }
  (void)cudaGetLastError();
  return error;
}

// Returns the status of a call. `probe` is the result of Probe after the call, if it failed and its
// device may be lost.
inline absl::Status ToStatus(cudaError_t error, const char* call, cudaError_t probe = cudaSuccess,
                             bool waited = false) {
  if (error == cudaSuccess) return absl::OkStatus();
  std::string text =
      absl::StrCat(call, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  if (probe != cudaSuccess) {
    absl::StrAppend(&text, "; the GPU then answers ", cudaGetErrorName(probe));
  }
  return CudaStatus(error, probe, text, waited);
}

// The state that a device shares with its streams and events.
class CudaCore {
 public:
  // Waits poll for at most `spin` before they block.
  CudaCore(int index, nanoseconds spin) : index_(index), spin_(spin) {}

  // Makes the device current. Every other call to the runtime requires this, since the thread may
  // have served another device.
  absl::Status Use() {
    if (lost_.load(std::memory_order_relaxed)) return absl::UnavailableError("the GPU is lost");
    return RecordError(cudaSetDevice(index_), "cudaSetDevice");
  }
  // Returns the error as a status, and remembers a loss of the device.
  // `waited` is whether the call waited for queued work.
  absl::Status RecordError(cudaError_t error, const char* call, bool waited = false) {
    if (error == cudaSuccess) return absl::OkStatus();
    absl::Status status = ToStatus(error, call, Probe(), waited);
    if (absl::IsUnavailable(status)) lost_.store(true, std::memory_order_relaxed);
    return status;
  }
  // Waits for queued work: polls `query` up to the time limit, and then calls `block`.
  template <typename Query, typename Block>
  absl::Status WaitFor(Query query, Block block, const char* call) {
    SLUICE_RETURN_IF_ERROR(Use());
    cudaError_t error = cudaErrorNotReady;
    const auto done = [&] { return (error = query()) != cudaErrorNotReady; };
    if (!PollFor(spin_, done, std::chrono::steady_clock::now)) error = block();
    return RecordError(error, call, /*waited=*/true);
  }
  void CountCapture() { captures_.fetch_add(1, std::memory_order_relaxed); }
  int64_t captures() const { return captures_.load(std::memory_order_relaxed); }

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
    return core_.WaitFor([this] { return cudaEventQuery(event_); },
                         [this] { return cudaEventSynchronize(event_); }, "cudaEventSynchronize");
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
  int64_t memory_bytes() const override { return memory_bytes_; }
  void set_memory_bytes(int64_t bytes) { memory_bytes_ = bytes; }

 private:
  cudaGraphExec_t graph_;
  size_t nodes_;
  int64_t memory_bytes_ = 0;
};

class CudaStream final : public DeviceStream {
 public:
  CudaStream(CudaCore& core, cudaStream_t stream, const DeviceInfo& info)
      : core_(core), stream_(stream), info_(info) {}
  ~CudaStream() override { (void)cudaStreamDestroy(stream_); }

  int32_t processors() const override { return info_.processors; }
  int32_t shared_bytes_limit() const override { return info_.shared_bytes_limit; }

  void Launch(const kernels::cuda::Kernel& kernel, const kernels::cuda::LaunchShape& shape,
              const void* argument, size_t) override {
    if (!Ready()) return;
    void* arguments[] = {const_cast<void*>(argument)};
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
    config.blockDim = dim3(static_cast<unsigned>(shape.threads));
    config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
    config.stream = stream_;
    config.attrs = &overlap;
    config.numAttrs = shape.overlaps_previous && CanWait(kernel) ? 1 : 0;
    RecordError(cudaLaunchKernelExC(&config, kernel.function, arguments), kernel.name);
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
    size_t nodes = 0, free_before = 0, free_after = 0, total = 0;
    (void)cudaMemGetInfo(&free_before, &total);
    if (status_.ok()) RecordError(cudaGraphGetNodes(graph, nullptr, &nodes), "cudaGraphGetNodes");
    if (status_.ok())
      RecordError(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    auto captured = std::make_unique<CudaGraph>(executable, nodes);
    if (status_.ok()) RecordError(cudaGraphUpload(executable, stream_), "cudaGraphUpload");
    SLUICE_RETURN_IF_ERROR(Synchronize());
    (void)cudaMemGetInfo(&free_after, &total);
    captured->set_memory_bytes(free_after < free_before
                                   ? static_cast<int64_t>(free_before - free_after)
                                   : captured->nodes() * kNodeBytes);
    core_.CountCapture();
    return captured;
  }
  void Run(DeviceGraph& graph) override {
    if (!Ready()) return;
    RecordError(cudaGraphLaunch(static_cast<CudaGraph&>(graph).get(), stream_), "cudaGraphLaunch");
  }

  absl::Status TakeStatus() override { return std::exchange(status_, absl::OkStatus()); }
  absl::Status Synchronize() override {
    // Also needed after a failure, because the earlier work uses the caller's memory.
    status_.Update(core_.WaitFor([this] { return cudaStreamQuery(stream_); },
                                 [this] { return cudaStreamSynchronize(stream_); },
                                 "cudaStreamSynchronize"));
    return std::exchange(status_, absl::OkStatus());
  }

 private:
  // Returns whether the kernel's code for this GPU can wait for the previous launch. Code for
  // architectures below 9.0 cannot, even if it is translated for a later one.
  bool CanWait(const kernels::cuda::Kernel& kernel) {
    const auto [found, is_new] = can_wait_.try_emplace(kernel.function, false);
    if (is_new) {
      cudaFuncAttributes attributes = {};
      RecordError(cudaFuncGetAttributes(&attributes, kernel.function), kernel.name);
      found->second = attributes.ptxVersion >= 90;
    }
    return found->second;
  }

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
  const DeviceInfo& info_;
  absl::Status status_;                              // the first failure that was not returned yet
  absl::flat_hash_map<const void*, bool> can_wait_;  // by the kernel's function
};

}  // namespace sluice
