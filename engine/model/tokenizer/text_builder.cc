#include "engine/model/tokenizer/text_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/model/tokenizer/unicode.h"

namespace sluice::tokenize {

void TextBuilder::Append(char32_t point) {
  char bytes[kMaxUtf8Bytes];
  Append(std::string_view(bytes, ToUtf8(point, bytes)));
}

bool TextBuilder::Grow(size_t size) {
  if (status_.ok() && size > most_) {
    status_ = absl::OutOfRangeError(absl::StrCat("the tokenizer makes more than ", most_,
                                                 " bytes of the text, which is the limit"));
  }
  // A string that grows gets at least twice its capacity.
  if (status_.ok() && size > made_.text.capacity()) {
    Reserve(std::max(size, std::min(2 * made_.text.capacity(), most_)));
  }
  return status_.ok();
}

void TextBuilder::Reserve(size_t bytes) {
  // The old and the new buffer exist at the same time.
  status_ = made_.memory.Hold(static_cast<int64_t>(bytes + made_.text.capacity()));
  if (!status_.ok()) return;
  made_.text.reserve(bytes);
  status_ = made_.memory.Hold(static_cast<int64_t>(made_.text.capacity()));
}

absl::StatusOr<OwnedText> TextBuilder::Finish() && {
  if (!status_.ok()) return status_;
  return std::move(made_);
}

}  // namespace sluice::tokenize
