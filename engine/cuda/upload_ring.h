// Sends data to the device through pinned memory, a piece at a time: while one piece is copied, the
// next one is filled.
//
//   SLUICE_ASSIGN_OR_RETURN(void* piece, ring.NextPiece(bytes));
//   std::memcpy(piece, data, bytes);
//   const void* sent = ring.Send(bytes);  // on the device
//   Use(sent, stream);
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/cuda/device.h"

namespace sluice {

class UploadRing {
 public:
  // The arguments outlive the ring, which is used by one thread at a time. `stream` gets the copies
  // and the work that uses them. A piece has at most `most_bytes`.
  UploadRing(Device& device, DeviceStream& stream, size_t most_bytes)
      : device_(device), stream_(stream), most_bytes_(most_bytes) {}
  // Waits for the stream if a piece was sent since the last Finish.
  ~UploadRing() { Finish().IgnoreError(); }
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  size_t most_bytes() const { return most_bytes_; }

  // Returns pinned memory for the next piece of `bytes`, at most most_bytes(). Waits until the copy
  // of the piece before the last one is done. Its memory grows with the pieces.
  absl::StatusOr<void*> NextPiece(size_t bytes);
  // Queues the copy of the filled piece of `bytes`, and returns its address on the device, 256-byte
  // aligned. Work on the stream may use it until the next Send.
  const void* Send(size_t bytes);
  // Waits for the stream and releases the memory. Returns the stream's first error.
  absl::Status Finish();

 private:
  absl::Status Grow(size_t bytes);

  struct StagingBuffer {
    PinnedMemory memory;
    std::unique_ptr<DeviceEvent> copied;
  };

  Device& device_;
  DeviceStream& stream_;
  const size_t most_bytes_;
  size_t bytes_ = 0;  // the size of a piece's memory
  std::array<StagingBuffer, 2> pieces_;
  size_t next_ = 0;      // index in pieces_
  DeviceMemory landed_;  // the piece on the device; the stream orders its uses
};

}  // namespace sluice
