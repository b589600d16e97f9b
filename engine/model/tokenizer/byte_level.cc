#include "engine/model/tokenizer/byte_level.h"

#include <array>

#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {
namespace {

constexpr char32_t kFirstOther = 0x100;
constexpr size_t kOthers = 68;

constexpr bool StandsForItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Table {
  std::array<char32_t, 256> character{};
  std::array<unsigned char, kOthers> other{};  // the bytes of U+0100, U+0101, ...
};

constexpr Table MakeTable() {
  Table table;
  size_t others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const auto at = static_cast<size_t>(byte);
    table.character[at] = static_cast<char32_t>(byte);
    if (StandsForItself(byte)) continue;
    table.character[at] = kFirstOther + static_cast<char32_t>(others);
    table.other[others++] = static_cast<unsigned char>(byte);
  }
  return table;
}

constexpr Table kTable = MakeTable();

}  // namespace

std::string BytesToCharacters(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    AppendUtf8(kTable.character[static_cast<unsigned char>(byte)], &text);
  }
  return text;
}

bool CharactersToBytes(std::string_view text, std::string* bytes) {
  const size_t size = bytes->size();
  for (size_t at = 0; at < text.size();) {
    const char32_t point = NextCodePoint(text, &at);
    if (point >= kFirstOther && point < kFirstOther + kOthers) {
      bytes->push_back(static_cast<char>(kTable.other[point - kFirstOther]));
    } else if (point < kFirstOther && StandsForItself(static_cast<int>(point))) {
      bytes->push_back(static_cast<char>(point));
    } else {
      bytes->resize(size);
      return false;
    }
  }
  return true;
}

}  // namespace sluice::tokenize
