#include "engine/cuda/emulator/simt_core.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "engine/cuda/cuda_errors.h"

namespace sluice::simt {
namespace {

constexpr int kUnwritten = 0xFF;

bool Overlap(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// Returns whether a thread may make the call while it captures.
bool AllowedInCapture(SimtCall call) {
  switch (call) {
    case SimtCall::kAllocate:
    case SimtCall::kAllocatePinned:
    case SimtCall::kSynchronizeStream:
    case SimtCall::kSynchronizeEvent:
      return false;
    default:
      return true;
  }
}

bool Waits(SimtCall call) {
  return call == SimtCall::kSynchronizeStream || call == SimtCall::kSynchronizeEvent;
}

}  // namespace

Core::Core(const SimtOptions& options)
    : options_(options), machine_(memory_, options.seed), random_(options.seed) {}

absl::Status Core::Begin(SimtCall call) {
  Pass();
  if (!error_.ok()) {
    ++counts.refused;
    return error_;
  }
  const int64_t nth = ++calls_[static_cast<size_t>(call)];
  const auto capture = captures.find(std::this_thread::get_id());
  if (capture != captures.end() && !AllowedInCapture(call)) {
    capture->second->invalid = true;
    return Refuse(NameOf(call), kCudaCaptureUnsupported);
  }
  for (const SimtFailure& failure : options_.failures) {
    if (failure.call != call || failure.nth != nth) continue;
    if (call != SimtCall::kDense) {
      return Refuse(NameOf(call), failure.code, failure.probe, Waits(call));
    }
    return absl::InternalError(
        absl::StrCat(std::string(NameOf(call)), " failed with status ", failure.code));
  }
  return absl::OkStatus();
}

void Core::Pass() {
  if (options_.order != SimtOrder::kRandom) return;
  // Often no work runs, so the host is ahead; sometimes much does, so the device catches up.
  constexpr uint64_t kMost[] = {0, 0, 2, 40};
  const uint64_t most = kMost[random_() % std::size(kMost)];
  for (uint64_t works = most == 0 ? 0 : random_() % most; works > 0 && RunAny(); --works) {
  }
}

absl::Status Core::Refuse(std::string_view call, int32_t code, int32_t probe, bool waited) {
  std::string text = absl::StrCat(std::string(call), ": error ", code);
  if (probe != 0) absl::StrAppend(&text, "; the GPU then answers error ", probe);
  absl::Status status = CudaStatus(code, probe, text, waited);
  if (absl::IsUnavailable(status)) error_.Update(status);
  return status;
}

void Core::RecordFault(const std::string& fault) {
  if (fault.empty() || !error_.ok()) return;
  fault_ = fault;
  Lose(fault);
}

void Core::Lose(const std::string& why) { error_.Update(absl::UnavailableError(why)); }

std::shared_ptr<WorkQueue> Core::AddQueue() {
  ++counts.streams;
  queues_.push_back(std::make_shared<WorkQueue>());
  return queues_.back();
}

void Core::RemoveQueue(const std::shared_ptr<WorkQueue>& queue) {
  --counts.streams;
  RunUntil(*queue, queue->queued);
  std::erase(queues_, queue);
}

void Core::Push(WorkQueue& queue, QueuedWork work) {
  queue.works.push_back(std::move(work));
  ++queue.queued;
  if (options_.order == SimtOrder::kEarly) RunUntil(queue, queue.queued);
}

void Core::RunUntil(WorkQueue& queue, int64_t ticket) {
  while (queue.done < ticket) {
    if (options_.order == SimtOrder::kRandom) {
      SLUICE_CHECK(RunAny());
    } else {
      if (!queue.MayRun()) RunUntil(*queue.works.front().after, queue.works.front().ticket);
      RunFirst(queue);
    }
  }
}

bool Core::RunAny() {
  ready_.clear();
  for (const auto& queue : queues_) {
    if (queue->MayRun()) ready_.push_back(queue.get());
  }
  if (ready_.empty()) return false;
  // One stream is favoured for a while, which may be long, so that it overtakes the others by many
  // pieces of work.
  constexpr int kMaxDoublings = 12;
  if (reign_-- == 0) {
    favourite_ = random_();
    reign_ = int64_t{1} << random_() % kMaxDoublings;
  }
  WorkQueue* const favourite = queues_[favourite_ % queues_.size()].get();
  RunFirst(favourite->MayRun() ? *favourite : *ready_[random_() % ready_.size()]);
  return true;
}

void Core::RunFirst(WorkQueue& queue) {
  const QueuedWork work = std::move(queue.works.front());
  queue.works.pop_front();
  ++queue.done;
  if (!error_.ok() || work.after != nullptr) return;
  running_ = &queue;
  ++counts.ran;
  work.run();
}

int64_t Core::Room() const {
  const int64_t taken = memory_.live_bytes() + counts.graphs * options_.graph_bytes;
  return std::max<int64_t>(options_.memory_bytes - taken, 0);
}

void* Core::Allocate(size_t bytes) {
  void* const memory = memory_.Allocate(bytes);
  device_[memory] = bytes;
  ++counts.allocations;
  counts.device_bytes += static_cast<int64_t>(bytes);
  return memory;
}

void Core::Free(void* memory) {
  const auto found = device_.find(memory);
  if (found == device_.end()) {
    return RecordFault("released device memory is not allocated");
  }
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const size_t bytes = found->second;
  std::erase_if(workspaces_, [&](const auto& entry) {
    return entry.first >= begin && entry.first < begin + bytes;
  });
  counts.device_bytes -= static_cast<int64_t>(bytes);
  device_.erase(found);
  memory_.Free(memory);
}

void* Core::AllocatePinned(size_t bytes) {
  void* const memory = ::operator new(bytes);
  std::memset(memory, kUnwritten, bytes);
  pinned_[reinterpret_cast<uintptr_t>(memory)] = bytes;
  ++counts.pinned_allocations;
  counts.pinned_bytes += static_cast<int64_t>(bytes);
  return memory;
}

void Core::FreePinned(void* memory) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const auto found = pinned_.find(begin);
  if (found == pinned_.end()) return RecordFault("released pinned memory is not allocated");
  for (const auto& queue : queues_) {
    for (const QueuedWork& work : queue->works) {
      const auto host = reinterpret_cast<uintptr_t>(work.host);
      if (work.host_bytes > 0 && Overlap(begin, found->second, host, work.host_bytes)) {
        RecordFault("released pinned memory is in use by a queued copy");
      }
    }
  }
  counts.pinned_bytes -= static_cast<int64_t>(found->second);
  pinned_.erase(found);
  ::operator delete(memory);
}

bool Core::CheckPinned(const char* what, const void* host, size_t bytes) {
  if (bytes == 0) return true;
  const auto begin = reinterpret_cast<uintptr_t>(host);
  auto next = pinned_.upper_bound(begin);
  if (next != pinned_.begin()) {
    const auto& [memory, size] = *std::prev(next);
    if (begin - memory <= size && bytes <= size - (begin - memory)) return true;
  }
  RecordFault(absl::StrCat(what, " touches ", bytes, " bytes of the host that are not pinned"));
  return false;
}

bool Core::CheckDevice(const char* what, const void* device, size_t bytes, Access access) {
  if (bytes == 0) return true;
  const std::string wrong = memory_.HostAccess(device, bytes, access);
  if (!wrong.empty()) RecordFault(absl::StrCat(what, " ", wrong));
  return wrong.empty();
}

void Core::Run(const LaunchRecord& launch) {
  if (launch.shape.shared_bytes <= options_.shared_bytes_limit) {
    return RecordFault(machine_.Run(launch));
  }
  RecordFault(absl::StrCat("kernel ", launch.kernel.name, " needs ", launch.shape.shared_bytes,
                           " bytes of shared memory a block, the device has ",
                           options_.shared_bytes_limit));
}

bool Core::ClaimWorkspace(const void* workspace, size_t bytes) {
  if (!CheckDevice("Workspace", workspace, bytes, Access::kWrite)) return false;
  const auto begin = reinterpret_cast<uintptr_t>(workspace);
  for (const auto& [other, use] : workspaces_) {
    if (!Overlap(begin, bytes, other, use.first) || use.second == running_) continue;
    RecordFault("Workspace is another stream's too");
    return false;
  }
  workspaces_[begin] = {bytes, running_};
  return true;
}

}  // namespace sluice::simt
