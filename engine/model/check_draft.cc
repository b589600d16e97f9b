#include "engine/model/check_draft.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

// Returns the error for these two models.
template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("speculation.draft: ", parts...));
}

// Returns the text of a token for a message.
std::string TextOf(const Model& model, int32_t token) {
  return absl::StrCat(
      "\"", absl::CHexEscape(model.tokenizer->DecodeBytes(std::span<const int32_t>(&token, 1))),
      "\"");
}

}  // namespace

absl::Status CheckDraft(const Model& model, const Model& draft) {
  if (!model.generates()) {
    return Refuse("model ", model.name, " generates no tokens, so none can be drafted for it. ",
                  "Remove speculation");
  }
  if (draft.draft != nullptr) {
    return Refuse("model ", draft.name, " has a draft model itself, ", draft.draft->name,
                  ". Remove speculation.draft from ", draft.name);
  }
  const ModelConfig& config = draft.config;
  const bool drafts = draft.generates() && config.input_width == 0 &&
                      config.serving.alignment == PositionAlignment::kStart;
  if (!drafts) {
    return Refuse("model ", draft.name, " cannot draft tokens: it must be a language model whose ",
                  "positions begin with the first token. Name another model");
  }
  if (config.vocab_size != model.config.vocab_size) {
    return Refuse("model ", draft.name, " has ", config.vocab_size, " tokens and model ",
                  model.name, " has ", model.config.vocab_size,
                  ". Name a draft model with the same vocabulary");
  }
  if (model.tokenizer == nullptr || draft.tokenizer == nullptr) return absl::OkStatus();
  for (int32_t token = 0; token < config.vocab_size; ++token) {
    const std::string own = TextOf(model, token), drafted = TextOf(draft, token);
    if (own == drafted) continue;
    return Refuse("token ", token, " is ", drafted, " in model ", draft.name, " and ", own,
                  " in model ", model.name, ". Name a draft model with the same vocabulary");
  }
  return absl::OkStatus();
}

}  // namespace sluice
