#include "engine/cuda/emulator/simt_device.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "engine/cuda/emulator/simt_dense.h"
#include "kernels/simt/kernel_registry.h"
#include "kernels/simt/machine.h"

namespace sluice::simt {
namespace {

// The state that all streams share. One piece of work runs at a time.
struct Core {
  explicit Core(const SimtOptions& of) : options(of), machine(memory, of.seed) {}

  const SimtOptions options;

  std::recursive_mutex mutex;
  Memory memory;
  Machine machine;
  absl::Status error;  // sticky
  int64_t captures = 0;
  int64_t live_graphs = 0;
  const void* running = nullptr;  // the stream whose work runs
  // The size and the stream of each workspace. Streams run at the same time on a device, so a
  // workspace that two of them use is a fault, although their work never interleaves here.
  std::map<uintptr_t, std::pair<size_t, const void*>> workspaces;

  int64_t Room() const {
    const int64_t taken = memory.live_bytes() + live_graphs * options.graph_bytes;
    return std::max<int64_t>(options.memory_bytes - taken, 0);
  }

  void RecordFault(const std::string& fault) {
    if (!fault.empty() && error.ok()) error = absl::UnavailableError(fault);
  }

  // Returns whether the host may touch these bytes of the device.
  bool Check(const char* what, const void* device, size_t bytes, Access access) {
    const std::string wrong = memory.HostAccess(device, bytes, access);
    if (!wrong.empty()) RecordFault(absl::StrCat(what, " ", wrong));
    return wrong.empty();
  }

  bool ClaimWorkspace(const void* workspace, size_t bytes) {
    if (!Check("Workspace", workspace, bytes, Access::kWrite)) return false;
    const auto begin = reinterpret_cast<uintptr_t>(workspace);
    for (const auto& [other, use] : workspaces) {
      const bool apart = other + use.first <= begin || begin + bytes <= other;
      if (apart || use.second == running) continue;
      RecordFault("Workspace is another stream's too");
      return false;
    }
    workspaces[begin] = {bytes, running};
    return true;
  }
  void ForgetWorkspaces(const void* freed, size_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(freed);
    std::erase_if(workspaces, [&](const auto& entry) {
      return entry.first >= begin && entry.first < begin + bytes;
    });
  }
};

using Work = std::function<void()>;

struct SimtGraph final : DeviceGraph {
  explicit SimtGraph(Core& device) : core(device) {}
  ~SimtGraph() override {
    const std::lock_guard lock(core.mutex);
    if (ended) --core.live_graphs;
  }

  Core& core;
  bool ended = false;  // whether it is captured, and on the device
  std::vector<Work> work;
  int64_t nodes() const override { return std::ssize(work); }
};

class SimtStream;

struct SimtEvent final : DeviceEvent {
  SimtStream* stream = nullptr;
  int64_t ticket = 0;  // the number of works of the stream before it

  absl::Status Synchronize() override;
};

class SimtStream final : public DeviceStream {
 public:
  SimtStream(Core& core, int32_t processors) : core_(core), processors_(processors) {}
  ~SimtStream() override { (void)Synchronize(); }

  int32_t processors() const override { return processors_; }

  void Launch(const kernels::cuda::Kernel& kernel, const kernels::cuda::LaunchShape& shape,
              const void* argument, size_t argument_bytes) override {
    auto launch = std::make_shared<LaunchRecord>(
        LaunchRecord{kernel, shape, std::make_unique<std::byte[]>(argument_bytes)});
    std::memcpy(launch->argument.get(), argument, argument_bytes);
    Queue([&core = core_, launch] { core.RecordFault(core.machine.Run(*launch)); });
  }

  // Computes the layer in plain C++, which proves nothing about any library.
  void Dense(const DenseShape& shape, SimtDense kind, const DenseArgs& args) {
    Queue([=, &core = core_] {
      const size_t workspace = DenseWorkspaceBytes(shape, kind);
      if (workspace > 0 && !core.ClaimWorkspace(args.workspace, workspace)) return;
      if (!core.Check("Dense", args.out, DenseOutBytes(shape, args.rows), Access::kWrite)) return;
      ComputeDense(shape, kind, args);
    });
  }
  void CopyToDevice(void* device, const void* host, size_t bytes) override {
    Queue([=, &core = core_] {
      const bool allowed = core.Check("CopyToDevice", device, bytes, Access::kWrite);
      if (allowed && bytes > 0) std::memcpy(device, host, bytes);
    });
  }
  void CopyToHost(void* host, const void* device, size_t bytes) override {
    Queue([=, &core = core_] {
      const bool allowed = core.Check("CopyToHost", device, bytes, Access::kRead);
      if (allowed && bytes > 0) std::memcpy(host, device, bytes);
    });
  }
  void CopyOnDevice(void* to, const void* from, size_t bytes) override {
    Queue([=, &core = core_] {
      const bool allowed = core.Check("CopyOnDevice", to, bytes, Access::kWrite) &&
                           core.Check("CopyOnDevice", from, bytes, Access::kRead);
      if (allowed && bytes > 0) std::memcpy(to, from, bytes);
    });
  }
  void Fill(void* device, uint8_t byte, size_t bytes) override {
    Queue([=, &core = core_] {
      if (core.Check("Fill", device, bytes, Access::kWrite)) std::memset(device, byte, bytes);
    });
  }

  void Record(DeviceEvent& event) override {
    SLUICE_CHECK(capture_ == nullptr);
    auto& own = static_cast<SimtEvent&>(event);
    own.stream = this;
    own.ticket = queued_;
  }
  void Wait(DeviceEvent& event) override {
    SLUICE_CHECK(capture_ == nullptr);
    const auto& other = static_cast<SimtEvent&>(event);
    if (other.stream == nullptr) return;
    Queue([stream = other.stream, ticket = other.ticket] { stream->RunUntil(ticket); });
  }

  void BeginCapture() override {
    SLUICE_CHECK(capture_ == nullptr);
    capture_ = std::make_unique<SimtGraph>(core_);
  }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override {
    SLUICE_CHECK(capture_ != nullptr);
    const std::lock_guard lock(core_.mutex);
    std::unique_ptr<SimtGraph> graph = std::exchange(capture_, nullptr);
    if (!core_.error.ok()) return core_.error;
    if (core_.Room() < core_.options.graph_bytes) {
      return absl::ResourceExhaustedError("no device memory for a captured graph");
    }
    graph->ended = true;
    ++core_.live_graphs;
    ++core_.captures;
    return graph;
  }
  void Run(DeviceGraph& graph) override {
    SLUICE_CHECK(capture_ == nullptr);
    for (const Work& work : static_cast<SimtGraph&>(graph).work) Queue(work);
  }

  absl::Status TakeStatus() override {
    const std::lock_guard lock(core_.mutex);
    return core_.error;
  }
  absl::Status Synchronize() override {
    SLUICE_CHECK(capture_ == nullptr);
    const std::lock_guard lock(core_.mutex);
    RunUntil(queued_);
    return core_.error;
  }

  absl::Status RunTo(int64_t ticket) {
    const std::lock_guard lock(core_.mutex);
    RunUntil(ticket);
    return core_.error;
  }

 private:
  void Queue(Work work) {
    if (capture_ != nullptr) {
      capture_->work.push_back(std::move(work));
      return;
    }
    const std::lock_guard lock(core_.mutex);
    queue_.push_back(std::move(work));
    ++queued_;
  }

  void RunUntil(int64_t ticket) {
    while (done_ < ticket) {
      const Work work = std::move(queue_.front());
      queue_.pop_front();
      ++done_;
      const void* const before = std::exchange(core_.running, this);
      if (core_.error.ok()) work();
      core_.running = before;
    }
  }

  Core& core_;
  int32_t processors_;
  std::unique_ptr<SimtGraph> capture_;
  std::deque<Work> queue_;
  int64_t queued_ = 0, done_ = 0;
};

absl::Status SimtEvent::Synchronize() {
  return stream == nullptr ? absl::OkStatus() : stream->RunTo(ticket);
}

class SimtDenseLayer final : public DenseLayer {
 public:
  SimtDenseLayer(const DenseShape& shape, SimtDense kind) : shape_(shape), kind_(kind) {}
  void Run(const DenseArgs& args, DeviceStream& stream) const override {
    static_cast<SimtStream&>(stream).Dense(shape_, kind_, args);
  }
  size_t workspace_bytes() const override { return DenseWorkspaceBytes(shape_, kind_); }
  DenseAlgorithm algorithm() const override { return {static_cast<uint64_t>(kind_)}; }
  std::string Describe() const override {
    return absl::StrCat("algorithm ", static_cast<int>(kind_));
  }

 private:
  const DenseShape shape_;
  const SimtDense kind_;
};

class EmulatedDevice final : public SimtDevice {
 public:
  explicit EmulatedDevice(const SimtOptions& options)
      : info_{.name = "SIMT emulator",
              .architecture = "simt",
              .processors = options.processors,
              .memory_bytes = options.memory_bytes},
        core_(options) {}

  const DeviceInfo& info() const override { return info_; }
  int64_t captures() const override { return core_.captures; }
  int64_t FreeMemory() const override {
    const std::lock_guard lock(core_.mutex);
    return core_.error.ok() ? core_.Room() : 0;
  }

  absl::StatusOr<DeviceMemory> Allocate(size_t bytes) override {
    const std::lock_guard lock(core_.mutex);
    if (!core_.error.ok()) return core_.error;
    const size_t room = core_.Room();
    if (bytes > room) {
      return absl::ResourceExhaustedError(
          absl::StrCat(bytes, " bytes of device memory wanted, ", room, " free"));
    }
    return DeviceMemory(core_.memory.Allocate(bytes), ReleaseMemory{this, false});
  }
  absl::StatusOr<PinnedMemory> AllocatePinned(size_t bytes) override {
    return PinnedMemory(::operator new(bytes), ReleaseMemory{this, true});
  }
  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() override {
    return std::make_unique<SimtStream>(core_, info_.processors);
  }
  absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    return std::make_unique<SimtEvent>();
  }
  absl::StatusOr<std::string> DenseLibrary() const override {
    if (!core_.options.dense.empty()) return std::string("pretended");
    return absl::FailedPreconditionError("the emulator has no library of dense layers");
  }
  std::vector<std::unique_ptr<DenseLayer>> DenseCandidates(const DenseShape& shape) override {
    std::vector<std::unique_ptr<DenseLayer>> layers;
    layers.reserve(core_.options.dense.size());
    for (SimtDense kind : core_.options.dense) {
      layers.push_back(std::make_unique<SimtDenseLayer>(shape, kind));
    }
    return layers;
  }
  std::vector<KernelInfo> KernelTable() const override {
    std::vector<KernelInfo> table;
    for (const RegisteredKernel& kernel : RegisteredKernels())
      table.push_back({.name = kernel.name});
    return table;
  }
  void Lose(const std::string& fault) override {
    const std::lock_guard lock(core_.mutex);
    core_.RecordFault(fault);
  }
  void Poison(void* begin, size_t bytes) override {
    const std::lock_guard lock(core_.mutex);
    core_.memory.Poison(begin, bytes);
  }

 protected:
  void Release(void* memory, bool pinned) override {
    if (pinned) return ::operator delete(memory);
    const std::lock_guard lock(core_.mutex);
    core_.ForgetWorkspaces(memory, core_.memory.Free(memory));
  }

 private:
  DeviceInfo info_;
  mutable Core core_;
};

}  // namespace

std::unique_ptr<SimtDevice> MakeSimtDevice(const SimtOptions& options) {
  return std::make_unique<EmulatedDevice>(options);
}

}  // namespace sluice::simt
