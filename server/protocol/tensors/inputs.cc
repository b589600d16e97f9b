#include "server/protocol/tensors/inputs.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

constexpr InputInfo kTable[] = {
    {Input::kInputIds, "input_ids", "INT32", "INT32, INT64", "[n, length]", true},
    {Input::kInputsEmbeds, "inputs_embeds", "FP32", "FP32, BF16", "[n, length, width]", true},
    {Input::kInputLengths, "input_lengths", "INT32", "INT32", "[n, 1]", true},
    {Input::kTokenTypeIds, "token_type_ids", "INT32", "INT32, INT64", "[n, length]", true},
    {Input::kTextInput, "text_input", "BYTES", "BYTES", "[n, 1]", true},
    {Input::kTextPairInput, "text_pair_input", "BYTES", "BYTES", "[n, 1]", true},
    {Input::kCandidateIds, "candidate_ids", "INT32", "INT32, INT64", "[n, c]", false},
    {Input::kExcludeIds, "exclude_ids", "INT32", "INT32, INT64", "[n, x]", false},
};

// Does not compile if the table misses an input or has another order than Input.
consteval auto NamesOfInputs() {
  EnumName<Input> names[std::size(kTable)]{};
  for (size_t i = 0; i < std::size(kTable); ++i) names[i] = {kTable[i].input, kTable[i].name};
  return EnumNameTable<Input>(names);
}
constexpr auto kNames = NamesOfInputs();

absl::string_view Name(Input input) {
  const std::string_view name = kNames[static_cast<size_t>(input)].name;
  return {name.data(), name.size()};
}

// Checks that the message has exactly one of the prompt inputs that the model takes.
absl::Status CheckPrompt(const InputTensors& inputs, const Model& model) {
  std::vector<absl::string_view> possible, given;
  for (const Input input : {Input::kInputIds, Input::kTextInput, Input::kInputsEmbeds}) {
    if (Takes(model, kTable[static_cast<int>(input)])) possible.push_back(Name(input));
    if (inputs.has(input)) given.push_back(Name(input));
  }
  if (given.empty()) {
    std::string problem = "is missing";
    for (size_t i = 1; i < possible.size(); ++i) {
      absl::StrAppend(&problem, ", and so is ", possible[i]);
    }
    if (possible.size() > 1) absl::StrAppend(&problem, "; send one of them");
    return InputError(possible.front(), problem);
  }
  if (given.size() == 1) return absl::OkStatus();
  return InputError(given[1],
                    absl::StrCat("cannot be combined with ", given[0], "; give only one of them"));
}

// Checks that each input that describes another input has that input.
absl::Status CheckCompanions(const InputTensors& inputs) {
  for (const Input input : {Input::kInputLengths, Input::kTokenTypeIds}) {
    if (!inputs.has(input) || !inputs.has(Input::kTextInput)) continue;
    return InputError(Name(input), "cannot be combined with text_input; give only one of them");
  }
  if (inputs.has(Input::kTextPairInput) && !inputs.has(Input::kTextInput)) {
    return InputError("text_pair_input", "needs text_input, which is absent");
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const InputInfo> Inputs() { return kTable; }

bool Takes(const Model& model, const InputInfo& info) {
  const bool ids = model.config.embeds_ids();
  switch (info.input) {
    case Input::kInputIds:
      return ids;
    case Input::kTextInput:
    case Input::kTextPairInput:
      return ids && model.tokenizer != nullptr;
    case Input::kTokenTypeIds:
      return model.config.token_types > 0;
    case Input::kInputsEmbeds:
      return model.config.input_width > 0;
    case Input::kInputLengths:
      return true;
    case Input::kCandidateIds:
      return model.config.has_lm_head;
    case Input::kExcludeIds:
      return model.generates();
  }
  return false;
}

absl::StatusOr<InputTensors> ReadInputs(const inference::ModelInferRequest& message,
                                        const Model& model) {
  std::vector<absl::string_view> names;
  std::vector<Input> taken;
  for (const InputInfo& info : kTable) {
    if (!Takes(model, info)) continue;
    names.push_back(Name(info.input));
    taken.push_back(info.input);
  }
  SLUICE_ASSIGN_OR_RETURN(std::vector<InputTensor> found, FindInputs(message, names));
  InputTensors inputs;
  for (size_t i = 0; i < taken.size(); ++i) {
    inputs.tensors[static_cast<int>(taken[i])] = found[i];
  }
  SLUICE_RETURN_IF_ERROR(CheckPrompt(inputs, model));
  SLUICE_RETURN_IF_ERROR(CheckCompanions(inputs));
  return inputs;
}

}  // namespace sluice
