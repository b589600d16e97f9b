// The emulated device's memory: buffers with gaps between them, and a record of the threads that
// last accessed each two bytes. A stray pointer reaches no buffer, and unordered accesses are found
// whatever the order in which the threads really ran.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
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
  // Returns a buffer that is 256-byte aligned and poisoned. Never returns null.
  void* Allocate(size_t bytes);
  // Frees a buffer and returns its size in bytes. `buffer` must be the beginning of a live buffer
  // (CHECK).
  size_t Free(void* buffer);
  // Frees `buffer`, which is null or from Recycle, and allocates `bytes`, in the same place if
  // there is room. For a processor's shared memory, which live_bytes does not count.
  void* Recycle(void* buffer, size_t bytes);

  // Sets the bytes to NaN (as float, bfloat16 and double) or -1 (as integer) and marks them
  // unwritten: reading them is a fault until they are written. Also forgets who accessed them.
  void Poison(void* begin, size_t bytes);

  // Records an access by the host between launches: bytes written count as written by no thread.
  // Returns an empty string, or the error in the range.
  std::string HostAccess(const void* begin, size_t bytes, Access access);

  // Notes that `actor` accesses [address, address + bytes). Returns an empty string or an error
  // text to follow "thread .. ": out of bounds, unwritten, still being copied to, or unordered with
  // an access of another thread.
  std::string Note(uintptr_t address, size_t bytes, Access access, const Actor& actor);
  // Turns the asynchronous copy to these bytes, which was noted before, into a write of `actor`.
  void Arrive(uintptr_t address, size_t bytes, const Actor& actor);

  // Returns who last wrote to each granule of these bytes, which lie in a buffer; each writer once.
  std::vector<Actor> WritersOf(uintptr_t address, size_t bytes);
  // The order of the block that runs, beside that of barriers.
  BlockOrder& order() { return order_; }

  size_t live_bytes() const { return live_bytes_; }

 private:
  // How widely the unordered readers of one granule are spread: one thread, several threads of a
  // warp, of a block, or several blocks.
  enum class Readers : uint8_t { kThread, kWarp, kBlock, kGrid };
  enum class State : uint8_t { kUnwritten, kWritten, kCopying };

  struct Granule {
    Actor writer, reader;
    Readers readers = Readers::kThread;
    State state = State::kUnwritten;
    bool atomic = false;      // whether the last write was atomic
    uint32_t generation = 0;  // generation of the buffer for which all this holds
  };
  static constexpr size_t kGranuleBytes = 2, kGapBytes = 256;

  struct Buffer {
    uintptr_t begin;
    size_t bytes;
    size_t room;  // capacity of the storage in bytes
    bool recycled = false;
    std::unique_ptr<std::byte[]> storage;
    std::vector<Granule> granules;
    uint32_t generation = 0;  // number of times the whole buffer was poisoned

    Granule& At(size_t i) { return granules[i].generation == generation ? granules[i] : Reset(i); }
    Granule& Reset(size_t i) {
      granules[i] = Granule{};
      granules[i].generation = generation;
      return granules[i];
    }

    bool Holds(uintptr_t address, size_t n) const {
      return address >= begin && n <= bytes && address - begin <= bytes - n;
    }
  };

  Buffer* Find(uintptr_t address, size_t bytes);
  std::string Misplaced(uintptr_t address, size_t bytes) const;
  // Notes the access and returns true if it is valid; otherwise notes nothing and returns false.
  bool NoteGranule(Granule& granule, Access access, const Actor& actor) const;
  // Returns whether the accesses of `a` are known to have happened before those of `b`, or cannot
  // conflict with them.
  bool Ordered(const Actor& a, const Actor& b) const;
  bool MayRead(const Granule& granule, Access access, const Actor& actor) const;
  bool MayWrite(const Granule& granule, Access access, const Actor& actor) const;
  std::string Explain(const Granule& granule, Access access, const Actor& actor) const;
  static void NoteReader(Granule& granule, const Actor& actor);
  bool RacesWithReaders(const Granule& granule, const Actor& actor) const;

  BlockOrder order_;
  std::map<uintptr_t, Buffer> buffers_;
  Buffer* last_ = nullptr;  // most accesses are to the same buffer as the previous one
  size_t live_bytes_ = 0;
};

}  // namespace sluice::simt
