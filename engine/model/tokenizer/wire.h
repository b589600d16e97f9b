// The wire format of Protocol Buffers, as far as a tokenizer.model needs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::tokenize {

// One field after the other of a message. Whatever the bytes, it stays within them.
class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}

  // False at the end and at bytes that are no field; ok() says which.
  bool Next();
  bool ok() const { return ok_; }

  uint32_t number() const { return number_; }
  // Of the field: empty, 0 where its type is another.
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
