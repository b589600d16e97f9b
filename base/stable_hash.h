// A hash for stored data: it is the same on every machine and in every build.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace sluice {

// The FNV-1a hash of 64 bits.
class StableHash {
 public:
  void Add(std::string_view bytes) {
    for (const char byte : bytes) {
      value_ = (value_ ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
    }
  }
  void Add(int64_t number) { Add(std::string_view(absl::StrCat(number, ";"))); }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace sluice
