#include "server/protocol/parameters/parameters.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text_wrap.h"
#include "engine/parameter_table.h"
#include "server/common/status.h"
#include "server/protocol/parameters/parameter_list.h"
#include "server/protocol/parameters/parameter_value.h"

namespace sluice {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Unknown(absl::string_view name) {
  std::vector<std::string> known;
  for (const ParameterInfo& info : RequestParameters()) known.emplace_back(info.name);
  return ReasonError(Reason::kParameter,
                     absl::StrCat("unknown parameter ", Printable(name), Suggestion(name, known)));
}

// Returns the index of the value in the parameter's list of words.
absl::StatusOr<size_t> ReadWord(const ParameterInfo& info, const inference::InferParameter& value) {
  const auto found = std::find(info.words.begin(), info.words.end(), value.string_param());
  const bool text = value.parameter_choice_case() == inference::InferParameter::kStringParam;
  if (text && found != info.words.end()) return found - info.words.begin();
  std::string expected = "one of ";
  for (const std::string_view word : info.words) {
    absl::StrAppend(&expected, word == info.words.front() ? "" : ", ", View(word));
  }
  return Expected(View(info.name), value, expected);
}

// Reads one parameter's value into its field, according to the field's type.
struct Reading {
  const ParameterInfo& info;
  const inference::InferParameter& value;
  const ModelConfig& config;
  RequestSpec& spec;

  absl::string_view name() const { return View(info.name); }

  absl::Status operator()(FieldOf<bool> field) const {
    return ReadFlag(name(), value, &field(spec));
  }
  absl::Status operator()(FieldOf<uint64_t> field) const {
    return ReadInteger(name(), value, &field(spec));
  }
  absl::Status operator()(FieldOf<int64_t> field) const {
    return ReadInteger(name(), value, static_cast<int64_t>(info.range.min),
                       static_cast<int64_t>(info.range.MaxFor(config)), &field(spec));
  }
  absl::Status operator()(FieldOf<int32_t> field) const {
    int64_t number = 0;
    absl::Status status = ReadInteger(name(), value, static_cast<int64_t>(info.range.min),
                                      static_cast<int64_t>(info.range.MaxFor(config)), &number);
    if (status.ok()) field(spec) = number;
    return status;
  }
  absl::Status operator()(FieldOf<float> field) const {
    return ReadReal(name(), value,
                    {.min = info.range.min,
                     .max = info.range.MaxFor(config),
                     .above_min = info.range.above_min,
                     .zero_too = info.range.zero_too},
                    &field(spec));
  }
  absl::Status operator()(FieldOf<std::vector<int32_t>> field) const {
    absl::Status status =
        ReadTokenIds(name(), value, config.vocab_size,
                     static_cast<size_t>(info.range.MaxFor(config)), &field(spec));
    if (status.ok() && info.range.min > 0 && field(spec).empty()) {
      return ParameterError(
          name(),
          "is empty, so no token could be drawn; list at least one token, or leave "
          "the parameter out to allow all tokens");
    }
    return status;
  }
  absl::Status operator()(FieldOf<std::vector<kernels::TokenBias>> field) const {
    return ReadTokenBias(name(), value, config.vocab_size, &field(spec));
  }
  absl::Status operator()(FieldOf<std::vector<std::string>> field) const {
    return ReadTexts(name(), value, static_cast<size_t>(info.range.MaxFor(config)), &field(spec));
  }
  absl::Status operator()(FieldOf<std::vector<std::vector<TextSpan>>> field) const {
    return ReadSpans(name(), value, &field(spec));
  }
  absl::Status operator()(FieldOf<std::string> field) const {
    if (value.parameter_choice_case() != inference::InferParameter::kStringParam) {
      return Expected(name(), value, "a text");
    }
    const size_t bytes = value.string_param().size(), most = static_cast<size_t>(info.range.max);
    if (most > 0 && bytes > most) {
      return ParameterError(name(), absl::StrCat("has ", bytes, " bytes; the limit is ", most));
    }
    field(spec) = value.string_param();
    return absl::OkStatus();
  }
  absl::Status operator()(StoreWord store) const {
    const absl::StatusOr<size_t> word = ReadWord(info, value);
    if (word.ok()) store(spec, *word);
    return word.status();
  }
};

absl::Status CheckNamesPrompt(const RequestSpec& spec, const ServingConfig& serving) {
  if (spec.prompt_name.empty() || serving.FindPrompt(spec.prompt_name) != nullptr) {
    return absl::OkStatus();
  }
  std::string names;
  for (const NamedPrompt& prompt : serving.prompts) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", prompt.name);
  }
  return ParameterError("prompt_name",
                        absl::StrCat("the model has no prompt ", Printable(spec.prompt_name),
                                     names.empty() ? "; it has none" : "; it has ", names));
}

// The layers after the pooling require the configured pooling.
absl::Status CheckPooling(const ServingConfig& serving) {
  if (serving.dense.empty() && serving.pooling.all.size() == 1) return absl::OkStatus();
  return ParameterError("pooling",
                        "cannot be set: the model's files fix the pooling, because dense layers or "
                        "a concatenation follow it. Leave the parameter out");
}

absl::Status CheckTogether(const RequestSpec& spec, const ModelConfig& config) {
  const int64_t max_tokens = spec.max_tokens;
  if (spec.stop.min_tokens > max_tokens) {
    return ParameterError("min_tokens", absl::StrCat("is ", spec.stop.min_tokens,
                                                     "; the maximum is max_tokens, ", max_tokens));
  }
  return CheckChoice(spec, config);
}

}  // namespace

absl::Status CheckChoice(const RequestSpec& spec, const ModelConfig& config) {
  const std::vector<int32_t> forbidden = ForbiddenTokens(spec, config);
  const std::vector<int32_t>& allowed = spec.edits.allowed;
  const auto free = [&](int32_t token) {
    return !std::binary_search(forbidden.begin(), forbidden.end(), token);
  };
  const bool any = allowed.empty() ? std::ssize(forbidden) < config.vocab_size
                                   : std::any_of(allowed.begin(), allowed.end(), free);
  if (any) return absl::OkStatus();
  return ParameterError(allowed.empty() ? "logit_bias" : "allowed_token_ids",
                        "leaves no token to draw. Allow more tokens: logit_bias bans tokens, and "
                        "min_tokens bans tokens that would end a row");
}

std::vector<int32_t> ForbiddenTokens(const RequestSpec& spec, const ModelConfig& config) {
  std::vector<int32_t> tokens;
  for (const kernels::TokenBias& bias : spec.edits.bias) {
    if (std::isinf(bias.bias)) tokens.push_back(bias.token);
  }
  const StopRules& stop = spec.stop;
  if (stop.min_tokens > 0) {
    tokens.insert(tokens.end(), stop.ids.begin(), stop.ids.end());
    if (!stop.ignore_eos) {
      tokens.insert(tokens.end(), config.eos_token_ids.begin(), config.eos_token_ids.end());
    }
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

absl::Status ReadParameters(const ParameterMap& map, const ModelConfig& config, RequestSpec* spec) {
  const ServingConfig& serving = config.serving;
  spec->truncate = serving.truncate.value_or(Truncation::kError);
  spec->states.pooling = serving.pooling;
  spec->states.normalize = serving.normalize;
  spec->states.scores = (spec->head != nullptr ? *spec->head : serving.classifier).scale;
  spec->prompt_name = serving.default_prompt;
  // The prompt of an adapter for a task has the task's name.
  if (!spec->adapter.empty() && serving.FindPrompt(spec->adapter) != nullptr) {
    spec->prompt_name = spec->adapter;
  }
  spec->states.task = serving.default_task;
  for (const auto& [name, value] : map) {
    const ParameterInfo* const info = FindParameter(name);
    if (info == nullptr) return Unknown(name);
    SLUICE_RETURN_IF_ERROR(std::visit(Reading{*info, value, config, *spec}, info->field));
  }
  if (map.contains("task") && !map.contains("prompt_name")) {
    const NamedPrompt* const prompt = serving.PromptOf(spec->states.task);
    if (prompt != nullptr) spec->prompt_name = prompt->name;
  }
  if (map.contains("instruction")) spec->prompt_name.clear();
  if (map.contains("pooling")) SLUICE_RETURN_IF_ERROR(CheckPooling(serving));
  SLUICE_RETURN_IF_ERROR(CheckNamesPrompt(*spec, serving));
  return CheckTogether(*spec, config);
}

}  // namespace sluice
