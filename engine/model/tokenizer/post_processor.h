// The tokens that are put around a text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::tokenize {

struct Frame {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;

  // Has `bos` first, or not, and `eos` last, or not; kNoToken: there is none.
  void SetBos(int32_t bos, bool wanted);
  void SetEos(int32_t eos, bool wanted);
};

// What the `post_processor` of a tokenizer.json puts around one text: TemplateProcessing, BertProcessing,
// RobertaProcessing, ByteLevel (nothing) and Sequences of them. nullptr: nothing. Errors name the field;
// so does the refusal of another type.
absl::StatusOr<Frame> ParseFrame(const nlohmann::json* object);

// What files beside the tokenizer's say: tokenizer_config.json, special_tokens_map.json.
struct SpecialTokens {
  std::string bos, eos;  // empty: none
  std::optional<bool> add_bos, add_eos;
  std::vector<std::string> all;  // that decode to nothing
  std::string tokenizer_class;
};

}  // namespace sluice::tokenize
