// Makes the vectors of labels for a model whose rows have no labels (Model::labels).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/backend.h"
#include "engine/runner/steps/execution_slot.h"

namespace sluice {

// Keeps the vectors of the labels that were used last, so labels that many texts share are computed
// once. A vector has the same bits with any other labels. Used only by the scheduling thread,
// except memory() and weight_bytes().
class LabelEncoder {
 public:
  // Returns about the bytes of its steps and of the vectors that it keeps.
  static int64_t Bytes(const Model& model, const ExecutableModel& executable, int32_t page_tokens);
  // Runs a step to measure it. Returns the backend's errors.
  static absl::StatusOr<std::unique_ptr<LabelEncoder>> Create(
      std::shared_ptr<const Model> model, std::shared_ptr<const ExecutableModel> executable,
      int32_t page_tokens, Clock* clock);

  // Appends the vectors of the labels if it has all of them, [labels, width]; otherwise returns
  // false.
  bool Find(const std::vector<std::string>& labels, std::vector<float>* vectors);
  // Computes labels that it does not have, in one step. Repeated calls compute all of them. Returns
  // the device's error. Requires at most kMaxExtractionLabels labels, each of at most
  // kMostLabelTokens tokens.
  absl::Status ComputeSome(const std::vector<std::string>& labels);

  // The number of computed labels.
  int64_t computed() const { return computed_; }
  // The seconds of the longest step so far.
  double step_seconds() const { return step_seconds_; }
  SlotMemory memory() const;
  int64_t weight_bytes() const { return executable_->weight_bytes(); }

 private:
  struct Kept {
    std::vector<float> vector;
    int64_t used = 0;  // the number of its latest use
  };

  LabelEncoder(std::shared_ptr<const Model> model,
               std::shared_ptr<const ExecutableModel> executable, Clock* clock,
               std::unique_ptr<Plan> plan, std::unique_ptr<ExecutionSlot> slot);

  // Returns the tokens of a label, with its template.
  absl::StatusOr<TypedTokens> TokensOf(const std::string& label) const;
  // Computes the vectors of labels, one after another.
  absl::StatusOr<std::vector<float>> Compute(const std::vector<TypedTokens>& labels);
  void Keep(const std::string& label, std::vector<float> vector);

  const std::shared_ptr<const Model> model_;
  const std::shared_ptr<const ExecutableModel> executable_;
  Clock* const clock_;
  const std::unique_ptr<ExecutionSlot> slot_;
  const std::unique_ptr<Plan> plan_;
  std::map<std::string, Kept, std::less<>> kept_;
  int64_t uses_ = 0, computed_ = 0;
  double step_seconds_ = 0;
};

}  // namespace sluice
