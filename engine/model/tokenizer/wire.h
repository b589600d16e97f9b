// The part of the wire format of Protocol Buffers that a tokenizer.model needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::tokenize {

// Reads the fields of a message in order. It never reads beyond the message, even if the bytes are
// malformed.
class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}

  // Moves to the next field. Returns false at the end and at bytes that are not a field; ok()
  // distinguishes these.
  bool Next();
  bool ok() const { return ok_; }

  uint32_t number() const { return number_; }
  // The value of the field: empty or 0 if the field has another type.
  std::string_view bytes() const { return bytes_; }
  uint64_t integer() const { return integer_; }
  float real() const;

 private:
  bool ReadVarint(uint64_t* value);
  bool ReadFixed(size_t size);
  bool ReadValue(uint32_t type);

  std::string_view rest_;
  bool ok_ = true;
  uint32_t number_ = 0;
  uint64_t integer_ = 0;
  std::string_view bytes_;
};

}  // namespace sluice::tokenize
