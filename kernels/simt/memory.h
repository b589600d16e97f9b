// The emulated device's memory: buffers with gaps between them, and of every two bytes who touched
// them last. Nothing is reachable by a pointer that went astray, and unordered accesses are found
// whatever the order in which the threads really ran.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sluice::simt {

// A thread between two of its barriers. Launches count from 1; launch 0 is nobody.
struct Actor {
  uint32_t launch = 0;
  uint32_t block = 0;
  uint32_t block_epoch = 0;  // barriers of the block passed
  uint32_t warp_epoch = 0;   // barriers of the warp passed
  uint32_t thread = 0;       // in the block

  bool operator==(const Actor&) const = default;
};

enum class Access {
  kRead,
  kWrite,
  kAtomic,  // read and written, ordered with other atomic accesses
  kCopy,    // an asynchronous copy writes there until Arrive
};

class Memory {
 public:
  // 256-byte aligned, poisoned. Never null.
  void* Allocate(size_t bytes);
  // Checks that `buffer` is the beginning of a live buffer.
  // Its bytes.
  size_t Free(void* buffer);
  // Free and Allocate, in the same place if there is room; `buffer` may be null.
  void* Recycle(void* buffer, size_t bytes);

  // Makes the bytes NaN (as float, bfloat16 and double), -1 (as integer) and unwritten: reading
  // them is a fault until somebody writes them. Also forgets who touched them.
  void Poison(void* begin, size_t bytes);

  // What the host did between launches: the bytes count as written, by nobody.
  // Empty, or what is wrong with the range.
  std::string HostAccess(const void* begin, size_t bytes, Access access);

  // Notes that `actor` touches [address, address + bytes). Empty, or what is wrong with that, to be
  // read after "thread .. ": out of bounds, unwritten, still being copied to, or unordered with an
  // access of another thread.
  std::string Note(uintptr_t address, size_t bytes, Access access, const Actor& actor);
  // The asynchronous copy to these bytes, noted before, has arrived as a write of `actor`.
  void Arrive(uintptr_t address, size_t bytes, const Actor& actor);

  size_t live_bytes() const { return live_bytes_; }

 private:
  // From whom on reads of one granule are unordered: one thread, several of a warp, of a block, of
  // several blocks.
  enum class Readers : uint8_t { kThread, kWarp, kBlock, kGrid };
  enum class State : uint8_t { kUnwritten, kWritten, kCopying };

  struct Granule {
    Actor writer, reader;
    Readers readers = Readers::kThread;
    State state = State::kUnwritten;
    bool atomic = false;      // the last write was
    uint32_t generation = 0;  // of the buffer when all this was true
  };
  static constexpr size_t kGranuleBytes = 2, kGapBytes = 256;

  struct Buffer {
    uintptr_t begin;
    size_t bytes;
    size_t room;  // that the storage has for bytes
    std::unique_ptr<std::byte[]> storage;
    std::vector<Granule> granules;
    uint32_t generation = 0;  // poisonings of the whole

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
  // Whether the access is in order; if not, nothing is noted.
  static bool NoteGranule(Granule& granule, Access access, const Actor& actor);
  static bool MayRead(const Granule& granule, Access access, const Actor& actor);
  static bool MayWrite(const Granule& granule, Access access, const Actor& actor);
  static std::string Explain(const Granule& granule, Access access, const Actor& actor);
  static void NoteReader(Granule& granule, const Actor& actor);
  static bool RacesWithReaders(const Granule& granule, const Actor& actor);

  std::map<uintptr_t, Buffer> buffers_;
  Buffer* last_ = nullptr;  // most accesses fall where the one before did
  size_t live_bytes_ = 0;
};

}  // namespace sluice::simt
