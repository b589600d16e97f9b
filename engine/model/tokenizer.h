// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Begins with the model's bos token where it has one.
  virtual std::vector<int32_t> Encode(std::string_view text) const = 0;
  // Special tokens decode to nothing.
  virtual std::string Decode(std::span<const int32_t> ids) const = 0;
};

// Id = byte value; ids from 256 on are special. `bos` < 0: none.
std::unique_ptr<const Tokenizer> MakeByteTokenizer(int32_t bos);

}  // namespace sluice
