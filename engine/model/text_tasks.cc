#include "engine/model/text_tasks.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model/checkpoint.h"
#include "engine/model/settings_file.h"
#include "engine/model/tokenizer_files.h"
#include "kernels/dtype.h"

namespace sluice {
namespace {

using SpecialNames = std::map<std::string, std::string>;

absl::StatusOr<int32_t> FindToken(const Tokenizer& tokenizer, const std::string& token,
                                  absl::string_view use) {
  const int32_t id = tokenizer.IdOf(token);
  if (id >= 0) return id;
  return absl::InvalidArgumentError(
      absl::StrCat("the tokenizer has no token \"", absl::CEscape(token), "\", which ", use));
}

// Returns the template of a text with a token after its first one.
absl::StatusOr<TextTemplate> WithMarker(const TextTemplate& single, int32_t marker) {
  TextTemplate marked = single;
  if (marked.parts.empty() || marked.parts.front().text != TextTemplate::kNoText) {
    return absl::InvalidArgumentError(
        "the tokenizer puts no token before a text, but the marker of a task follows that token");
  }
  marked.parts.insert(marked.parts.begin() + 1,
                      {.token = marker, .type = marked.parts.front().type});
  return marked;
}

std::vector<int32_t> KnownTokens(const Tokenizer& tokenizer,
                                 const std::vector<std::string>& tokens) {
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) {
    if (const int32_t id = tokenizer.IdOf(token); id >= 0) ids.push_back(id);
  }
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

absl::StatusOr<int32_t> FindFiller(const TaskConfig& task, const Tokenizer& tokenizer,
                                   const SpecialNames& specials) {
  constexpr absl::string_view kUse = "fills short queries";
  if (!task.filler.empty()) return FindToken(tokenizer, task.filler, kUse);
  for (const char* const key : {"mask_token", "eos_token"}) {
    const auto name = specials.find(key);
    if (name != specials.end()) return FindToken(tokenizer, name->second, kUse);
  }
  return FindToken(tokenizer, "[MASK]", kUse);
}

// With a window, a filler that no token attends to must still see a token of the text.
absl::Status CheckHidden(const TaskConfig& task, const ModelConfig& config) {
  if (config.causal) {
    return absl::InvalidArgumentError("filled queries need attention in both directions");
  }
  if (config.xsa.Any()) {
    return absl::InvalidArgumentError("filled queries cannot be combined with XSA");
  }
  if (config.windowed_layers() == 0 || task.filled <= config.window) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("queries are filled to ", task.filled, " tokens that attend only to the text; ",
                   "with the model's window the maximum is ", config.window));
}

absl::StatusOr<TaskRules> FindTask(const TaskConfig& task, const ModelConfig& config,
                                   const Tokenizer& tokenizer, const SpecialNames& specials) {
  TaskRules rules;
  rules.max_length = task.max_length;
  rules.filled = task.filled;
  if (!task.marker.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const int32_t marker,
                            FindToken(tokenizer, task.marker, "marks the texts of a task"));
    SLUICE_ASSIGN_OR_RETURN(rules.single, WithMarker(tokenizer.templates().single, marker));
  }
  if (task.filled > 0) {
    SLUICE_ASSIGN_OR_RETURN(rules.filler, FindFiller(task, tokenizer, specials));
    rules.hides_filler = task.hides_filler;
    if (task.hides_filler) SLUICE_RETURN_IF_ERROR(CheckHidden(task, config));
    if (task.filled > config.max_positions) {
      return absl::InvalidArgumentError(absl::StrCat("queries are filled to ", task.filled,
                                                     " tokens; the model's max_positions is ",
                                                     config.max_positions));
    }
  }
  rules.without_vector = KnownTokens(tokenizer, task.without_vector);
  return rules;
}

absl::Status LoadTermTable(const ModelConfig& config, const Directory& folder, TaskRules* rules) {
  SLUICE_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder));
  const auto weight = checkpoint.tensors().find("weight");
  const bool vector = weight != checkpoint.tensors().end() && weight->second.shape.size() == 1;
  if (!vector || weight->second.shape[0] > config.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.safetensors has no vector \"weight\" of at most ", config.vocab_size, " values"));
  }
  SLUICE_ASSIGN_OR_RETURN(const Tensor tensor, checkpoint.Find("weight", weight->second.shape));
  rules->term_weights.resize(tensor.elements());
  kernels::ConvertToFloat(tensor.data, tensor.dtype, 0, tensor.elements(),
                          rules->term_weights.data());
  const auto finite = [](float x) { return std::isfinite(x); };
  if (!std::ranges::all_of(rules->term_weights, finite)) {
    return absl::InvalidArgumentError("model.safetensors has a weight that is not finite");
  }
  SLUICE_ASSIGN_OR_RETURN(rules->tokenizer,
                          LoadTokenizer(folder, config.vocab_size, config.serving.lower_case));
  rules->single = TextTemplate::TextOnly();
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadTermTables(const ModelConfig& config, const Directory& directory,
                            TextTasks* tasks) {
  for (size_t i = 0; i < tasks->rules.size(); ++i) {
    const std::string& name = config.serving.tasks[i].term_table;
    if (name.empty()) continue;
    SLUICE_ASSIGN_OR_RETURN(const Directory folder, directory.OpenFolder(name));
    const absl::Status status = LoadTermTable(config, folder, &tasks->rules[i]);
    if (!status.ok()) return OfFile(name, status);
  }
  return absl::OkStatus();
}

absl::StatusOr<TextTasks> FindTasks(const ModelConfig& config, const Tokenizer& tokenizer,
                                    const SpecialNames& specials) {
  TextTasks tasks;
  for (size_t i = 0; i < tasks.rules.size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(tasks.rules[i],
                            FindTask(config.serving.tasks[i], config, tokenizer, specials));
  }
  const auto& extraction = config.serving.extraction;
  if (extraction && extraction->labels_in_row()) {
    SLUICE_ASSIGN_OR_RETURN(tasks.label_marker, FindToken(tokenizer, extraction->label_marker,
                                                          "sluice.extraction.label_marker names"));
    SLUICE_ASSIGN_OR_RETURN(tasks.separator, FindToken(tokenizer, extraction->separator,
                                                       "sluice.extraction.separator names"));
    if (!extraction->gate.empty()) {
      SLUICE_RETURN_IF_ERROR(
          FindToken(tokenizer, extraction->gate, "sluice.extraction.gate names").status());
    }
  }
  std::vector<std::string> special;
  for (const char* const key : {"cls_token", "eos_token", "pad_token", "unk_token"}) {
    const auto name = specials.find(key);
    if (name != specials.end()) special.push_back(name->second);
  }
  tasks.without_weight = KnownTokens(tokenizer, special);
  return tasks;
}

}  // namespace sluice
