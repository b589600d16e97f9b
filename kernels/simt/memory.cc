#include "kernels/simt/memory.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace sluice::simt {
namespace {

bool SameWarp(const Actor& a, const Actor& b) { return a.thread / 32 == b.thread / 32; }

}  // namespace

bool Memory::Ordered(const Actor& a, const Actor& b) const {
  if (a.launch != b.launch) return true;
  if (a.block != b.block) return order_.IsShown(a, b);
  if (a.is_bulk_copy()) return order_.HasArrived(a.thread & ~Actor::kBulkCopy, b);
  return a.thread == b.thread || a.block_epoch != b.block_epoch ||
         (SameWarp(a, b) && a.warp_epoch != b.warp_epoch);
}

void* Memory::Allocate(size_t bytes) {
  Buffer buffer;
  buffer.bytes = buffer.room = bytes;
  buffer.storage = std::make_unique<std::byte[]>(bytes + 2 * kGapBytes);
  const auto storage = reinterpret_cast<uintptr_t>(buffer.storage.get());
  buffer.begin = (storage + kGapBytes - 1) / kGapBytes * kGapBytes;
  buffer.granules.resize(bytes / kGranuleBytes + 1);
  void* begin = reinterpret_cast<void*>(buffer.begin);
  live_bytes_ += bytes;
  buffers_.emplace(buffer.begin, std::move(buffer));
  Poison(begin, bytes);
  return begin;
}

size_t Memory::Free(void* buffer) {
  const auto found = buffers_.find(reinterpret_cast<uintptr_t>(buffer));
  SLUICE_CHECK(found != buffers_.end());
  const size_t bytes = found->second.bytes;
  if (!found->second.recycled) live_bytes_ -= bytes;
  last_ = nullptr;
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
  if (last_ != nullptr && last_->Holds(address, bytes)) return last_;
  auto next = buffers_.upper_bound(address);
  if (next == buffers_.begin()) return nullptr;
  Buffer& buffer = std::prev(next)->second;
  if (!buffer.Holds(address, bytes)) return nullptr;
  return last_ = &buffer;
}

void Memory::Poison(void* begin, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  Buffer* buffer = Find(address, bytes);
  SLUICE_CHECK(buffer != nullptr);
  std::memset(begin, 0xFF, bytes);
  if (bytes == buffer->bytes) {
    ++buffer->generation;
    return;
  }
  const size_t first = (address - buffer->begin) / kGranuleBytes;
  for (size_t i = 0; i < bytes / kGranuleBytes; ++i) buffer->Reset(first + i);
}

std::string Memory::Misplaced(uintptr_t address, size_t bytes) const {
  const auto next = buffers_.upper_bound(address);
  std::string text = absl::StrCat("touches ", bytes, " bytes in no buffer");
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
  Buffer* buffer = Find(address, bytes);
  if (buffer == nullptr) return Misplaced(address, bytes);
  const size_t first = (address - buffer->begin) / kGranuleBytes;
  for (size_t i = 0; i < (bytes + kGranuleBytes - 1) / kGranuleBytes; ++i) {
    if (access != Access::kWrite) continue;
    buffer->Reset(first + i).state = State::kWritten;
  }
  return "";
}

std::string Memory::Note(uintptr_t address, size_t bytes, Access access, const Actor& actor) {
  Buffer* buffer = Find(address, bytes);
  if (buffer == nullptr) return Misplaced(address, bytes);
  const size_t offset = address - buffer->begin, end = offset + bytes;
  for (size_t i = offset / kGranuleBytes; i * kGranuleBytes < end; ++i) {
    Granule& granule = buffer->At(i);
    if (!NoteGranule(granule, access, actor)) return Explain(granule, access, actor);
  }
  return "";
}

void Memory::Arrive(uintptr_t address, size_t bytes, const Actor& actor) {
  Buffer* buffer = Find(address, bytes);
  SLUICE_CHECK(buffer != nullptr);
  const size_t first = (address - buffer->begin) / kGranuleBytes;
  for (size_t i = 0; i < bytes / kGranuleBytes; ++i) {
    Granule& granule = buffer->At(first + i);
    granule.state = State::kWritten;
    granule.writer = actor;
  }
}

std::vector<Actor> Memory::WritersOf(uintptr_t address, size_t bytes) {
  Buffer* buffer = Find(address, bytes);
  SLUICE_CHECK(buffer != nullptr);
  std::vector<Actor> writers;
  const size_t first = (address - buffer->begin) / kGranuleBytes;
  for (size_t i = 0; i < bytes / kGranuleBytes; ++i) {
    const Actor& writer = buffer->At(first + i).writer;
    if (writers.empty() || !(writers.back() == writer)) writers.push_back(writer);
  }
  return writers;
}

bool Memory::NoteGranule(Granule& granule, Access access, const Actor& actor) const {
  if (access == Access::kRead) {
    // A write since this reader was noted would have been reported as a fault.
    if (granule.reader == actor && granule.state == State::kWritten) return true;
    if (!MayRead(granule, access, actor)) return false;
    NoteReader(granule, actor);
    return true;
  }
  if (access == Access::kAtomic && !MayRead(granule, access, actor)) return false;
  if (!MayWrite(granule, access, actor)) return false;
  granule.writer = actor;
  granule.atomic = access == Access::kAtomic;
  granule.state = access == Access::kCopy ? State::kCopying : State::kWritten;
  return true;
}

bool Memory::MayRead(const Granule& granule, Access access, const Actor& actor) const {
  return granule.state == State::kWritten &&
         (Ordered(granule.writer, actor) || (access == Access::kAtomic && granule.atomic));
}

bool Memory::MayWrite(const Granule& granule, Access access, const Actor& actor) const {
  return granule.state != State::kCopying &&
         (Ordered(granule.writer, actor) || (access == Access::kAtomic && granule.atomic)) &&
         !RacesWithReaders(granule, actor);
}

std::string Memory::Explain(const Granule& granule, Access access, const Actor& actor) const {
  if (granule.state == State::kCopying) {
    return absl::StrCat("touches what thread ", granule.writer.thread,
                        " copies to asynchronously and has not waited for");
  }
  const bool reads = access == Access::kRead || access == Access::kAtomic;
  if (reads && granule.state == State::kUnwritten) return "reads what nobody wrote";
  const auto race = [](const char* verb, const Actor& other, const char* deed) {
    return absl::StrCat(verb, " what block ", other.block, ", thread ", other.thread, " ", deed,
                        " with no barrier between");
  };
  if (!Ordered(granule.writer, actor)) {
    if (granule.writer.is_bulk_copy()) return "touches a bulk copy that it has not waited for";
    return race(access == Access::kRead ? "reads" : "overwrites", granule.writer, "wrote");
  }
  return race("overwrites", granule.reader,
              granule.readers == Readers::kThread ? "read" : "and others read");
}

// Notes the last reader, and how widely the readers that no barrier orders before it are spread.
void Memory::NoteReader(Granule& granule, const Actor& actor) {
  const Actor before = granule.reader;
  granule.reader = actor;
  if (before.launch != actor.launch) {
    granule.readers = Readers::kThread;
  } else if (before.block != actor.block) {
    granule.readers = Readers::kGrid;
  } else if (granule.readers == Readers::kGrid) {
    return;
  } else if (before.block_epoch != actor.block_epoch) {
    granule.readers = Readers::kThread;
  } else if (!SameWarp(before, actor)) {
    granule.readers = Readers::kBlock;
  } else if (granule.readers == Readers::kBlock) {
    return;
  } else if (before.warp_epoch != actor.warp_epoch) {
    granule.readers = Readers::kThread;
  } else if (before.thread != actor.thread) {
    granule.readers = Readers::kWarp;
  }
}

bool Memory::RacesWithReaders(const Granule& granule, const Actor& actor) const {
  const Actor& reader = granule.reader;
  if (reader.launch != actor.launch) return false;
  switch (granule.readers) {
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
