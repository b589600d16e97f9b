#include "engine/cuda/emulator/simt_device.h"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "engine/cuda/cuda_errors.h"
#include "engine/cuda/emulator/simt_core.h"
#include "engine/cuda/emulator/simt_dense.h"
#include "kernels/simt/kernel_registry.h"

namespace sluice::simt {
namespace {

using Lock = std::lock_guard<std::mutex>;

class SimtGraph final : public DeviceGraph {
 public:
  SimtGraph(Core& core, std::vector<QueuedWork> work) : core_(core), work_(std::move(work)) {
    ++core_.counts.graphs;
    ++core_.counts.captures;
  }
  ~SimtGraph() override {
    const Lock lock(core_.mutex);
    --core_.counts.graphs;
  }
  int64_t nodes() const override { return std::ssize(work_); }
  int64_t memory_bytes() const override {
    const int64_t shown = core_.options().graph_bytes;
    return shown > 0 ? shown : nodes() * kNodeBytes;
  }
  const std::vector<QueuedWork>& work() const { return work_; }

 private:
  Core& core_;
  const std::vector<QueuedWork> work_;
};

class SimtEvent final : public DeviceEvent {
 public:
  explicit SimtEvent(Core& core) : core_(core) { ++core_.counts.events; }
  ~SimtEvent() override {
    const Lock lock(core_.mutex);
    --core_.counts.events;
  }

  absl::Status Synchronize() override {
    const Lock lock(core_.mutex);
    SLUICE_RETURN_IF_ERROR(core_.Begin(SimtCall::kSynchronizeEvent));
    ++core_.counts.waits;
    if (queue_ != nullptr) core_.RunUntil(*queue_, ticket_);
    return core_.error();
  }

  // The last Record; null before the first.
  std::shared_ptr<WorkQueue> queue_;
  int64_t ticket_ = 0;  // the number of works of the queue before it

 private:
  Core& core_;
};

class SimtStream final : public DeviceStream {
 public:
  explicit SimtStream(Core& core) : core_(core), queue_(core.AddQueue()) {}
  ~SimtStream() override {
    const Lock lock(core_.mutex);
    if (capture_ != nullptr) core_.captures.erase(capturer_);
    core_.RemoveQueue(queue_);
  }

  int32_t processors() const override { return core_.options().processors; }
  int32_t shared_bytes_limit() const override { return core_.options().shared_bytes_limit; }

  void Launch(const kernels::cuda::Kernel& kernel, const kernels::cuda::LaunchShape& shape,
              const void* argument, size_t argument_bytes) override {
    const Lock lock(core_.mutex);
    if (!Accepts(SimtCall::kLaunch)) return;
    if (capture_ == nullptr) ++core_.counts.launches;
    auto launch = std::make_shared<LaunchRecord>(
        LaunchRecord{kernel, shape, std::make_unique<std::byte[]>(argument_bytes)});
    std::memcpy(launch->argument.get(), argument, argument_bytes);
    Queue({[&core = core_, launch] { core.Run(*launch); }});
  }

  // Computes the layer in plain C++, which proves nothing about any library.
  void Dense(const DenseShape& shape, SimtDense kind, const RowClass& rows, const DenseArgs& args) {
    const Lock lock(core_.mutex);
    if (!Accepts(SimtCall::kDense)) return;
    status_ = CheckDense(shape, kind, rows, args);
    if (!status_.ok()) return;
    if (capture_ == nullptr) ++core_.counts.layers;
    Queue({[=, &core = core_] {
      const size_t workspace = DenseWorkspaceBytes(shape, kind);
      if (workspace > 0 && !core.ClaimWorkspace(args.workspace, workspace)) return;
      const size_t out_bytes = DenseOutBytes(shape, args.rows);
      if (!core.CheckDevice("Dense", args.out, out_bytes, Access::kWrite)) return;
      const int64_t multiply_adds = ComputeDense(shape, kind, args);
      if (!shape.head) core.counts.layer_multiply_adds += multiply_adds;
    }});
  }

  void CopyToDevice(void* device, const void* host, size_t bytes) override {
    constexpr char kName[] = "CopyToDevice";
    const Lock lock(core_.mutex);
    if (!Accepts(SimtCall::kCopy) || !core_.CheckPinned(kName, host, bytes)) return;
    Count(&SimtCounts::copies_to_device, &SimtCounts::bytes_to_device, bytes);
    const auto copy = [=, &core = core_] {
      const bool allowed = core.CheckPinned(kName, host, bytes) &&
                           core.CheckDevice(kName, device, bytes, Access::kWrite);
      if (allowed && bytes > 0) std::memcpy(device, host, bytes);
    };
    Queue({.run = copy, .host = host, .host_bytes = bytes});
  }
  void CopyToHost(void* host, const void* device, size_t bytes) override {
    constexpr char kName[] = "CopyToHost";
    const Lock lock(core_.mutex);
    if (!Accepts(SimtCall::kCopy) || !core_.CheckPinned(kName, host, bytes)) return;
    Count(&SimtCounts::copies_to_host, &SimtCounts::bytes_to_host, bytes);
    const auto copy = [=, &core = core_] {
      const bool allowed = core.CheckPinned(kName, host, bytes) &&
                           core.CheckDevice(kName, device, bytes, Access::kRead);
      if (allowed && bytes > 0) std::memcpy(host, device, bytes);
    };
    Queue({.run = copy, .host = host, .host_bytes = bytes});
  }
  void CopyOnDevice(void* to, const void* from, size_t bytes) override {
    const Lock lock(core_.mutex);
    if (!Accepts(SimtCall::kCopy)) return;
    if (capture_ == nullptr) ++core_.counts.copies_on_device;
    Queue({[=, &core = core_] {
      const bool allowed = core.CheckDevice("CopyOnDevice", to, bytes, Access::kWrite) &&
                           core.CheckDevice("CopyOnDevice", from, bytes, Access::kRead);
      if (allowed && bytes > 0) std::memcpy(to, from, bytes);
    }});
  }
  void Fill(void* device, uint8_t byte, size_t bytes) override {
    const Lock lock(core_.mutex);
    if (!Accepts(SimtCall::kFill)) return;
    if (capture_ == nullptr) ++core_.counts.fills;
    Queue({[=, &core = core_] {
      const bool allowed = core.CheckDevice("Fill", device, bytes, Access::kWrite);
      if (allowed && bytes > 0) std::memset(device, byte, bytes);
    }});
  }

  void Record(DeviceEvent& event) override {
    const Lock lock(core_.mutex);
    SLUICE_CHECK(capture_ == nullptr);
    if (!Accepts(SimtCall::kRecord)) return;
    auto& own = static_cast<SimtEvent&>(event);
    own.queue_ = queue_;
    own.ticket_ = queue_->queued;
  }
  void Wait(DeviceEvent& event) override {
    const Lock lock(core_.mutex);
    SLUICE_CHECK(capture_ == nullptr);
    if (!Accepts(SimtCall::kWait)) return;
    const auto& other = static_cast<SimtEvent&>(event);
    if (other.queue_ == nullptr) return;
    Queue({.run = nullptr, .after = other.queue_, .ticket = other.ticket_});
  }

  void BeginCapture() override {
    const Lock lock(core_.mutex);
    SLUICE_CHECK(capture_ == nullptr);
    if (!Accepts(SimtCall::kBeginCapture)) return;
    capture_ = std::make_unique<Capture>();
    capturer_ = std::this_thread::get_id();
    SLUICE_CHECK(core_.captures.emplace(capturer_, capture_.get()).second);
  }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override {
    const Lock lock(core_.mutex);
    SLUICE_CHECK(capture_ != nullptr || !status_.ok());
    SLUICE_CHECK(capture_ == nullptr || capturer_ == std::this_thread::get_id());
    const std::unique_ptr<Capture> capture = std::exchange(capture_, nullptr);
    if (capture != nullptr) core_.captures.erase(capturer_);
    if (status_.ok() && capture->invalid) {
      status_ = core_.Refuse("cudaStreamEndCapture", kCudaCaptureInvalidated);
    }
    if (status_.ok()) status_ = core_.Begin(SimtCall::kInstantiate);
    if (status_.ok() && core_.Room() < core_.options().graph_bytes) {
      status_ = absl::ResourceExhaustedError("no device memory for a captured graph");
    }
    if (status_.ok()) status_ = core_.Begin(SimtCall::kUpload);
    SLUICE_RETURN_IF_ERROR(TakeOwnStatus());
    return std::make_unique<SimtGraph>(core_, std::move(capture->work));
  }
  void Run(DeviceGraph& graph) override {
    const Lock lock(core_.mutex);
    SLUICE_CHECK(capture_ == nullptr);
    if (!Accepts(SimtCall::kRun)) return;
    ++core_.counts.runs;
    core_.counts.nodes += graph.nodes();
    for (const QueuedWork& work : static_cast<SimtGraph&>(graph).work()) Queue(work);
  }

  absl::Status TakeStatus() override {
    const Lock lock(core_.mutex);
    core_.Pass();
    return TakeOwnStatus();
  }
  absl::Status Synchronize() override {
    const Lock lock(core_.mutex);
    absl::Status waited = core_.Begin(SimtCall::kSynchronizeStream);
    if (waited.ok()) {
      ++core_.counts.waits;
      core_.RunUntil(*queue_, queue_->queued);
      waited = core_.error();
    }
    status_.Update(waited);
    return TakeOwnStatus();
  }

 private:
  // Returns whether the stream continues with the call; keeps the failure if it does not.
  bool Accepts(SimtCall call) {
    if (status_.ok()) status_ = core_.Begin(call);
    return status_.ok();
  }
  absl::Status TakeOwnStatus() { return std::exchange(status_, absl::OkStatus()); }

  void Count(int64_t SimtCounts::*copies, int64_t SimtCounts::*bytes, size_t n) {
    if (capture_ != nullptr) return;
    ++(core_.counts.*copies);
    core_.counts.*bytes += static_cast<int64_t>(n);
  }

  void Queue(QueuedWork work) {
    if (capture_ != nullptr) {
      capture_->work.push_back(std::move(work));
    } else {
      core_.Push(*queue_, std::move(work));
    }
  }

  Core& core_;
  const std::shared_ptr<WorkQueue> queue_;
  std::unique_ptr<Capture> capture_;
  std::thread::id capturer_;
  absl::Status status_;  // the first failure that was not returned yet
};

class SimtDenseLayer final : public DenseLayer {
 public:
  SimtDenseLayer(const DenseShape& shape, SimtDense kind, const RowClass& rows)
      : shape_(shape), kind_(kind), rows_(rows) {}
  void Run(const DenseArgs& args, DeviceStream& stream) const override {
    static_cast<SimtStream&>(stream).Dense(shape_, kind_, rows_, args);
  }
  size_t workspace_bytes() const override { return DenseWorkspaceBytes(shape_, kind_); }
  DenseAlgorithm algorithm() const override { return {static_cast<uint64_t>(kind_)}; }
  std::string Describe() const override {
    return absl::StrCat("algorithm ", static_cast<int>(kind_));
  }

 private:
  const DenseShape shape_;
  const SimtDense kind_;
  const RowClass rows_;  // that it can compute
};

class EmulatedDevice final : public SimtDevice {
 public:
  explicit EmulatedDevice(const SimtOptions& options)
      : info_{.name = "SIMT emulator",
              .architecture = options.architecture,
              .processors = options.processors,
              .memory_bytes = options.memory_bytes,
              .shared_bytes_limit = options.shared_bytes_limit,
              .check = options.check},
        core_(options) {}

  const DeviceInfo& info() const override { return info_; }
  int64_t captures() const override { return counts().captures; }
  int64_t FreeMemory() const override {
    const Lock lock(core_.mutex);
    return core_.error().ok() ? core_.Room() : 0;
  }

  absl::StatusOr<DeviceMemory> Allocate(size_t bytes) override {
    const Lock lock(core_.mutex);
    SLUICE_CHECK(bytes >= 1);
    SLUICE_RETURN_IF_ERROR(core_.Begin(SimtCall::kAllocate));
    const size_t room = core_.Room();
    if (bytes > room) {
      return absl::ResourceExhaustedError(
          absl::StrCat(bytes, " bytes of device memory requested, ", room, " free"));
    }
    return DeviceMemory(core_.Allocate(bytes), ReleaseMemory{this, false});
  }
  absl::StatusOr<PinnedMemory> AllocatePinned(size_t bytes) override {
    const Lock lock(core_.mutex);
    SLUICE_CHECK(bytes >= 1);
    SLUICE_RETURN_IF_ERROR(core_.Begin(SimtCall::kAllocatePinned));
    return PinnedMemory(core_.AllocatePinned(bytes), ReleaseMemory{this, true});
  }
  absl::StatusOr<std::unique_ptr<DeviceStream>> CreateStream() override {
    const Lock lock(core_.mutex);
    SLUICE_RETURN_IF_ERROR(core_.Begin(SimtCall::kCreateStream));
    return std::make_unique<SimtStream>(core_);
  }
  absl::StatusOr<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    const Lock lock(core_.mutex);
    SLUICE_RETURN_IF_ERROR(core_.Begin(SimtCall::kCreateEvent));
    return std::make_unique<SimtEvent>(core_);
  }
  // Each node takes a microsecond. The graph does not run, since many rows would take seconds.
  absl::StatusOr<double> SecondsOf(DeviceGraph& graph, DeviceStream&) override {
    return 1e-6 * static_cast<double>(graph.nodes());
  }
  absl::StatusOr<std::string> DenseLibrary() const override {
    if (!core_.options().dense.empty()) return std::string("pretended");
    return absl::FailedPreconditionError("the emulator has no library of dense layers");
  }
  std::vector<std::unique_ptr<DenseLayer>> DenseCandidates(const DenseShape& shape,
                                                           const RowClass& rows) override {
    std::vector<std::unique_ptr<DenseLayer>> layers;
    if (!DenseSupports(shape)) return layers;
    const auto& of_classes = core_.options().dense_of_classes;
    const auto own = of_classes.find(rows.last);
    for (SimtDense kind : own == of_classes.end() ? core_.options().dense : own->second) {
      layers.push_back(std::make_unique<SimtDenseLayer>(shape, kind, WithEdges(shape, rows)));
    }
    return layers;
  }
  std::vector<KernelInfo> KernelTable() const override {
    std::vector<KernelInfo> table;
    for (const RegisteredKernel& kernel : RegisteredKernels())
      table.push_back({.name = kernel.name});
    return table;
  }

  void Poison(void* begin, size_t bytes) override {
    const Lock lock(core_.mutex);
    core_.Poison(begin, bytes);
  }
  void Lose(const std::string& fault) override {
    const Lock lock(core_.mutex);
    core_.Lose(fault);
  }
  SimtCounts counts() const override {
    const Lock lock(core_.mutex);
    return core_.counts;
  }
  int64_t calls(SimtCall call) const override {
    const Lock lock(core_.mutex);
    return core_.calls(call);
  }
  std::string fault() const override {
    const Lock lock(core_.mutex);
    return core_.fault();
  }

 protected:
  void Release(void* memory, bool pinned) override {
    const Lock lock(core_.mutex);
    core_.Pass();
    pinned ? core_.FreePinned(memory) : core_.Free(memory);
  }

 private:
  const DeviceInfo info_;
  mutable Core core_;
};

}  // namespace

SimtCounts operator-(const SimtCounts& after, const SimtCounts& before) {
  using Values = std::array<int64_t, sizeof(SimtCounts) / sizeof(int64_t)>;
  Values values = std::bit_cast<Values>(after);
  const Values subtracted = std::bit_cast<Values>(before);
  for (size_t i = 0; i < values.size(); ++i) values[i] -= subtracted[i];
  return std::bit_cast<SimtCounts>(values);
}

SimtOrder SimtOrderOfEnvironment() {
  const char* const name = std::getenv("SLUICE_SIMT_ORDER");
  if (name == nullptr) return SimtOrder::kLate;
  const std::optional<SimtOrder> order = EnumOf<SimtOrder>(name);
  SLUICE_CHECK(order.has_value());
  return *order;
}

std::unique_ptr<SimtDevice> MakeSimtDevice(const SimtOptions& options) {
  return std::make_unique<EmulatedDevice>(options);
}

}  // namespace sluice::simt
