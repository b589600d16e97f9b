// The emulated device's memory: buffers with gaps between them, and a record of the last accesses
// to each two bytes. A stray pointer reaches no buffer. Unordered accesses are found in any actual
// order of the threads.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/simt/block_order.h"

namespace sluice::simt {

enum class Access {
  kRead,
  kWrite,
  kAtomic,  // read and written, ordered with other atomic accesses
  kCopy,    // an asynchronous copy writes there until Arrive
};

class Memory {
 public:
  Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Returns a buffer that is poisoned and aligned to kAlignment. Never returns null.
  static constexpr size_t kAlignment = 1024;
  void* Allocate(size_t bytes);
  // Frees a buffer and returns its size in bytes. `buffer` must be the beginning of a live buffer
  // (CHECK).
  size_t Free(void* buffer);
  // Frees `buffer`, which is null or from Recycle, and allocates `bytes`, in the same place if
  // there is room. This is for a processor's shared memory, which live_bytes does not count.
  void* Recycle(void* buffer, size_t bytes);

  // Sets the bytes to NaN (as float, bfloat16 and double) or -1 (as integer) and marks them
  // unwritten: reading them is a fault until they are written. Also forgets their earlier accesses.
  void Poison(void* begin, size_t bytes);

  // Records an access by the host between launches. Bytes that the host writes have no writing
  // thread. Returns an empty string, or the error in the range.
  std::string HostAccess(const void* begin, size_t bytes, Access access);

  // The functions below identify actors by numbers. Enter numbers the 32 threads of the actor's
  // warp, and returns the number of `actor`. The number of the next lane is larger by kLaneStep.
  // The numbers are valid until the next barrier of the warp or the block. A phase of bulk copies
  // gets one number. If the launch, block or epoch differs from the previous call, the earlier one
  // has ended.
  static constexpr uint32_t kLaneStep = 4;
  uint32_t Enter(const Actor& actor);

  // Notes an access to [address, address + bytes) and returns true, or returns false if the access
  // is not allowed. `site` is the place of the access in device code. It may be null.
  bool Note(uintptr_t address, size_t bytes, Access access, uint32_t actor, const void* site);
  // Does the same in the most frequent cases. Otherwise returns false and notes nothing.
  bool NoteQuickly(uintptr_t address, size_t bytes, Access access, uint32_t actor,
                   const void* site);
  // Returns the error of an access that Note has refused, as text to follow "thread ..": out of
  // bounds, unwritten, target of a pending copy, or unordered with an access of another thread.
  std::string Explain(uintptr_t address, size_t bytes, Access access, uint32_t actor);
  // Turns the asynchronous copy to these bytes, which was noted before, into a write of `actor`.
  void Arrive(uintptr_t address, size_t bytes, uint32_t actor);

  // Returns the last writers of the granules of these bytes, which are in one buffer. Adjacent
  // granules with the same writer add it once.
  std::vector<Actor> WritersOf(uintptr_t address, size_t bytes);
  // The part of the running block's order that does not come from barriers.
  BlockOrder& order() { return order_; }

  size_t live_bytes() const { return live_bytes_; }

 private:
  // How widely the unordered readers of one granule are spread: one thread, several threads of a
  // warp, of a block, or several blocks.
  enum class Readers : uint8_t { kThread, kWarp, kBlock, kGrid };

  // Later actors have larger numbers. The first number of a warp is a multiple of kWarpStep.
  static constexpr uint32_t kWarpStep = 32 * kLaneStep;
  static constexpr uint32_t kNobody = 0, kHost = kLaneStep, kFirstNumber = kWarpStep;

  // The numbers of the last writer and reader. Numbers are multiples of kLaneStep, so their low
  // bits are used as flags. The flags do not change a comparison with the first number of a warp.
  struct Granule {
    uint32_t writer = kNobody, reader = kNobody;
    static constexpr uint32_t kFlags = kLaneStep - 1;
    static constexpr uint32_t kAtomic = 1;   // the last write was atomic
    static constexpr uint32_t kCopying = 2;  // the writer's asynchronous copy has yet to arrive

    bool atomic() const { return (writer & kAtomic) != 0; }
    bool copying() const { return (writer & kCopying) != 0; }
    Readers readers() const { return static_cast<Readers>(reader & kFlags); }
    void SetReader(uint32_t actor, Readers readers) {
      reader = actor | static_cast<uint32_t>(readers);
    }
    void SetWriter(uint32_t actor, Access access) {
      writer = actor | (access == Access::kAtomic ? kAtomic : 0) |
               (access == Access::kCopy ? kCopying : 0);
    }
    uint64_t bits() const { return std::bit_cast<uint64_t>(*this); }
    bool operator==(const Granule& other) const { return bits() == other.bits(); }
    // Stores both members at once. Otherwise a load of both would have to wait for two stores.
    void Store(const Granule& other) {
      const uint64_t stored = other.bits();
      std::memcpy(static_cast<void*>(this), &stored, sizeof(stored));
    }
  };
  static constexpr size_t kGranuleBytes = 2, kGapBytes = 256;

  struct Buffer {
    uintptr_t begin = 0;
    size_t bytes = 0;
    std::unique_ptr<Granule[]> granules = nullptr;
    // Smaller numbers in granules are from accesses before the buffer was poisoned, and do not
    // count.
    uint32_t valid_from = kHost;
    bool recycled = false;
    size_t room = 0;  // capacity of the storage in bytes
    std::unique_ptr<std::byte[]> storage = nullptr;

    bool Holds(uintptr_t address, size_t n) const {
      return address - begin < bytes && n <= bytes - (address - begin);
    }
    std::span<Granule> Granules(uintptr_t address, size_t n) {
      const size_t first = (address - begin) / kGranuleBytes;
      return {&granules[first], (address - begin + n + kGranuleBytes - 1) / kGranuleBytes - first};
    }
  };

  Buffer* Find(uintptr_t address, size_t bytes);
  // Returns the buffer of the last access from this place in device code, or from another place in
  // the same slot.
  Buffer*& Recent(const void* site) { return recent_[reinterpret_cast<uintptr_t>(site) % kRecent]; }
  std::string Misplaced(uintptr_t address, size_t bytes) const;
  // Forgets the numbers of earlier launches and starts again from kFirstNumber.
  void Renumber();

  // Returns the granule after the access, or nullopt if the access is not allowed.
  std::optional<Granule> After(const Buffer& buffer, Granule granule, Access access,
                               uint32_t actor) const;
  // Does the same in the usual cases, which need only a comparison of numbers. Returns nullopt in
  // other cases.
  std::optional<Granule> AfterUsual(const Buffer& buffer, Granule granule, Access access,
                                    uint32_t actor) const;
  // Returns the granule without the numbers that do not count.
  static Granule Counted(const Buffer& buffer, Granule granule);
  // Returns whether the number is from an earlier epoch of the running block.
  bool OfEarlierEpoch(uint32_t actor) const {
    return actor >= block_begin_ && actor < epoch_begin_;
  }
  // Returns the first thread of the warp of a number of the running launch.
  const Actor& WarpOf(uint32_t actor) const { return warps_[(actor - launch_begin_) / kWarpStep]; }
  // Returns whether a number of the running launch is from the same warp as `actor`, in the same
  // epoch of the block, and in an earlier epoch of the warp.
  bool OfEarlierWarpEpoch(uint32_t number, uint32_t actor) const {
    const Actor &before = WarpOf(number), &now = WarpOf(actor);
    return number >= epoch_begin_ && before.thread == now.thread &&
           before.warp_epoch != now.warp_epoch;
  }
  // Returns the actor with a number, or Actor() if the number is from an earlier launch.
  Actor At(uint32_t number) const;
  // Returns whether the accesses of `a` are known to happen before the accesses of `b`, or cannot
  // conflict with them.
  bool Ordered(const Actor& a, const Actor& b) const;
  bool MayRead(const Granule& granule, Access access, const Actor& actor) const;
  bool MayWrite(const Granule& granule, Access access, const Actor& actor) const;
  bool MayAccess(const Granule& granule, Access access, const Actor& actor) const {
    return ((access != Access::kRead && access != Access::kAtomic) ||
            MayRead(granule, access, actor)) &&
           (access == Access::kRead || MayWrite(granule, access, actor));
  }
  Readers ReadersAfter(const Granule& granule, const Actor& actor) const;
  bool RacesWithReaders(const Granule& granule, const Actor& actor) const;

  BlockOrder order_;
  // The first number of the running launch, of its block, and of the epoch of the block.
  uint32_t launch_begin_ = kFirstNumber, block_begin_ = kFirstNumber, epoch_begin_ = kFirstNumber;
  uint32_t next_ = kFirstNumber;
  std::vector<Actor> warps_;  // the actor of each first number of a warp of the launch

  std::map<uintptr_t, Buffer> buffers_;
  // The buffer of the last access, by place in device code. A place usually accesses only one
  // buffer.
  static constexpr size_t kRecent = 256;
  Buffer nothing_;
  std::array<Buffer*, kRecent> recent_ = {};
  size_t live_bytes_ = 0;
};

[[gnu::always_inline]] inline bool Memory::NoteQuickly(uintptr_t address, size_t bytes,
                                                       Access access, uint32_t actor,
                                                       const void* site) {
  Buffer* const buffer = Recent(site);
  if (!buffer->Holds(address, bytes)) return false;
  if (bytes > 1 && address % kGranuleBytes != 0) return false;
  // The granules of an element usually have the same history.
  Granule* const granules = &buffer->granules[(address - buffer->begin) / kGranuleBytes];
  const size_t count = (bytes + kGranuleBytes - 1) / kGranuleBytes;
  const Granule before = granules[0];
  uint64_t differences = 0;
#pragma GCC unroll 8
  for (size_t i = 1; i < count; ++i) differences |= granules[i].bits() ^ before.bits();
  if (differences != 0) return false;
  const std::optional<Granule> after = AfterUsual(*buffer, before, access, actor);
  if (!after.has_value()) return false;
  if (*after == before) return true;
#pragma GCC unroll 8
  for (size_t i = 0; i < count; ++i) granules[i].Store(*after);
  return true;
}

[[gnu::always_inline]] inline std::optional<Memory::Granule> Memory::AfterUsual(
    const Buffer& buffer, Granule granule, Access access, uint32_t actor) const {
  // Accesses with smaller numbers cannot conflict: they are from an earlier launch, or from before
  // the buffer was poisoned.
  const uint32_t settled = buffer.valid_from < launch_begin_ ? launch_begin_ : buffer.valid_from;
  const uint32_t writer = granule.writer, reader = granule.reader;
  const bool after_write = writer < settled || OfEarlierEpoch(writer) ||
                           (writer ^ actor) < kLaneStep || OfEarlierWarpEpoch(writer, actor);
  if (!after_write || granule.copying() || access == Access::kAtomic) return std::nullopt;
  if (access != Access::kRead) {
    const bool after_reads =
        reader < settled || reader == actor ||
        (granule.readers() != Readers::kGrid && OfEarlierEpoch(reader)) ||
        (granule.readers() < Readers::kBlock && OfEarlierWarpEpoch(reader, actor));
    if (!after_reads) return std::nullopt;
    granule.SetWriter(actor, access);
    return granule;
  }
  if (writer < buffer.valid_from) return std::nullopt;
  if (reader < settled) {
    granule.SetReader(actor, Readers::kThread);
  } else if (granule.readers() == Readers::kGrid) {
    // With several readers, it does not matter which one is noted.
  } else if (reader < block_begin_) {
    granule.SetReader(actor, Readers::kGrid);
  } else if (reader < epoch_begin_) {
    granule.SetReader(actor, Readers::kThread);
  } else if (granule.readers() == Readers::kBlock || reader == actor) {
    // See above: it does not matter which reader is noted.
  } else if ((reader ^ actor) < kWarpStep) {
    granule.SetReader(actor, Readers::kWarp);
  } else {
    granule.SetReader(actor,
                      OfEarlierWarpEpoch(reader, actor) ? Readers::kThread : Readers::kBlock);
  }
  return granule;
}

}  // namespace sluice::simt
