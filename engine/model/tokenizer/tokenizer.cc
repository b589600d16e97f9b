#include "engine/model/tokenizer/tokenizer.h"

#include "base/status_macros.h"

namespace sluice {
namespace {

constexpr int32_t kBytes = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(TextTemplates templates) : Tokenizer(std::move(templates)) {}

  absl::StatusOr<std::vector<int32_t>> EncodeBare(std::string_view text,
                                                  int64_t most) const override {
    if (std::ssize(text) > most) text = text.substr(0, most + 1);
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  absl::StatusOr<std::vector<int32_t>> EncodeLocated(
      std::string_view text, int64_t most, std::vector<ByteRange>* ranges) const override {
    SLUICE_ASSIGN_OR_RETURN(std::vector<int32_t> ids, EncodeBare(text, most));
    for (int32_t i = 0; i < std::ssize(ids); ++i) ranges->push_back({i, i + 1});
    return ids;
  }

  int64_t longest_token_bytes() const override { return 1; }

  std::string Decode(std::span<const int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (int32_t id : ids) {
      if (id >= 0 && id < kBytes) text.push_back(static_cast<char>(id));
    }
    return text;
  }
};

}  // namespace

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeLocated(
    std::string_view text, int64_t most, std::vector<ByteRange>* ranges) const {
  SLUICE_ASSIGN_OR_RETURN(std::vector<int32_t> ids, EncodeBare(text, most));
  ranges->resize(ranges->size() + ids.size());
  return ids;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, int64_t most) const {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> bare, EncodeBare(text, most));
  const std::span<const int32_t> ids = bare;
  TypedTokens row;
  templates_.single.Append({&ids, 1}, &row);
  return std::move(row.ids);
}

std::unique_ptr<const Tokenizer> MakeByteTokenizer(int32_t bos) {
  TextTemplates templates;
  if (bos >= 0) templates.single.parts.insert(templates.single.parts.begin(), {.token = bos});
  return std::make_unique<ByteTokenizer>(std::move(templates));
}

}  // namespace sluice
