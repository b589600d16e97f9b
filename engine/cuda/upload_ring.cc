#include "engine/cuda/upload_ring.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace sluice {

absl::StatusOr<void*> UploadRing::NextPiece(size_t bytes) {
  SLUICE_CHECK(bytes <= most_bytes_);
  if (bytes > bytes_) SLUICE_RETURN_IF_ERROR(Grow(bytes));
  SLUICE_RETURN_IF_ERROR(pieces_[next_].copied->Synchronize());
  return pieces_[next_].memory.get();
}

const void* UploadRing::Send(size_t bytes) {
  StagingBuffer& piece = pieces_[next_];
  stream_.CopyToDevice(landed_.get(), piece.memory.get(), bytes);
  stream_.Record(*piece.copied);
  next_ = (next_ + 1) % pieces_.size();
  return landed_.get();
}

absl::Status UploadRing::Finish() {
  if (bytes_ == 0) return absl::OkStatus();
  bytes_ = 0;
  const absl::Status status = stream_.Synchronize();
  pieces_ = {};
  landed_ = nullptr;
  return status;
}

// Few tensors are larger than the earlier ones, so this rarely waits.
absl::Status UploadRing::Grow(size_t bytes) {
  SLUICE_RETURN_IF_ERROR(Finish());
  bytes_ = std::min(most_bytes_, std::bit_ceil(bytes));
  for (StagingBuffer& piece : pieces_) {
    SLUICE_ASSIGN_OR_RETURN(piece.memory, device_.AllocatePinned(bytes_));
    SLUICE_ASSIGN_OR_RETURN(piece.copied, device_.CreateEvent());
  }
  SLUICE_ASSIGN_OR_RETURN(landed_, device_.Allocate(bytes_));
  return absl::OkStatus();
}

}  // namespace sluice
