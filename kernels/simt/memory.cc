#include "kernels/simt/memory.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::simt {
namespace {

constexpr int kUnwritten = 0xFF;
constexpr uint32_t kWarp = 32;

bool SameWarp(const Actor& a, const Actor& b) { return a.thread / kWarp == b.thread / kWarp; }

}  // namespace

Memory::Memory() { recent_.fill(&nothing_); }

void* Memory::Allocate(size_t bytes) {
  auto storage = std::make_unique_for_overwrite<std::byte[]>(kAlignment + bytes + kGapBytes);
  const auto address = reinterpret_cast<uintptr_t>(storage.get());
  const uintptr_t begin = (address + kAlignment - 1) / kAlignment * kAlignment;
  Buffer& buffer = buffers_[begin];
  buffer.begin = begin;
  buffer.bytes = buffer.room = bytes;
  buffer.storage = std::move(storage);
  buffer.granules = std::make_unique<Granule[]>(bytes / kGranuleBytes + 1);
  live_bytes_ += bytes;
  void* const memory = reinterpret_cast<void*>(begin);
  std::memset(memory, kUnwritten, bytes);
  return memory;
}

size_t Memory::Free(void* buffer) {
  const auto found = buffers_.find(reinterpret_cast<uintptr_t>(buffer));
  SLUICE_CHECK(found != buffers_.end());
  const size_t bytes = found->second.bytes;
  if (!found->second.recycled) live_bytes_ -= bytes;
  recent_.fill(&nothing_);
  buffers_.erase(found);
  return bytes;
}

void* Memory::Recycle(void* buffer, size_t bytes) {
  if (buffer != nullptr) {
    Buffer& old = buffers_.at(reinterpret_cast<uintptr_t>(buffer));
    if (bytes <= old.room) {
      old.bytes = bytes;
      Poison(buffer, bytes);
      return buffer;
    }
    Free(buffer);
  }
  void* const made = Allocate(bytes);
  live_bytes_ -= bytes;
  buffers_.at(reinterpret_cast<uintptr_t>(made)).recycled = true;
  return made;
}

Memory::Buffer* Memory::Find(uintptr_t address, size_t bytes) {
  const auto next = buffers_.upper_bound(address);
  if (next == buffers_.begin()) return nullptr;
  Buffer& buffer = std::prev(next)->second;
  return buffer.Holds(address, bytes) ? &buffer : nullptr;
}

void Memory::Poison(void* begin, size_t bytes) {
  if (bytes == 0) return;
  const auto address = reinterpret_cast<uintptr_t>(begin);
  Buffer* const buffer = Find(address, bytes);
  SLUICE_CHECK(buffer != nullptr);
  std::memset(begin, kUnwritten, bytes);
  if (buffer->recycled && bytes == buffer->bytes) {
    buffer->valid_from = next_;
  } else {
    std::ranges::fill(buffer->Granules(address, bytes), Granule());
  }
}

std::string Memory::Misplaced(uintptr_t address, size_t bytes) const {
  const auto next = buffers_.upper_bound(address);
  std::string text = absl::StrCat("touches ", bytes, " bytes outside of all buffers");
  if (next != buffers_.begin()) {
    const Buffer& below = std::prev(next)->second;
    const uintptr_t end = below.begin + below.bytes;
    if (address + bytes - end < 65536) {
      return absl::StrCat(text, ", up to ", address + bytes - end,
                          " bytes past the end of a buffer of ", below.bytes);
    }
  }
  if (next != buffers_.end() && next->second.begin - address < 65536) {
    return absl::StrCat(text, ", ", next->second.begin - address, " bytes before a buffer of ",
                        next->second.bytes);
  }
  return text;
}

std::string Memory::HostAccess(const void* begin, size_t bytes, Access access) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  Buffer* const buffer = Find(address, bytes);
  if (buffer == nullptr) return Misplaced(address, bytes);
  if (access != Access::kWrite) return "";
  std::ranges::fill(buffer->Granules(address, bytes), Granule{.writer = kHost, .reader = kNobody});
  return "";
}

uint32_t Memory::Enter(const Actor& actor) {
  // A launch has numbers for more than 2^24 warps between barriers.
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max() - kWarpStep;
  const uint32_t lane = actor.is_bulk_copy() ? 0 : actor.thread % kWarp;
  const Actor last = warps_.empty() ? Actor() : warps_.back();
  if (actor.launch != last.launch) {
    if (next_ > kMost / 2) Renumber();
    warps_.clear();
    launch_begin_ = next_;
  }
  if (launch_begin_ == next_ || actor.block != last.block) block_begin_ = next_;
  if (block_begin_ == next_ || actor.block_epoch != last.block_epoch) epoch_begin_ = next_;
  SLUICE_CHECK(next_ <= kMost);
  warps_.push_back(actor);
  warps_.back().thread -= lane;
  next_ += kWarpStep;
  return next_ - kWarpStep + lane * kLaneStep;
}

void Memory::Renumber() {
  for (auto& [begin, buffer] : buffers_) {
    for (Granule& granule : buffer.Granules(begin, buffer.bytes)) {
      const bool written = Counted(buffer, granule).writer != kNobody;
      granule = {.writer = written ? kHost : kNobody, .reader = kNobody};
    }
    buffer.valid_from = kHost;
  }
  next_ = kFirstNumber;
}

std::string Memory::Explain(uintptr_t address, size_t bytes, Access access, uint32_t number) {
  Buffer* const buffer = Find(address, bytes);
  if (buffer == nullptr) return Misplaced(address, bytes);
  const Actor actor = At(number);
  const std::span<Granule> granules = buffer->Granules(address, bytes);
  const auto refused = std::ranges::find_if(granules, [&](const Granule& granule) {
    return !MayAccess(Counted(*buffer, granule), access, actor);
  });
  SLUICE_CHECK(refused != granules.end());
  const Granule granule = Counted(*buffer, *refused);
  const Actor writer = At(granule.writer);
  if (granule.copying()) {
    return absl::StrCat("touches the target of an asynchronous copy of thread ", writer.thread,
                        " that it has not waited for");
  }
  const bool reads = access == Access::kRead || access == Access::kAtomic;
  if (reads && granule.writer == kNobody) return "reads unwritten memory";
  const auto race = [](const char* verb, const Actor& other, const char* deed) {
    return absl::StrCat(verb, " data that block ", other.block, ", thread ", other.thread, " ",
                        deed, " with no barrier between");
  };
  if (!Ordered(writer, actor)) {
    if (writer.is_bulk_copy()) return "touches a bulk copy that it has not waited for";
    return race(access == Access::kRead ? "reads" : "overwrites", writer, "wrote");
  }
  return race("overwrites", At(granule.reader),
              granule.readers() == Readers::kThread ? "read" : "and others read");
}

void Memory::Arrive(uintptr_t address, size_t bytes, uint32_t actor) {
  Buffer* const buffer = Find(address, bytes);
  SLUICE_CHECK(buffer != nullptr);
  for (Granule& granule : buffer->Granules(address, bytes)) {
    granule.SetWriter(actor, Access::kWrite);
  }
}

std::vector<Actor> Memory::WritersOf(uintptr_t address, size_t bytes) {
  Buffer* const buffer = Find(address, bytes);
  SLUICE_CHECK(buffer != nullptr);
  std::vector<Actor> writers;
  uint32_t last = kNobody;
  for (const Granule& granule : buffer->Granules(address, bytes)) {
    if (granule.writer != last) writers.push_back(At(granule.writer));
    last = granule.writer;
  }
  return writers;
}

bool Memory::Note(uintptr_t address, size_t bytes, Access access, uint32_t actor,
                  const void* site) {
  Buffer* buffer = Recent(site);
  if (!buffer->Holds(address, bytes)) {
    buffer = Find(address, bytes);
    if (buffer == nullptr) return false;
    Recent(site) = buffer;
  }
  Granule before, after;
  for (bool first = true; Granule & granule : buffer->Granules(address, bytes)) {
    if (first || !(granule == before)) {
      std::optional<Granule> noted = AfterUsual(*buffer, granule, access, actor);
      if (!noted.has_value()) noted = After(*buffer, granule, access, actor);
      if (!noted.has_value()) return false;
      before = granule;
      after = *noted;
      first = false;
    }
    granule.Store(after);
  }
  return true;
}

std::optional<Memory::Granule> Memory::After(const Buffer& buffer, Granule granule, Access access,
                                             uint32_t number) const {
  granule = Counted(buffer, granule);
  const Actor actor = At(number);
  if (!MayAccess(granule, access, actor)) return std::nullopt;
  if (access == Access::kRead) {
    granule.SetReader(number, ReadersAfter(granule, actor));
  } else {
    granule.SetWriter(number, access);
  }
  return granule;
}

Memory::Granule Memory::Counted(const Buffer& buffer, Granule granule) {
  if (granule.writer < buffer.valid_from) granule.writer = kNobody;
  if (granule.reader < buffer.valid_from) granule.reader = kNobody;
  return granule;
}

Actor Memory::At(uint32_t number) const {
  if (number < launch_begin_) return Actor();
  Actor actor = WarpOf(number);
  if (!actor.is_bulk_copy()) actor.thread += number % kWarpStep / kLaneStep;
  return actor;
}

bool Memory::Ordered(const Actor& a, const Actor& b) const {
  if (a.launch != b.launch) return true;
  if (a.block != b.block) return order_.IsShown(a, b);
  if (a.is_bulk_copy()) return order_.HasArrived(a.thread & ~Actor::kBulkCopy, b);
  return a.thread == b.thread || a.block_epoch != b.block_epoch ||
         (SameWarp(a, b) && a.warp_epoch != b.warp_epoch);
}

bool Memory::MayRead(const Granule& granule, Access access, const Actor& actor) const {
  return granule.writer != kNobody && !granule.copying() &&
         (Ordered(At(granule.writer), actor) || (access == Access::kAtomic && granule.atomic()));
}

bool Memory::MayWrite(const Granule& granule, Access access, const Actor& actor) const {
  return !granule.copying() &&
         (Ordered(At(granule.writer), actor) || (access == Access::kAtomic && granule.atomic())) &&
         !RacesWithReaders(granule, actor);
}

// Returns how widely the readers are spread that no barrier orders before `actor`, including
// `actor` itself.
Memory::Readers Memory::ReadersAfter(const Granule& granule, const Actor& actor) const {
  const Actor before = At(granule.reader);
  if (before.launch != actor.launch) return Readers::kThread;
  if (before.block != actor.block || granule.readers() == Readers::kGrid) return Readers::kGrid;
  if (before.block_epoch != actor.block_epoch) return Readers::kThread;
  if (!SameWarp(before, actor) || granule.readers() == Readers::kBlock) return Readers::kBlock;
  if (before.warp_epoch != actor.warp_epoch) return Readers::kThread;
  return before.thread != actor.thread ? Readers::kWarp : granule.readers();
}

bool Memory::RacesWithReaders(const Granule& granule, const Actor& actor) const {
  const Actor reader = At(granule.reader);
  if (reader.launch != actor.launch) return false;
  switch (granule.readers()) {
    case Readers::kThread:
      return !Ordered(reader, actor);
    case Readers::kWarp:
      return reader.block != actor.block ||
             (reader.block_epoch == actor.block_epoch &&
              !(SameWarp(reader, actor) && reader.warp_epoch != actor.warp_epoch));
    case Readers::kBlock:
      return reader.block != actor.block || reader.block_epoch == actor.block_epoch;
    case Readers::kGrid:
      return true;
  }
  return true;
}

}  // namespace sluice::simt
