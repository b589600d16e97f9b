// A model's answers other than logits: embeddings and scores, computed from the states after the
// last norm.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "engine/rows/row_states.h"

namespace sluice::verify {

// Returns the names of golden outputs. Each of them is enough to verify the model's answer. The
// first name is the answer itself.
std::vector<std::string> NamesOfAnswer(const Model& model);

// Computes the answers of one sequence after another, as the daemon does.
class AnswerStates {
 public:
  explicit AnswerStates(std::shared_ptr<const Model> model);

  void Begin(int32_t length);
  // Takes the state of the next position.
  void Add(std::span<const float> state);

  // The outputs of one sequence, NaN if a state is not finite.
  struct Outputs {
    std::vector<float> embedding;
    std::vector<float> token_embeddings;  // [length, width], of a multi-vector model
    std::vector<float> scores;            // [labels], if the model has a classifier of rows
    std::vector<float> token_scores;      // [length, labels], if it has one of tokens
    std::vector<float> pooler;  // before its activation, if the classifier of rows has one
  };
  // Returns them after the last position.
  Outputs Finish();

 private:
  Request request_;
  int32_t length_ = 0, added_ = 0;
  bool finite_ = true;
  std::optional<RowStates> row_;
  std::optional<StatePool> pooled_;  // for the classifier of rows
};

}  // namespace sluice::verify
