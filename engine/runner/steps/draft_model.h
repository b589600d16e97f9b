// A smaller model that drafts tokens for the rows of the model that it belongs to.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/backend.h"
#include "engine/runner/requests/active_request.h"
#include "engine/step_batch.h"

namespace sluice {

// Keeps the KV pages of a few rows. A row that drafts takes the place of the row that has not
// drafted for the longest time. Each draft is drawn as the model draws its token, with the same
// seed, penalties and allowed tokens, so it is often the same token. Used only by the scheduling
// thread, except memory() and weight_bytes(). Storage is allocated at construction.
class DraftModel {
 public:
  struct Options {
    int32_t page_tokens = 0;
    int32_t rows = 0;       // the number of rows whose pages are kept
    int32_t positions = 0;  // the most positions of a row, at least 1
  };
  // Runs a few steps to measure them. Returns the backend's errors.
  static absl::StatusOr<std::unique_ptr<DraftModel>> Create(
      std::shared_ptr<const Model> model, std::shared_ptr<const ExecutableModel> executable,
      const Options& options, Clock* clock);

  // Lowers `drafts` of the row to the number that the model has positions for, and sets the costs
  // of drafting for the row's next step.
  void Prepare(RequestRow* row) const;
  // Drafts the next `count` tokens of the row. Computes the tokens of its history first that it has
  // not computed yet. Calls `stop` before and after each step, and returns 0 if it returns true.
  // Returns the number of drafted tokens, which is lower if a drafted token ends the row, and 0 if
  // a step fails. Requires that `count` is at most the row's drafts after Prepare.
  int32_t Draft(RequestRow* row, int32_t count, absl::FunctionRef<bool()> stop);
  // Returns the estimated seconds of Draft.
  double Estimate(const RequestRow& row, int32_t count) const;

  SlotMemory memory() const { return slot_->memory(); }
  int64_t weight_bytes() const { return executable_->weight_bytes(); }

 private:
  // The place of a row: its pages, and the tokens that were computed there.
  struct Place {
    uint64_t ticket = 0;  // of the row; 0 if it has none
    int64_t used = 0;     // the number of the latest draft
    std::vector<int32_t> pages;
    std::vector<int32_t> tokens;
  };

  DraftModel(std::shared_ptr<const Model> model, std::shared_ptr<const ExecutableModel> executable,
             const Options& options, Clock* clock, std::unique_ptr<Plan> plan,
             std::unique_ptr<Slot> slot);

  // Returns the row's place, or nullptr if it has none.
  const Place* Find(const RequestRow& row) const;
  Place& Take(const RequestRow& row);
  // Computes the tokens after those of the place, at most a chunk of them. If `draw` is not
  // nullptr, also draws the next token.
  absl::Status Compute(Place* place, std::span<const int32_t> tokens, const SampledRow* draw);
  absl::Status Measure();

  const std::shared_ptr<const Model> model_;
  const std::shared_ptr<const ExecutableModel> executable_;
  const Options options_;
  Clock* const clock_;
  const std::unique_ptr<Plan> plan_;
  const std::unique_ptr<Slot> slot_;
  StepBatch batch_;
  std::vector<Place> places_;
  int64_t used_ = 0;
  // The mean seconds of a step of one token, and of each token of a longer step.
  double step_seconds_ = 0, token_seconds_ = 0;
};

}  // namespace sluice
