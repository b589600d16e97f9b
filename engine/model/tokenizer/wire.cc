#include "engine/model/tokenizer/wire.h"

#include <bit>

namespace sluice::tokenize {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

}  // namespace

bool WireReader::Next() {
  if (!ok_ || rest_.empty()) return false;
  integer_ = 0;
  bytes_ = {};
  uint64_t tag = 0;
  ok_ = ReadVarint(&tag) && tag >> 3 > 0 && tag >> 3 < (1u << 29);
  number_ = static_cast<uint32_t>(tag >> 3);
  ok_ = ok_ && ReadValue(static_cast<uint32_t>(tag & 7));
  return ok_;
}

float WireReader::real() const { return std::bit_cast<float>(static_cast<uint32_t>(integer_)); }

bool WireReader::ReadValue(uint32_t type) {
  uint64_t size = 0;
  switch (type) {
    case kVarint:
      return ReadVarint(&integer_);
    case kFixed64:
      return ReadFixed(8);
    case kFixed32:
      return ReadFixed(4);
    case kBytes:
      if (!ReadVarint(&size) || size > rest_.size()) return false;
      bytes_ = rest_.substr(0, size);
      rest_.remove_prefix(size);
      return true;
    default:
      return false;
  }
}

bool WireReader::ReadVarint(uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    *value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool WireReader::ReadFixed(size_t size) {
  if (rest_.size() < size) return false;
  for (size_t i = 0; i < size; ++i) {
    integer_ |= uint64_t{static_cast<unsigned char>(rest_[i])} << (8 * i);
  }
  rest_.remove_prefix(size);
  return true;
}

}  // namespace sluice::tokenize
