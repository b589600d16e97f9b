// Asynchronous work of device code: copies, bulk copies with their arrivals, and products.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/simt/machine_state.h"
#include "kernels/simt/simt.h"

namespace sluice::simt {

void Machine::CopyAsync(void* shared, const void* global, int32_t bytes, const void* site) {
  OutsideDeviceCode outside;
  const auto to = reinterpret_cast<uintptr_t>(shared), from = reinterpret_cast<uintptr_t>(global);
  if (to % kCopyBytes != 0 || from % kCopyBytes != 0)
    Fail("copies from or to a misaligned address");
  if (bytes < 0 || bytes > kCopyBytes) Fail(absl::StrCat("copies ", bytes, " bytes"));
  if (bytes > 0) Check(from, bytes, Access::kRead, site);
  Check(to, kCopyBytes, Access::kCopy, nullptr);
  if (meter_ != nullptr) meter_->Copy(current_, site, to, from, bytes);
  Thread& thread = threads_[current_];
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
  ++threads_[current_].groups;
}

void Machine::WaitCopies(int pending_groups, const void* site) {
  OutsideDeviceCode outside;
  if (meter_ != nullptr) meter_->Other(current_, site);
  Thread& thread = threads_[current_];
  while (!thread.copies.empty() && thread.copies.front().group < thread.groups - pending_groups) {
    FinishCopy(thread);
  }
}

void Machine::InitArrival(void* arrival, int32_t copies, bool by_warp, const void* site) {
  OutsideDeviceCode outside;
  const auto address = reinterpret_cast<uintptr_t>(arrival);
  if (meter_ != nullptr) meter_->Other(current_, site);
  if (!Check(address, sizeof(kernels::cuda::Arrival), Access::kWrite, nullptr)) {
    Fail("has an arrival outside shared memory");
  }
  const int32_t threads = by_warp ? kernels::cuda::kWarp : shape().threads;
  arrivals_[address] = {.copies = copies, .threads = threads};
}

Machine::ArrivalState& Machine::ArrivalAt(void* arrival, const void* site) {
  const auto address = reinterpret_cast<uintptr_t>(arrival);
  if (meter_ != nullptr) meter_->Other(current_, site);
  Check(address, sizeof(kernels::cuda::Arrival), Access::kRead, nullptr);
  const auto found = arrivals_.find(address);
  if (found == arrivals_.end()) Fail("uses an arrival that no thread prepared");
  return found->second;
}

// The first thread makes the copy for the block, or the first lane for its warp. The copy ends as
// late as possible, when a thread waits for it.
void Machine::BulkCopy(void* shared, const void* global, int32_t bytes, void* arrival, bool by_warp,
                       const void* site) {
  OutsideDeviceCode outside;
  ArrivalState& state = ArrivalAt(arrival, site);
  if (state.threads != (by_warp ? kernels::cuda::kWarp : shape().threads)) {
    Fail("copies in bulk by other threads than the arrival was prepared for");
  }
  const int64_t phase_calls = int64_t{state.copies} * state.threads;
  const int64_t phase = state.all_calls / phase_calls;
  if (phase > 0 && !state.phases.at(phase - 1).done) {
    Fail("starts the bulk copies of a phase before the last phase has arrived");
  }
  if (phase == std::ssize(state.phases)) {
    state.phases.push_back({.number = memory_.order().AddPhase()});
  }
  if (current_ % state.threads == 0) {
    const auto to = reinterpret_cast<uintptr_t>(shared), from = reinterpret_cast<uintptr_t>(global);
    if (to % kCopyBytes != 0 || from % kCopyBytes != 0 || bytes % kCopyBytes != 0) {
      Fail("copies in bulk from or to a misaligned address, or a misaligned size");
    }
    if (bytes > 0) {
      Check(from, bytes, Access::kRead, site);
      if (!IsShared(to)) Fail("copies in bulk to memory that is not shared memory");
      for (const Actor& writer : memory_.WritersOf(to, bytes)) {
        if (HasShared(writer)) continue;
        Fail(absl::StrCat("copies in bulk over data that thread ", writer.thread,
                          " wrote and has not shared with copies before a barrier"));
      }
      Check(to, bytes, Access::kCopy, nullptr);
      if (meter_ != nullptr) meter_->Bulk(from, bytes);
      const auto* const source = static_cast<const std::byte*>(global);
      state.phases[phase].copies.push_back({.to = static_cast<std::byte*>(shared),
                                            .from = source,
                                            .seen = {source, source + bytes}});
    }
  }
  if (++state.all_calls % phase_calls != 0) return;
  for (int32_t t = 0; t < shape().threads; ++t) {
    if (threads_[t].state == Thread::State::kAtArrival) Wake(t, 1);
  }
}

void Machine::WaitArrival(void* arrival, int32_t phase, const char* file, int line,
                          const void* site) {
  OutsideDeviceCode outside;
  ArrivalState& state = ArrivalAt(arrival, site);
  const int64_t calls = (int64_t{phase} + 1) * state.copies * state.threads;
  while (state.all_calls < calls) {
    Thread& thread = threads_[current_];
    thread.state = Thread::State::kAtArrival;
    thread.function = nullptr;
    thread.file = file;
    thread.line = line;
    Wait();
  }
  if (phase + 1 < std::ssize(state.phases)) Fail("waits for a phase after the next one started");
  FinishPhase(state, phase);
  memory_.order().NoteWait(state.phases[phase].number, ActorOf(current_));
}

void Machine::FinishPhase(ArrivalState& arrival, int32_t phase) {
  ArrivalState::Phase& finished = arrival.phases[phase];
  if (finished.done) return;
  finished.done = true;
  Actor writer = ActorOf(current_);
  writer.thread = Actor::kBulkCopy | finished.number;
  const uint32_t number = memory_.Enter(writer);
  for (const ArrivalState::Copy& copy : finished.copies) {
    if (std::memcmp(copy.seen.data(), copy.from, copy.seen.size()) != 0) {
      Fail("copies in bulk from memory that changes before it waits");
    }
    std::memcpy(copy.to, copy.from, copy.seen.size());
    memory_.Arrive(reinterpret_cast<uintptr_t>(copy.to), copy.seen.size(), number);
  }
  finished.copies.clear();
}

GroupProducts& Machine::products() { return threads_[current_].products; }

void Machine::ShareWithProducts() {
  OutsideDeviceCode outside;
  threads_[current_].shares.push_back(ActorOf(current_));
}

void Machine::ReadForProduct(const std::byte* from, size_t bytes, bool issued) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  if (address % bytes != 0) Fail("multiplies from a misaligned address");
  if (!Check(address, bytes, Access::kRead, nullptr))
    Fail("multiplies from memory that is not shared memory");
  if (!issued) return;
  for (const Actor& writer : memory_.WritersOf(address, bytes)) {
    if (HasShared(writer)) continue;
    Fail(absl::StrCat("multiplies data that thread ", writer.thread,
                      " wrote and has not shared with products before a barrier"));
  }
}

// Returns whether the writer has shared its data, before a barrier that the current thread has
// passed since. Data of bulk copies need not be shared, because products see it without that.
bool Machine::HasShared(const Actor& writer) const {
  if (writer.launch != launches_ || writer.block != static_cast<uint32_t>(block_)) return true;
  if (writer.is_bulk_copy()) return true;
  const Actor now = ActorOf(current_);
  const std::vector<Actor>& shares = threads_[writer.thread].shares;
  return std::any_of(shares.rbegin(), shares.rend(), [&](const Actor& share) {
    const bool after = share.block_epoch != writer.block_epoch
                           ? share.block_epoch > writer.block_epoch
                           : share.warp_epoch >= writer.warp_epoch;
    using kernels::cuda::kWarp;
    const bool same_warp = writer.thread / kWarp == now.thread / kWarp;
    return after && (share.block_epoch < now.block_epoch ||
                     (same_warp && share.warp_epoch < now.warp_epoch));
  });
}

void Machine::FinishCopy(Thread& thread) {
  const Thread::Copy& copy = thread.copies.front();
  if (copy.bytes > 0 && std::memcmp(copy.seen, copy.from, copy.bytes) != 0) {
    Fail("copies asynchronously from memory that changes before it waits");
  }
  std::memset(copy.to, 0, kCopyBytes);
  std::memcpy(copy.to, copy.from, copy.bytes);
  memory_.Arrive(reinterpret_cast<uintptr_t>(copy.to), kCopyBytes, actor_);
  thread.copies.pop_front();
}

}  // namespace sluice::simt
