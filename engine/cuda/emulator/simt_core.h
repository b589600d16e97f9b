// The state that all streams of an emulated device share: queued work and the order in which it
// runs, device and pinned memory, counts, scripted failures, and the first fault.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/cuda/emulator/simt_device.h"
#include "kernels/simt/machine.h"
#include "kernels/simt/memory.h"

namespace sluice::simt {

struct WorkQueue;

// A piece of queued work.
struct QueuedWork {
  std::function<void()> run;
  // If not null, the work waits until the queue has done this number of works.
  std::shared_ptr<WorkQueue> after = nullptr;
  int64_t ticket = 0;
  // The pinned memory that the work reads or writes.
  const void* host = nullptr;
  size_t host_bytes = 0;
};

// The work of one stream. It outlives the stream while events refer to it.
struct WorkQueue {
  std::deque<QueuedWork> works;
  int64_t queued = 0, done = 0;

  bool MayRun() const {
    return !works.empty() &&
           (works.front().after == nullptr || works.front().after->done >= works.front().ticket);
  }
};

// A capture under way, of the thread that began it.
struct Capture {
  std::vector<QueuedWork> work;
  bool invalid = false;  // whether the thread made a call that breaks captures
};

// All functions require that the caller holds `mutex`.
class Core {
 public:
  explicit Core(const SimtOptions& options);

  mutable std::mutex mutex;
  SimtCounts counts = {};
  std::map<std::thread::id, Capture*> captures;  // by the thread that captures

  const SimtOptions& options() const { return options_; }
  const absl::Status& error() const { return error_; }  // not OK once the device is lost
  const std::string& fault() const { return fault_; }
  int64_t calls(SimtCall call) const { return calls_[static_cast<size_t>(call)]; }

  // Begins a call: runs work that the random order selects, counts the call and returns its
  // scripted failure. Returns the error of the device if it is lost.
  absl::Status Begin(SimtCall call);
  // Runs work that the random order selects. For calls that do not fail.
  void Pass();
  // Returns the status of a call that the runtime refused with `code`.
  absl::Status Refuse(std::string_view call, int32_t code, int32_t probe = 0, bool waited = false);
  // Records a fault of the program, which loses the device. An empty text is ignored.
  void RecordFault(const std::string& fault);
  void Lose(const std::string& why);

  std::shared_ptr<WorkQueue> AddQueue();
  void RemoveQueue(const std::shared_ptr<WorkQueue>& queue);
  void Push(WorkQueue& queue, QueuedWork work);
  // Runs work until `ticket` works of the queue are done.
  void RunUntil(WorkQueue& queue, int64_t ticket);

  // Memory. A device pointer is checked when the work runs; a host pointer is also checked in the
  // call.
  int64_t Room() const;
  void* Allocate(size_t bytes);
  void Free(void* memory);
  void* AllocatePinned(size_t bytes);
  void FreePinned(void* memory);
  bool CheckPinned(const char* what, const void* host, size_t bytes);
  // Checks that the host may touch these bytes of the device.
  bool CheckDevice(const char* what, const void* device, size_t bytes, Access access);
  // Checks that only the stream of the running work has used the workspace.
  bool ClaimWorkspace(const void* workspace, size_t bytes);
  void Poison(void* begin, size_t bytes) { memory_.Poison(begin, bytes); }
  void Run(const LaunchRecord& launch);

 private:
  void RunFirst(WorkQueue& queue);
  // Runs one work of a random queue; returns false if none may run.
  bool RunAny();

  const SimtOptions options_;
  Memory memory_;
  Machine machine_;
  absl::Status error_;
  std::string fault_;
  std::array<int64_t, CountEnumerators<SimtCall>()> calls_ = {};

  std::mt19937_64 random_;
  std::vector<std::shared_ptr<WorkQueue>> queues_;
  std::vector<WorkQueue*> ready_;  // of RunAny
  uint64_t favourite_ = 0;         // modulo their number, the queue that RunAny prefers
  int64_t reign_ = 0;              // pieces of work until another one is the favourite
  const WorkQueue* running_ = nullptr;

  std::map<void*, size_t> device_;
  std::map<uintptr_t, size_t> pinned_;
  // The size and the stream of each workspace. Streams run at the same time on a device, so a
  // workspace that two of them use is a fault, although their work never interleaves here.
  std::map<uintptr_t, std::pair<size_t, const WorkQueue*>> workspaces_;
};

}  // namespace sluice::simt
