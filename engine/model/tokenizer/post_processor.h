// The tokens to put around a text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::tokenize {

struct PostProcessor {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;

  // These put `bos` first and `eos` last, or remove them. A token of kNoToken is ignored.
  void SetBos(int32_t bos, bool wanted);
  void SetEos(int32_t eos, bool wanted);
};

// Reads the `post_processor` of a tokenizer.json for one text: TemplateProcessing, BertProcessing,
// RobertaProcessing, ByteLevel (which adds no tokens) and Sequences of these. nullptr adds no
// tokens. Errors, such as an unsupported type, name the field.
absl::StatusOr<PostProcessor> ParsePostProcessor(const nlohmann::json* object);

// The special tokens according to the files beside the tokenizer's: tokenizer_config.json and
// special_tokens_map.json.
struct SpecialTokens {
  std::string bos, eos;  // empty if not named
  std::optional<bool> add_bos, add_eos;
  std::vector<std::string> all;  // all tokens that decode to nothing
  std::string tokenizer_class;
};

}  // namespace sluice::tokenize
