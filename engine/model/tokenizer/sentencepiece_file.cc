#include "engine/model/tokenizer/sentencepiece_file.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model/tokenizer/steps.h"
#include "engine/model/tokenizer/wire.h"

namespace sluice::tokenize {
namespace {

using Type = SentencePieceFile::Type;

absl::Status Broken(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is not a message of SentencePiece"));
}

absl::Status AddPiece(std::string_view message, SentencePieceFile* file) {
  const int32_t id = std::ssize(file->scores);
  std::string text;
  float score = 0;
  uint64_t type = 1;
  WireReader field(message);
  while (field.Next()) {
    if (field.number() == 1) text = std::string(field.bytes());
    if (field.number() == 2) score = field.real();
    if (field.number() == 3) type = field.integer();
  }
  const std::string name = absl::StrCat("piece ", id);
  if (!field.ok() || !std::isfinite(score)) return Broken(name);
  if (type < 1 || type > 6 || type == 5) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has type ", type, ", not supported"));
  }
  if (text.empty() || !file->vocabulary.Add(text, id)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is empty, too long or a duplicate"));
  }
  file->scores.push_back(static_cast<double>(score));
  file->types.push_back(static_cast<Type>(type));
  if (file->types.back() == Type::kUnknown) file->unknown = id;
  return absl::OkStatus();
}

absl::Status ReadTrainer(std::string_view message, SentencePieceFile* file) {
  WireReader field(message);
  while (field.Next()) {
    const bool on = field.integer() != 0;
    switch (field.number()) {
      case 3:
        if (field.integer() < 1 || field.integer() > 2) {
          return absl::InvalidArgumentError("the model type is neither unigram nor bpe");
        }
        file->model = static_cast<SentencePieceFile::Model>(field.integer());
        break;
      case 24:
        file->space_is_suffix = on;
        break;
      case 35:
        file->byte_fallback = on;
        break;
      case 44:
        if (field.bytes().size() > kMaxAffixBytes) {
          return absl::InvalidArgumentError(absl::StrCat("unk_surface has ", field.bytes().size(),
                                                         " bytes; the limit is ", kMaxAffixBytes));
        }
        file->unknown_text = std::string(field.bytes());
        break;
      case 46:
        file->bos = std::string(field.bytes());
        break;
      case 47:
        file->eos = std::string(field.bytes());
        break;
      default:
        break;
    }
  }
  return field.ok() ? absl::OkStatus() : Broken("trainer_spec");
}

absl::Status ReadNormalizer(std::string_view message, SentencePieceFile* file) {
  WireReader field(message);
  while (field.Next()) {
    const bool on = field.integer() != 0;
    if (field.number() == 2 && !field.bytes().empty()) {
      auto charsmap = Charsmap::Parse(field.bytes());
      if (!charsmap.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("precompiled_charsmap ", charsmap.status().message()));
      }
      file->charsmap = *std::move(charsmap);
    }
    if (field.number() == 3) file->add_dummy_prefix = on;
    if (field.number() == 4) file->remove_extra_spaces = on;
    if (field.number() == 5) file->escape_spaces = on;
  }
  return field.ok() ? absl::OkStatus() : Broken("normalizer_spec");
}

absl::Status CheckDenormalizer(std::string_view message) {
  WireReader field(message);
  while (field.Next()) {
    if (field.number() == 2 && !field.bytes().empty()) {
      return absl::InvalidArgumentError("denormalizer_spec is not supported");
    }
  }
  return field.ok() ? absl::OkStatus() : Broken("denormalizer_spec");
}

absl::Status ReadField(const WireReader& field, SentencePieceFile* file) {
  switch (field.number()) {
    case 1:
      return AddPiece(field.bytes(), file);
    case 2:
      return ReadTrainer(field.bytes(), file);
    case 3:
      return ReadNormalizer(field.bytes(), file);
    case 5:
      return CheckDenormalizer(field.bytes());
    default:
      return absl::OkStatus();
  }
}

}  // namespace

absl::StatusOr<SentencePieceFile> SentencePieceFile::Parse(std::string_view bytes) {
  SentencePieceFile file;
  WireReader field(bytes);
  while (field.Next()) {
    SLUICE_RETURN_IF_ERROR(ReadField(field, &file));
  }
  if (!field.ok()) return Broken("the file");
  if (file.unknown == kNoToken) return absl::InvalidArgumentError("has no unknown piece");
  return file;
}

}  // namespace sluice::tokenize
