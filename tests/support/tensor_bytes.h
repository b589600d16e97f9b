// The raw little-endian contents of tensors in messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
std::vector<T> Values(const std::string& raw) {
  std::vector<T> values(raw.size() / sizeof(T));
  raw.copy(reinterpret_cast<char*>(values.data()), values.size() * sizeof(T));
  return values;
}

// Returns an element of a BYTES tensor: its length, then its text.
inline std::string BytesElement(const std::string& text) {
  return Bytes<uint32_t>({static_cast<uint32_t>(text.size())}) + text;
}

}  // namespace sluice
