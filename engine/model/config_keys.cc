#include "engine/model/config_keys.h"

#include <algorithm>
#include <iterator>

namespace sluice {
namespace {

struct ClassKeys {
  std::string_view model_type;
  std::string_view keys;     // separated by spaces
  std::string_view aliases;  // "name=key", separated by spaces
};

#include "engine/model/config_keys.inc"

// Returns the word of `words` that equals `word`, or the one that begins with "`word`=".
std::string_view FindWord(std::string_view words, std::string_view word, bool prefix = false) {
  while (!words.empty()) {
    const std::string_view each = words.substr(0, words.find(' '));
    if (prefix ? each.starts_with(word) && each.substr(word.size()).starts_with('=')
               : each == word) {
      return each;
    }
    words.remove_prefix(std::min(words.size(), each.size() + 1));
  }
  return {};
}

const ClassKeys* FindClass(std::string_view model_type) {
  const auto* const found = std::ranges::find(kClasses, model_type, &ClassKeys::model_type);
  return found == std::end(kClasses) ? nullptr : found;
}

}  // namespace

bool IsKeyOfClass(std::string_view model_type, std::string_view key) {
  const ClassKeys* const known = FindClass(model_type);
  return !FindWord(kCommonKeys, key).empty() ||
         (known != nullptr && !FindWord(known->keys, key).empty());
}

std::string_view KeyOfAlias(std::string_view model_type, std::string_view name) {
  const ClassKeys* const known = FindClass(model_type);
  if (known == nullptr) return {};
  const std::string_view pair = FindWord(known->aliases, name, /*prefix=*/true);
  return pair.empty() ? pair : pair.substr(name.size() + 1);
}

}  // namespace sluice
