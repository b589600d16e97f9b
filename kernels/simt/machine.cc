#include "kernels/simt/machine.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/simt/kernel_registry.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/warpgroup.h"

namespace sluice::simt {
namespace {

constexpr int32_t kWarp = 32;
constexpr int32_t kCopyBytes = 16;

thread_local Machine* current_machine = nullptr;

}  // namespace

OutsideDeviceCode::OutsideDeviceCode() : machine_(current_machine) { current_machine = nullptr; }
OutsideDeviceCode::~OutsideDeviceCode() { current_machine = machine_; }

struct Machine::Thread {
  enum class State { kRunnable, kAtBarrier, kAtCollective, kAtArrival, kDone };
  struct Copy {
    std::byte* to;
    const std::byte* from;
    int32_t bytes;
    int64_t group;
    std::byte seen[kCopyBytes];  // the source at the time of the request
  };

  Fiber fiber;
  State state;
  const char* file;  // of the call that it waits in
  int line;
  WarpFunction function;
  const void* in;
  void* out;
  std::deque<Copy> copies;
  int64_t groups;   // committed
  bool has_waited;  // for the launch before
  GroupProducts products;
  std::vector<Actor> shares;  // the calls of ShareWithProducts

  bool WaitsWith(const Thread& other) const {
    return state == other.state && line == other.line && function == other.function &&
           std::strcmp(file, other.file) == 0;
  }
};

struct Machine::ArrivalState {
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::vector<std::byte> seen;  // the source at the time of the request
  };
  struct Phase {
    uint32_t number;  // among the phases of the block
    bool done = false;
    std::vector<Copy> copies{};
  };

  int32_t copies;              // of a phase
  std::vector<int32_t> calls;  // of each thread, in all phases
  int64_t all_calls = 0;
  std::vector<Phase> phases{};  // those that have begun
};

Machine::Machine(Memory& memory, uint64_t seed) : memory_(memory), random_(seed) {}
Machine::~Machine() {
  if (shared_ != nullptr) memory_.Free(shared_);
}

Machine* Machine::Current() { return current_machine; }

std::string Machine::Run(const LaunchRecord& launch) {
  const kernels::cuda::LaunchShape& shape = launch.shape;
  SLUICE_CHECK(shape.blocks >= 1 && shape.threads >= kWarp && shape.threads <= 1024);
  SLUICE_CHECK(shape.threads % kWarp == 0 && shape.shared_bytes >= 0);
  NoteLaunched(launch.kernel);
  ++launches_;
  launch_ = &launch;
  memory_.order().BeginLaunch();
  fault_.clear();
  meter_ = CostMeter::Current();
  if (meter_ != nullptr) meter_->BeginLaunch(launch.kernel, shape);
  while (std::ssize(threads_) < shape.threads) {
    threads_.push_back(std::make_unique<Thread>());
  }
  shared_ = static_cast<std::byte*>(memory_.Recycle(shared_, shape.shared_bytes));
  std::vector<int32_t> blocks(shape.blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), random_);
  for (int32_t block : blocks) {
    block_ = block;
    RunBlock();
    if (!fault_.empty()) break;
  }
  return fault_;
}

void Machine::RunBlock() {
  const int32_t threads = shape().threads;
  memory_.Poison(shared_, shape().shared_bytes);
  memory_.order().BeginBlock(threads);
  arrivals_.clear();
  block_epoch_ = 0;
  at_barrier_ = 0;
  warps_.assign(threads / kWarp, WarpState{});
  runnable_.resize(threads);
  for (int32_t t = 0; t < threads; ++t) {
    Thread& thread = *threads_[t];
    thread.state = Thread::State::kRunnable;
    thread.copies.clear();
    thread.groups = 0;
    thread.has_waited = false;
    thread.products.Clear();
    thread.shares.clear();
    thread.fiber.Start(&EntryPoint, this);
    runnable_[t] = t;
  }
  while (!runnable_.empty() && fault_.empty()) {
    std::swap(runnable_[random_() % runnable_.size()], runnable_.back());
    current_ = runnable_.back();
    runnable_.pop_back();
    threads_[current_]->fiber.Resume();
    if (fault_.empty()) AfterResume(current_);
  }
  if (fault_.empty()) ReportStuck();
  for (const auto& [address, arrival] : arrivals_) {
    if (!fault_.empty() || arrival.phases.empty() || arrival.phases.back().done) continue;
    fault_ = absl::StrCat(Where(0), " ends before its bulk copies have arrived");
  }
  if (meter_ != nullptr) meter_->EndBlock();
}

void Machine::EntryPoint(void* argument) {
  auto* machine = static_cast<Machine*>(argument);
  const LaunchRecord& launch = *machine->launch_;
  current_machine = machine;
  launch.kernel.run_thread(launch.kernel.function, launch.argument.get());
  current_machine = nullptr;  // the following code is not device code
  Thread& thread = *machine->threads_[machine->current_];
  if (!thread.copies.empty()) machine->Fail("ends before its asynchronous copies have arrived");
  if (!thread.products.empty()) machine->Fail("ends before its products have been waited for");
  if (machine->OwesWait(thread)) machine->Fail("ends without waiting for the launch before");
  thread.state = Thread::State::kDone;
  machine->Park();
}

// Suspends the current fiber for good: the scheduler does not resume a fiber that is done or has
// failed.
void Machine::Park() {
  current_machine = nullptr;
  threads_[current_]->fiber.Suspend();
  SLUICE_CHECK(false);
  std::abort();
}

void Machine::Fail(const std::string& what) {
  fault_ = absl::StrCat(Where(current_), " ", what);
  Park();
}

void Machine::AfterResume(int32_t t) {
  switch (threads_[t]->state) {
    case Thread::State::kAtBarrier:
      if (++at_barrier_ == shape().threads) ReleaseBlock();
      break;
    case Thread::State::kAtCollective:
      if (++warps_[t / kWarp].arrived == kWarp) Gather(t / kWarp);
      break;
    default:
      break;
  }
}

// Runs a collective after all lanes of the warp have reached it.
void Machine::Gather(int32_t warp) {
  const void* in[kWarp];
  void* out[kWarp];
  const Thread& first = *threads_[warp * kWarp];
  for (int32_t lane = 0; lane < kWarp; ++lane) {
    const Thread& thread = *threads_[warp * kWarp + lane];
    if (!thread.WaitsWith(first)) return ReportStuck();
    in[lane] = thread.in;
    out[lane] = thread.out;
  }
  warps_[warp].arrived = 0;
  if (meter_ != nullptr) meter_->Meet(warp);
  if (first.function != nullptr) {
    first.function(in, out);
  } else {
    ++warps_[warp].epoch;
  }
  Wake(warp * kWarp, kWarp);
}

// Releases a barrier after all threads of the block have reached it.
void Machine::ReleaseBlock() {
  for (int32_t t = 0; t < shape().threads; ++t) {
    if (!threads_[t]->WaitsWith(*threads_[0])) return ReportStuck();
  }
  at_barrier_ = 0;
  ++block_epoch_;
  for (int32_t w = 0; meter_ != nullptr && w < std::ssize(warps_); ++w) meter_->Meet(w);
  Wake(0, shape().threads);
}

void Machine::Wake(int32_t first, int32_t count) {
  for (int32_t t = first; t < first + count; ++t) {
    threads_[t]->state = Thread::State::kRunnable;
    runnable_.push_back(t);
  }
}

// Reports a fault if some threads wait forever, which is the case unless all are done.
void Machine::ReportStuck() {
  const auto waits = [this](int32_t t) { return threads_[t]->state != Thread::State::kDone; };
  int32_t stuck = 0;
  while (stuck < shape().threads && !waits(stuck)) ++stuck;
  if (stuck == shape().threads) return;
  const Thread& thread = *threads_[stuck];
  // A collective concerns its warp, a barrier the block.
  const bool warp = thread.state == Thread::State::kAtCollective;
  const int32_t begin = warp ? stuck / kWarp * kWarp : 0;
  const int32_t end = warp ? begin + kWarp : shape().threads;
  int32_t other = begin;
  while (other < end && threads_[other]->WaitsWith(thread)) ++other;
  const auto place = [](const Thread& t) { return absl::StrCat(t.file, ":", t.line); };
  if (thread.state == Thread::State::kAtArrival && other == end) {
    fault_ = absl::StrCat(Where(stuck), " waits at the arrival of ", place(thread),
                          " for copies that not all threads start");
    return;
  }
  const char* const what = warp                                        ? "collective"
                           : thread.state == Thread::State::kAtArrival ? "arrival"
                                                                       : "barrier";
  fault_ = absl::StrCat(Where(stuck), " waits at the ", what, " of ", place(thread),
                        ", to which thread ", other, " does not come: it ",
                        waits(other) ? absl::StrCat("waits at ", place(*threads_[other]))
                                     : std::string("has returned"));
}

Actor Machine::ActorOf(int32_t t) const {
  return {.launch = launches_,
          .block = static_cast<uint32_t>(block_),
          .block_epoch = block_epoch_,
          .warp_epoch = warps_[t / kWarp].epoch,
          .thread = static_cast<uint32_t>(t)};
}

std::string Machine::Where(int32_t t) const {
  return absl::StrCat("kernel ", launch_->kernel.name, ", block ", block_, ", thread ", t);
}

void Machine::Touch(uintptr_t address, size_t bytes, Access access, const void* site,
                    size_t alignment) {
  if (threads_[current_]->fiber.OnStack(address)) return;
  OutsideDeviceCode outside;
  if (address % alignment != 0) {
    Fail(
        absl::StrCat("touches ", bytes, " bytes at an address that is no multiple of ", alignment));
  }
  const bool is_shared = Check(address, bytes, access);
  if (meter_ == nullptr) return;
  using enum CostMeter::Kind;
  meter_->Access(current_, site, is_shared ? CostMeter::Space::kShared : CostMeter::Space::kGlobal,
                 access == Access::kRead     ? kRead
                 : access == Access::kAtomic ? kAtomic
                                             : kWrite,
                 address, bytes);
}

void Machine::ReadSharedRow(const void* row, const void* site) {
  constexpr size_t kRowBytes = 16;
  OutsideDeviceCode outside;
  const auto address = reinterpret_cast<uintptr_t>(row);
  if (address % kRowBytes != 0) {
    Fail(absl::StrCat("loads a row of a matrix at an address that is no multiple of ", kRowBytes));
  }
  if (!Check(address, kRowBytes, Access::kRead)) {
    Fail("loads a row of a matrix that is not in shared memory");
  }
  if (site == nullptr || meter_ == nullptr) return;
  meter_->Access(current_, site, CostMeter::Space::kShared, CostMeter::Kind::kRead, address,
                 kRowBytes);
}

bool Machine::Check(uintptr_t address, size_t bytes, Access access) {
  const bool is_shared =
      address - reinterpret_cast<uintptr_t>(shared_) < static_cast<uintptr_t>(shape().shared_bytes);
  if (!is_shared && OwesWait(*threads_[current_])) {
    Fail("touches global memory before it has waited for the launch before");
  }
  const std::string wrong = memory_.Note(address, bytes, access, ActorOf(current_));
  if (!wrong.empty()) Fail(wrong);
  return is_shared;
}

void Machine::WaitForPrevious() { threads_[current_]->has_waited = true; }

bool Machine::OwesWait(const Thread& thread) const {
  return shape().overlaps_previous && !thread.has_waited;
}

void Machine::Barrier(const char* file, int line) {
  OutsideDeviceCode outside;
  Thread& thread = *threads_[current_];
  thread.state = Thread::State::kAtBarrier;
  thread.function = nullptr;
  thread.file = file;
  thread.line = line;
  thread.fiber.Suspend();
}

void Machine::Collective(WarpFunction function, const void* in, void* out, const char* file,
                         int line) {
  OutsideDeviceCode outside;
  Thread& thread = *threads_[current_];
  thread.state = Thread::State::kAtCollective;
  thread.function = function;
  thread.in = in;
  thread.out = out;
  thread.file = file;
  thread.line = line;
  thread.fiber.Suspend();
}

std::byte* Machine::Shared(size_t bytes) {
  OutsideDeviceCode outside;
  if (bytes > static_cast<size_t>(shape().shared_bytes)) {
    Fail(absl::StrCat("wants ", bytes, " bytes of shared memory, the launch has ",
                      shape().shared_bytes));
  }
  return shared_;
}

void Machine::CopyAsync(void* shared, const void* global, int32_t bytes, const void* site) {
  OutsideDeviceCode outside;
  const auto to = reinterpret_cast<uintptr_t>(shared), from = reinterpret_cast<uintptr_t>(global);
  if (to % kCopyBytes != 0 || from % kCopyBytes != 0) Fail("copies from or to an odd address");
  if (bytes < 0 || bytes > kCopyBytes) Fail(absl::StrCat("copies ", bytes, " bytes"));
  if (bytes > 0) Check(from, bytes, Access::kRead);
  Check(to, kCopyBytes, Access::kCopy);
  if (meter_ != nullptr) meter_->Copy(current_, site, to, from, bytes);
  Thread& thread = *threads_[current_];
  Thread::Copy& copy =
      thread.copies.emplace_back(Thread::Copy{.to = static_cast<std::byte*>(shared),
                                              .from = static_cast<const std::byte*>(global),
                                              .bytes = bytes,
                                              .group = thread.groups,
                                              .seen = {}});
  std::memcpy(copy.seen, copy.from, bytes);
}

void Machine::CommitCopies(const void* site) {
  OutsideDeviceCode outside;
  if (meter_ != nullptr) meter_->Other(current_, site);
  ++threads_[current_]->groups;
}

void Machine::WaitCopies(int pending_groups, const void* site) {
  OutsideDeviceCode outside;
  if (meter_ != nullptr) meter_->Other(current_, site);
  Thread& thread = *threads_[current_];
  while (!thread.copies.empty() && thread.copies.front().group < thread.groups - pending_groups) {
    FinishCopy(thread);
  }
}

void Machine::Fence(const void* site) {
  OutsideDeviceCode outside;
  if (meter_ != nullptr) meter_->Other(current_, site);
  memory_.order().NoteFence(ActorOf(current_));
}

void Machine::NoteAtomic(uintptr_t address) {
  OutsideDeviceCode outside;
  memory_.order().NoteAtomic(address, ActorOf(current_));
}

void Machine::InitArrival(void* arrival, int32_t copies, const void* site) {
  OutsideDeviceCode outside;
  const auto address = reinterpret_cast<uintptr_t>(arrival);
  if (meter_ != nullptr) meter_->Other(current_, site);
  if (!Check(address, sizeof(kernels::cuda::Arrival), Access::kWrite)) {
    Fail("has an arrival outside shared memory");
  }
  arrivals_[address] = {.copies = copies, .calls = std::vector<int32_t>(shape().threads)};
}

Machine::ArrivalState& Machine::ArrivalAt(void* arrival, const void* site) {
  const auto address = reinterpret_cast<uintptr_t>(arrival);
  if (meter_ != nullptr) meter_->Other(current_, site);
  Check(address, sizeof(kernels::cuda::Arrival), Access::kRead);
  const auto found = arrivals_.find(address);
  if (found == arrivals_.end()) Fail("uses an arrival that nobody prepared");
  return found->second;
}

// The copy is the first thread's. It ends as late as it may, when a thread waits for it.
void Machine::BulkCopy(void* shared, const void* global, int32_t bytes, void* arrival,
                       const void* site) {
  OutsideDeviceCode outside;
  ArrivalState& state = ArrivalAt(arrival, site);
  const int32_t phase = state.calls[current_]++ / state.copies;
  if (phase > 0 && !state.phases.at(phase - 1).done) {
    Fail("starts the bulk copies of a phase before those of the last one have arrived");
  }
  if (phase == std::ssize(state.phases)) {
    state.phases.push_back({.number = memory_.order().AddPhase()});
  }
  if (current_ == 0) {
    const auto to = reinterpret_cast<uintptr_t>(shared), from = reinterpret_cast<uintptr_t>(global);
    if (to % kCopyBytes != 0 || from % kCopyBytes != 0 || bytes % kCopyBytes != 0) {
      Fail("copies in bulk from or to an odd address, or an odd number of bytes");
    }
    Check(from, bytes, Access::kRead);
    if (!Check(to, bytes, Access::kCopy)) Fail("copies in bulk to other than shared memory");
    if (meter_ != nullptr) meter_->Bulk(from, bytes);
    const auto* const source = static_cast<const std::byte*>(global);
    state.phases[phase].copies.push_back(
        {.to = static_cast<std::byte*>(shared), .from = source, .seen = {source, source + bytes}});
  }
  if (++state.all_calls % (int64_t{state.copies} * shape().threads) != 0) return;
  for (int32_t t = 0; t < shape().threads; ++t) {
    if (threads_[t]->state == Thread::State::kAtArrival) Wake(t, 1);
  }
}

void Machine::WaitArrival(void* arrival, int32_t phase, const char* file, int line,
                          const void* site) {
  OutsideDeviceCode outside;
  ArrivalState& state = ArrivalAt(arrival, site);
  const int64_t calls = (int64_t{phase} + 1) * state.copies * shape().threads;
  while (state.all_calls < calls) {
    Thread& thread = *threads_[current_];
    thread.state = Thread::State::kAtArrival;
    thread.function = nullptr;
    thread.file = file;
    thread.line = line;
    thread.fiber.Suspend();
  }
  if (phase + 1 < std::ssize(state.phases)) Fail("waits for a phase after the next one has begun");
  FinishPhase(state, phase);
  memory_.order().NoteWait(state.phases[phase].number, ActorOf(current_));
}

void Machine::FinishPhase(ArrivalState& arrival, int32_t phase) {
  ArrivalState::Phase& finished = arrival.phases[phase];
  if (finished.done) return;
  finished.done = true;
  Actor writer = ActorOf(current_);
  writer.thread = Actor::kBulkCopy | finished.number;
  for (const ArrivalState::Copy& copy : finished.copies) {
    if (std::memcmp(copy.seen.data(), copy.from, copy.seen.size()) != 0) {
      Fail("copies in bulk from what changes before it waits");
    }
    std::memcpy(copy.to, copy.from, copy.seen.size());
    memory_.Arrive(reinterpret_cast<uintptr_t>(copy.to), copy.seen.size(), writer);
  }
  finished.copies.clear();
}

GroupProducts& Machine::products() { return threads_[current_]->products; }

void Machine::ShareWithProducts() {
  OutsideDeviceCode outside;
  threads_[current_]->shares.push_back(ActorOf(current_));
}

void Machine::ReadForProduct(const std::byte* from, size_t bytes, bool issued) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  if (address % bytes != 0) Fail("multiplies from an odd address");
  if (!Check(address, bytes, Access::kRead)) Fail("multiplies from outside of shared memory");
  if (!issued) return;
  for (const Actor& writer : memory_.WritersOf(address, bytes)) {
    if (HasShared(writer)) continue;
    Fail(absl::StrCat("multiplies what thread ", writer.thread,
                      " wrote and has not shared with products before a barrier"));
  }
}

// Returns whether the writer has shared what it wrote, before a barrier that the current thread has
// passed since. Bulk copies write as products read, so what they write need not be shared.
bool Machine::HasShared(const Actor& writer) const {
  if (writer.launch != launches_ || writer.block != static_cast<uint32_t>(block_)) return true;
  if (writer.is_bulk_copy()) return true;
  const Actor now = ActorOf(current_);
  const std::vector<Actor>& shares = threads_[writer.thread]->shares;
  return std::any_of(shares.rbegin(), shares.rend(), [&](const Actor& share) {
    const bool after = share.block_epoch != writer.block_epoch
                           ? share.block_epoch > writer.block_epoch
                           : share.warp_epoch >= writer.warp_epoch;
    const bool same_warp = writer.thread / kWarp == now.thread / kWarp;
    return after && (share.block_epoch < now.block_epoch ||
                     (same_warp && share.warp_epoch < now.warp_epoch));
  });
}

void Machine::FinishCopy(Thread& thread) {
  const Thread::Copy& copy = thread.copies.front();
  if (copy.bytes > 0 && std::memcmp(copy.seen, copy.from, copy.bytes) != 0) {
    Fail("copies asynchronously from what changes before it waits");
  }
  std::memset(copy.to, 0, kCopyBytes);
  std::memcpy(copy.to, copy.from, copy.bytes);
  memory_.Arrive(reinterpret_cast<uintptr_t>(copy.to), kCopyBytes, ActorOf(current_));
  thread.copies.pop_front();
}

}  // namespace sluice::simt
