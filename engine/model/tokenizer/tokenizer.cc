#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {
namespace {

constexpr int32_t kBytes = 256;

class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(int32_t bos) : bos_(bos) {}

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, int64_t most) const override {
    if (std::ssize(text) > most) text = text.substr(0, most + 1);
    std::vector<int32_t> ids;
    ids.reserve(text.size() + 1);
    if (bos_ >= 0) ids.push_back(bos_);
    for (char c : text) ids.push_back(static_cast<unsigned char>(c));
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

 private:
  int32_t bos_;
};

}  // namespace

std::unique_ptr<const Tokenizer> MakeByteTokenizer(int32_t bos) {
  return std::make_unique<ByteTokenizer>(bos);
}

}  // namespace sluice
