// The rules of the tasks of a model's texts, with the ids of their tokens.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/config.h"
#include "engine/model/directory.h"
#include "engine/model/tokenizer/tokenizer.h"

namespace sluice {

// The rules of one task. See TaskConfig.
struct TaskRules {
  std::optional<TextTemplate> single;  // replaces the tokenizer's template of a text
  int64_t max_length = 0;              // 0: the model's
  int64_t filled = 0;
  int32_t filler = 0;
  bool hides_filler = false;
  std::vector<int32_t> without_vector;  // ascending
  // [vocab]: the weights of the ids of a text, which are its sparse embedding; empty if the task
  // has none.
  std::vector<float> term_weights;
  // Replaces the model's tokenizer; nullptr for the model's. Without special tokens around texts.
  std::shared_ptr<const Tokenizer> tokenizer;
};

// The rules of all tasks of a model.
struct TextTasks {
  std::array<TaskRules, CountEnumerators<TextTask>()> rules;
  // Special tokens, which have no weight in a sparse embedding of token weights. Ascending.
  std::vector<int32_t> without_weight;

  // Of the model's extraction, if it has one.
  int32_t label_marker = 0;
  int32_t separator = 0;

  const TaskRules& Of(TextTask task) const { return rules[static_cast<size_t>(task)]; }
};

// Reads the weights of terms of the tasks that have them, and their tokenizers, from their folders
// in `directory`. Errors name the folder.
absl::Status LoadTermTables(const ModelConfig& config, const Directory& directory,
                            TextTasks* tasks);

// Finds the tokens of the config's tasks. `specials` has the texts of special tokens by key, such
// as "mask_token". Errors name the token. Tokens that have no vector are ignored if the tokenizer
// lacks them.
absl::StatusOr<TextTasks> FindTasks(const ModelConfig& config, const Tokenizer& tokenizer,
                                    const std::map<std::string, std::string>& specials);

}  // namespace sluice
