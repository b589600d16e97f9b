#include "kernels/simt/machine.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/simt/kernel_registry.h"
#include "kernels/simt/machine_state.h"

namespace sluice::simt {
namespace {

constexpr int32_t kWarp = 32;

}  // namespace

Machine::Machine(Memory& memory, uint64_t seed) : memory_(memory), random_(seed) {}
Machine::~Machine() {
  if (shared_ != nullptr) memory_.Free(shared_);
}

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
  if (std::ssize(threads_) < shape.threads) threads_ = std::vector<Thread>(shape.threads);
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
    Thread& thread = threads_[t];
    thread.state = Thread::State::kRunnable;
    thread.copies.clear();
    thread.groups = 0;
    thread.has_waited = false;
    thread.products.Clear();
    thread.shares.clear();
    thread.fiber.Start(&EntryPoint, this);
    runnable_[t] = t;
  }
  ChooseThread();
  Fiber::Switch(scheduler_, threads_[current_].fiber.place());
  if (fault_.empty()) ReportStuck();
  for (const auto& [address, arrival] : arrivals_) {
    if (!fault_.empty() || arrival.phases.empty() || arrival.phases.back().done) continue;
    fault_ = absl::StrCat(Where(0), " ends before its bulk copies have arrived");
  }
  if (meter_ != nullptr) meter_->EndBlock();
}

void Machine::ChooseThread() {
  std::swap(runnable_[random_() % runnable_.size()], runnable_.back());
  current_ = runnable_.back();
  runnable_.pop_back();
  const Thread& thread = threads_[current_];
  WarpState& warp = warps_[current_ / kWarp];
  if (warp.number == 0) warp.number = memory_.Enter(ActorOf(current_ / kWarp * kWarp));
  stack_ = thread.fiber.stack();
  actor_ = warp.number + current_ % kWarp * Memory::kLaneStep;
  is_plain_ = meter_ == nullptr && !OwesWait(thread);
}

void Machine::EntryPoint(void* argument) {
  auto* machine = static_cast<Machine*>(argument);
  const LaunchRecord& launch = *machine->launch_;
  current_machine_ = machine;
  launch.kernel.run_thread(launch.kernel.function, launch.argument.get());
  current_machine_ = nullptr;  // the following code is not device code
  Thread& thread = machine->threads_[machine->current_];
  if (!thread.copies.empty()) machine->Fail("ends before its asynchronous copies have arrived");
  if (!thread.products.empty()) machine->Fail("ends before its products have been waited for");
  if (machine->OwesWait(thread)) machine->Fail("ends without waiting for the launch before");
  thread.state = Thread::State::kDone;
  machine->Wait();
  std::abort();  // no thread chooses this one again
}

void Machine::Fail(const std::string& what) {
  current_machine_ = nullptr;
  fault_ = absl::StrCat(Where(current_), " ", what);
  Wait();
  std::abort();  // no thread chooses this one again
}

void Machine::Wait() {
  Thread& thread = threads_[current_];
  if (thread.state == Thread::State::kAtBarrier) {
    if (++at_barrier_ == shape().threads) ReleaseBlock();
  } else if (thread.state == Thread::State::kAtCollective) {
    const int32_t warp = current_ / kWarp;
    if (++warps_[warp].arrived == kWarp) Gather(warp);
  }
  if (!fault_.empty() || runnable_.empty()) {
    return Fiber::Switch(thread.fiber.place(), scheduler_);
  }
  ChooseThread();
  Thread& next = threads_[current_];
  if (&next != &thread) Fiber::Switch(thread.fiber.place(), next.fiber.place());
}

// Runs a collective after all lanes of the warp have reached it.
void Machine::Gather(int32_t warp) {
  const void* in[kWarp];
  void* out[kWarp];
  const Thread& first = threads_[warp * kWarp];
  for (int32_t lane = 0; lane < kWarp; ++lane) {
    const Thread& thread = threads_[warp * kWarp + lane];
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
    warps_[warp].number = 0;
  }
  Wake(warp * kWarp, kWarp);
}

// Releases a barrier after all threads of the block have reached it.
void Machine::ReleaseBlock() {
  for (int32_t t = 0; t < shape().threads; ++t) {
    if (!threads_[t].WaitsWith(threads_[0])) return ReportStuck();
  }
  at_barrier_ = 0;
  ++block_epoch_;
  for (WarpState& warp : warps_) warp.number = 0;
  for (int32_t w = 0; meter_ != nullptr && w < std::ssize(warps_); ++w) meter_->Meet(w);
  Wake(0, shape().threads);
}

void Machine::Wake(int32_t first, int32_t count) {
  for (int32_t t = first; t < first + count; ++t) {
    threads_[t].state = Thread::State::kRunnable;
    runnable_.push_back(t);
  }
}

// Reports a fault if some threads wait forever. No thread can run, so this is the case unless all
// are done.
void Machine::ReportStuck() {
  const auto waits = [this](int32_t t) { return threads_[t].state != Thread::State::kDone; };
  int32_t stuck = 0;
  while (stuck < shape().threads && !waits(stuck)) ++stuck;
  if (stuck == shape().threads) return;
  const Thread& thread = threads_[stuck];
  // A collective concerns its warp, a barrier the whole block.
  const bool warp = thread.state == Thread::State::kAtCollective;
  const int32_t begin = warp ? stuck / kWarp * kWarp : 0;
  const int32_t end = warp ? begin + kWarp : shape().threads;
  int32_t other = begin;
  while (other < end && threads_[other].WaitsWith(thread)) ++other;
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
                        ", but thread ", other, " does not reach it: it ",
                        waits(other) ? absl::StrCat("waits at ", place(threads_[other]))
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

bool Machine::IsShared(uintptr_t address) const {
  return address - reinterpret_cast<uintptr_t>(shared_) <
         static_cast<uintptr_t>(shape().shared_bytes);
}

void Machine::Touch(uintptr_t address, size_t bytes, Access access, const void* site,
                    size_t alignment) {
  if (OnStack(address)) return;
  OutsideDeviceCode outside;
  if (address % alignment != 0) {
    Fail(absl::StrCat("touches ", bytes, " bytes at an address that is not a multiple of ",
                      alignment));
  }
  const bool is_shared = Check(address, bytes, access, site);
  if (meter_ == nullptr) return;
  using enum CostMeter::Kind;
  meter_->Access(current_, site, is_shared ? CostMeter::Space::kShared : CostMeter::Space::kGlobal,
                 access == Access::kRead     ? kRead
                 : access == Access::kAtomic ? kAtomic
                                             : kWrite,
                 address, bytes);
}

void Machine::ReadSharedRow(const void* row, const void* site) {
  constexpr size_t kMatrixRowBytes = 16;
  OutsideDeviceCode outside;
  const auto address = reinterpret_cast<uintptr_t>(row);
  if (address % kMatrixRowBytes != 0) {
    Fail(absl::StrCat("loads a row of a matrix at an address that is not a multiple of ",
                      kMatrixRowBytes));
  }
  if (!Check(address, kMatrixRowBytes, Access::kRead, site)) {
    Fail("loads a row of a matrix that is not in shared memory");
  }
  if (site == nullptr || meter_ == nullptr) return;
  meter_->Access(current_, site, CostMeter::Space::kShared, CostMeter::Kind::kRead, address,
                 kMatrixRowBytes);
}

bool Machine::Check(uintptr_t address, size_t bytes, Access access, const void* site) {
  const bool is_shared = IsShared(address);
  if (!is_shared && OwesWait(threads_[current_])) {
    Fail("touches global memory before it has waited for the launch before");
  }
  if (!memory_.NoteQuickly(address, bytes, access, actor_, site) &&
      !memory_.Note(address, bytes, access, actor_, site)) {
    Fail(memory_.Explain(address, bytes, access, actor_));
  }
  return is_shared;
}

void Machine::WaitForPrevious() {
  threads_[current_].has_waited = true;
  is_plain_ = meter_ == nullptr;
}

bool Machine::OwesWait(const Thread& thread) const {
  return shape().overlaps_previous && !thread.has_waited;
}

void Machine::Barrier(const char* file, int line) {
  OutsideDeviceCode outside;
  Thread& thread = threads_[current_];
  thread.state = Thread::State::kAtBarrier;
  thread.function = nullptr;
  thread.file = file;
  thread.line = line;
  Wait();
}

void Machine::Collective(WarpFunction function, const void* in, void* out, const char* file,
                         int line) {
  OutsideDeviceCode outside;
  Thread& thread = threads_[current_];
  thread.state = Thread::State::kAtCollective;
  thread.function = function;
  thread.in = in;
  thread.out = out;
  thread.file = file;
  thread.line = line;
  Wait();
}

std::byte* Machine::Shared(size_t bytes) {
  OutsideDeviceCode outside;
  if (bytes > static_cast<size_t>(shape().shared_bytes)) {
    Fail(absl::StrCat("needs ", bytes, " bytes of shared memory, the launch has ",
                      shape().shared_bytes));
  }
  return shared_;
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

}  // namespace sluice::simt
