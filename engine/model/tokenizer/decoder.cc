#include "engine/model/tokenizer/decoder.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/byte_level.h"
#include "engine/model/tokenizer/steps.h"
#include "engine/model/tokenizer/unicode.h"
#include "engine/model/tokenizer/vocabulary.h"

namespace sluice::tokenize {
namespace {

using DecodeTransform = std::function<void(std::vector<std::string>* tokens, bool keep_bytes)>;

void Fuse(std::vector<std::string>* tokens, bool /*keep_bytes*/) {
  *tokens = {absl::StrJoin(*tokens, "")};
}

void DecodeByteLevel(std::vector<std::string>* tokens, bool keep_bytes) {
  std::string bytes;
  for (const std::string& token : *tokens) {
    if (!CharactersToBytes(token, &bytes)) bytes += token;
  }
  *tokens = {keep_bytes ? bytes : ToValidUtf8(bytes)};
}

// Replaces runs of tokens that stand for bytes: by the text of the bytes if it is UTF-8, else by
// U+FFFD for each byte.
void DecodeBytes(std::vector<std::string>* tokens, bool keep_bytes) {
  std::vector<std::string> decoded;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (keep_bytes || ToValidUtf8(bytes) == bytes) {
      decoded.push_back(bytes);
    } else {
      decoded.insert(decoded.end(), bytes.size(), std::string(kReplacement));
    }
    bytes.clear();
  };
  for (std::string& token : *tokens) {
    if (const int byte = ByteOf(token); byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
      continue;
    }
    flush();
    decoded.push_back(std::move(token));
  }
  flush();
  *tokens = std::move(decoded);
}

DecodeTransform MakeMetaspaceDecoder(ObjectReader& fields) {
  const std::string mark = fields.String("replacement", 4, "\xE2\x96\x81");
  const bool never = !fields.Boolean("add_prefix_space", true) ||
                     fields.String("prepend_scheme", kMaxAffixBytes, "always") == "never";
  if (mark.empty()) fields.Fail("replacement", "is empty");
  return [mark, never](std::vector<std::string>* tokens, bool /*keep_bytes*/) {
    bool first = true;
    for (std::string& token : *tokens) {
      token = absl::StrReplaceAll(token, {{mark, first && !never ? "" : " "}});
      first = false;
    }
  };
}

std::string WithoutSpacesBeforeMarks(const std::string& text) {
  // The changes are made in this order, one after the other.
  static constexpr std::pair<const char*, const char*> kChanges[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  std::string clean = text;
  for (const auto& [from, to] : kChanges) clean = absl::StrReplaceAll(clean, {{from, to}});
  return clean;
}

DecodeTransform MakeWordPieceDecoder(ObjectReader& fields) {
  const std::string prefix = fields.String("prefix", kMaxAffixBytes, "##");
  const bool cleanup = fields.Boolean("cleanup", true);
  return [prefix, cleanup](std::vector<std::string>* tokens, bool /*keep_bytes*/) {
    bool first = true;
    for (std::string& token : *tokens) {
      if (!first) {
        token = token.starts_with(prefix) ? token.substr(prefix.size()) : absl::StrCat(" ", token);
      }
      if (cleanup) token = WithoutSpacesBeforeMarks(token);
      first = false;
    }
  };
}

DecodeTransform MakeBpeDecoder(ObjectReader& fields) {
  const std::string suffix = fields.String("suffix", kMaxAffixBytes, "</w>");
  if (suffix.empty()) fields.Fail("suffix", "is empty");
  return [suffix](std::vector<std::string>* tokens, bool /*keep_bytes*/) {
    for (size_t i = 0; i < tokens->size(); ++i) {
      const char* end = i + 1 < tokens->size() ? " " : "";
      (*tokens)[i] = absl::StrReplaceAll((*tokens)[i], {{suffix, end}});
    }
  };
}

void Strip(const std::string& content, int64_t start, int64_t stop, std::string* token) {
  size_t begin = 0;
  size_t end = token->size();
  const std::string_view all = *token;
  for (; start > 0 && all.substr(begin).starts_with(content); --start) begin += content.size();
  for (; stop > 0 && all.substr(begin, end - begin).ends_with(content); --stop) {
    end -= content.size();
  }
  *token = token->substr(begin, end - begin);
}

DecodeTransform MakeStripDecoder(ObjectReader& fields) {
  const std::string content = fields.String("content", 4);
  const int64_t start = fields.Integer("start", 0, kMaxAffixBytes);
  const int64_t stop = fields.Integer("stop", 0, kMaxAffixBytes);
  if (CountCodePoints(content) != 1) fields.Fail("content", "is not one character");
  return [=](std::vector<std::string>* tokens, bool /*keep_bytes*/) {
    for (std::string& token : *tokens) Strip(content, start, stop, &token);
  };
}

DecodeTransform MakeDecodeTransform(const std::string& type, ObjectReader& fields) {
  if (type == "ByteLevel") return DecodeByteLevel;
  if (type == "Metaspace") return MakeMetaspaceDecoder(fields);
  if (type == "WordPiece") return MakeWordPieceDecoder(fields);
  if (type == "BPEDecoder") return MakeBpeDecoder(fields);
  if (type == "ByteFallback") return DecodeBytes;
  if (type == "Fuse") return Fuse;
  if (type == "Strip") return MakeStripDecoder(fields);
  fields.Fail("type", absl::StrCat("\"", absl::CEscape(type), "\" is not supported"));
  return nullptr;
}

}  // namespace

absl::StatusOr<Decoder> Decoder::Parse(const nlohmann::json* object) {
  absl::Status status;
  Decoder decoder;
  decoder.spaces_ = object == nullptr;
  VisitMembers(
      object, "decoder", "decoders",
      [&](const std::string& type, ObjectReader& fields) {
        if (type == "Replace") return decoder.AddReplace(fields);
        decoder.transforms_.push_back(MakeDecodeTransform(type, fields));
      },
      &status);
  SLUICE_RETURN_IF_ERROR(status);
  return decoder;
}

// The step leaves a token unchanged if the expression takes too many steps on it.
void Decoder::AddReplace(ObjectReader& fields) {
  const std::shared_ptr<const Pattern> pattern =
      ReadPattern("pattern", fields, SearchLimit::kOfTokens);
  const std::string content = fields.String("content", kMaxAffixBytes);
  if (pattern == nullptr) return;
  growths_.push_back({pattern->least_bytes(), std::ssize(content)});
  transforms_.emplace_back([pattern, content](std::vector<std::string>* tokens, bool) {
    for (std::string& token : *tokens) {
      TextBuilder out(token.size());
      if (!Replace(*pattern, token, content, &out).ok()) continue;
      auto replaced = std::move(out).Finish();
      if (replaced.ok()) token = std::move(replaced->text);
    }
  });
}

int64_t Decoder::MostBytes(int64_t bytes) const {
  for (const auto& [match, content] : growths_) {
    if (match == 0) {
      bytes += (bytes + 1) * content;
    } else if (content > match) {
      bytes += (bytes * (content - match) + match - 1) / match;  // A match may be in two tokens.
    }
    bytes = std::min(bytes, int64_t{kMaxTextBytes});
  }
  return bytes;
}

std::string Decoder::Apply(std::vector<std::string> tokens, bool keep_bytes) const {
  for (const DecodeTransform& transform : transforms_) transform(&tokens, keep_bytes);
  return absl::StrJoin(tokens, spaces_ ? " " : "");
}

}  // namespace sluice::tokenize
