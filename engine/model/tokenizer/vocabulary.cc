#include "engine/model/tokenizer/vocabulary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace sluice::tokenize {

absl::StatusOr<Vocabulary> Vocabulary::Parse(const nlohmann::json* object,
                                             const std::string& path) {
  if (object == nullptr || !object->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not an object"));
  }
  // Ids may have gaps, but a small file must not need a large table.
  constexpr uint64_t kMaxGap = uint64_t{1} << 18;
  const uint64_t most = std::min<uint64_t>(kMaxTokens, kMaxGap + 16 * object->size());
  Vocabulary vocabulary;
  for (const auto& [text, id] : object->items()) {
    const bool valid = id.is_number_unsigned() && id.get<uint64_t>() < most &&
                       vocabulary.Add(text, id.get<int32_t>());
    if (valid) continue;
    return absl::InvalidArgumentError(absl::StrCat(path, ".", absl::CEscape(text.substr(0, 64)),
                                                   " has no unique id, an integer below ", most));
  }
  return vocabulary;
}

bool Vocabulary::Add(std::string text, int32_t id) {
  return IdOf(text) == kNoToken && AddOrReplace(std::move(text), id);
}

bool Vocabulary::AddOrReplace(std::string text, int32_t id) {
  if (id < 0 || id >= kMaxTokens || text.size() > kMaxTokenBytes || Has(id)) return false;
  ids_.insert_or_assign(text, id);
  if (id >= end()) {
    texts_.resize(static_cast<size_t>(id) + 1);
    present_.resize(texts_.size());
  }
  longest_bytes_ = std::max(longest_bytes_, text.size());
  present_[id] = true;
  ++size_;
  texts_[id] = std::move(text);
  return true;
}

int32_t Vocabulary::IdOf(std::string_view text) const {
  const auto it = ids_.find(absl::string_view(text.data(), text.size()));
  return it == ids_.end() ? kNoToken : it->second;
}

const std::string& Vocabulary::TextOf(int32_t id) const {
  static const std::string* const empty = new std::string;
  return Has(id) ? texts_[id] : *empty;
}

bool Vocabulary::Has(int32_t id) const { return id >= 0 && id < end() && present_[id]; }

bool Vocabulary::AppendBytes(std::string_view text, std::vector<int32_t>* ids) const {
  const size_t size = ids->size();
  for (const char byte : text) {
    const int32_t id = IdOf(absl::StrFormat("<0x%02X>", static_cast<unsigned char>(byte)));
    if (id == kNoToken) {
      ids->resize(size);
      return false;
    }
    ids->push_back(id);
  }
  return true;
}

int ByteOf(const std::string& token) {
  int byte = 0;
  const bool shaped = token.size() == 6 && token.starts_with("<0x") && token.back() == '>';
  return shaped && absl::SimpleHexAtoi(token.substr(3, 2), &byte) ? byte : -1;
}

}  // namespace sluice::tokenize
