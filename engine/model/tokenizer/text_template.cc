#include "engine/model/tokenizer/text_template.h"

#include <algorithm>

namespace sluice {

int64_t TextTemplate::specials() const {
  return std::count_if(parts.begin(), parts.end(),
                       [](const Element& part) { return part.text == kNoText; });
}

void TextTemplate::Append(std::span<const std::span<const int32_t>> texts, TypedTokens* row) const {
  for (const Element& part : parts) {
    if (part.text == kNoText) {
      row->ids.push_back(part.token);
    } else {
      row->ids.insert(row->ids.end(), texts[part.text].begin(), texts[part.text].end());
    }
    row->types.resize(row->ids.size(), part.type);
  }
}

}  // namespace sluice
