// The content of a tokenizer.model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/tokenizer/charsmap.h"
#include "engine/model/tokenizer/vocabulary.h"

namespace sluice::tokenize {

// Field numbers and defaults are from sentencepiece_model.proto.
struct SentencePieceFile {
  enum class Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6 };
  enum class Model { kUnigram = 1, kBpe = 2 };

  Vocabulary vocabulary;
  std::vector<double> scores;  // by id
  std::vector<Type> types;     // by id

  Model model = Model::kUnigram;
  bool space_is_suffix = false;
  bool byte_fallback = false;
  std::string unknown_text = " \xE2\x81\x87 ";
  std::string bos = "<s>";
  std::string eos = "</s>";

  std::optional<Charsmap> charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;

  int32_t unknown = kNoToken;
  Type TypeOf(int32_t id) const { return types[id]; }

  static absl::StatusOr<SentencePieceFile> Parse(std::string_view bytes);
};

}  // namespace sluice::tokenize
