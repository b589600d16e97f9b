// Runs the steps of rows: the backend's slot, its KV pages, and the buffers around it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/backend.h"
#include "engine/ladder/ladder.h"
#include "engine/options.h"
#include "engine/runner/requests/active_request.h"
#include "engine/step_batch.h"

namespace sluice {

// Turns rows into a step batch, runs it, and brings the results back to the rows and their replies.
// A row's step computes its positions [first_position, step_end()) in the KV pages that it holds.
// Rows without pages compute all their positions, in pages that are given for this step only. In a
// padded bucket each row is filled up to the bucket's positions, and sequences without a row fill
// the rectangle, so that the device computes what a padded layout costs. Causal attention never
// looks at padding; in both directions it is a sequence of its own beside the row's. Storage is
// allocated at construction, except for diagnostics and states, which are allocated when first
// wanted. One thread uses it and the slots that Beside returns.
class ExecutionSlot {
 public:
  struct Options {
    PaddingKind padding = PaddingKind::kZeros;
    int32_t page_tokens = 0;
    int32_t pages = 0;  // at least MaxPages of CapacityOf(ladder)
  };
  // Returns the largest numbers of tokens and of sequences of any bucket.
  static Bucket CapacityOf(const Ladder& ladder);
  // Creates a slot for every bucket of `ladder`. Both pointers outlive the slot. Returns the
  // backend's errors.
  static absl::StatusOr<std::unique_ptr<ExecutionSlot>> Create(const ExecutableModel* executable,
                                                               const Model* model,
                                                               const Ladder& ladder,
                                                               const Options& options);
  // Returns a slot that shares the backend's slot and pages with this one and has buffers of its
  // own, for a step that is laid out and started while this one's runs.
  std::unique_ptr<ExecutionSlot> Beside() const;

  // Lays the steps of the rows out for `bucket`, with everything that their requests want. Requires
  // that the rows fit it, and stay valid until they are collected.
  void Assign(std::span<RequestRow* const> rows, const Bucket& bucket);

  // Makes the step that was laid out fail on a GPU, for tests.
  void CorruptStep() { batch_.Corrupt(); }

  // See ExecutableModel.
  void Start(const Plan& plan) { executable_->Start(plan, *slot_, batch_); }
  absl::Status Finish() { return executable_->Finish(*slot_); }
  absl::Status Replay(const Plan& plan) { return executable_->Replay(plan, *slot_, batch_); }

  struct Result {
    bool finite = true;                            // false if no result of the row may be used
    bool at_end = true;                            // false if more of its prompt is to be computed
    const kernels::SampleResult* drawn = nullptr;  // nullptr if no token was wanted
  };
  // Returns the result of row `i`, after a Finish without error. Writes prompt log-probabilities,
  // diagnostics and pooled states to the reply of its request; logits and candidates are there
  // already.
  Result Collect(size_t i);

  // Returns the number of tokens of row `i`, and of all rows.
  int32_t tokens_of(size_t i) const { return row_steps_[i].tokens; }
  int32_t useful_tokens() const { return useful_tokens_; }
  int32_t computed_tokens() const { return batch_.tokens(); }
  SlotMemory memory() const { return slot_->memory(); }
  // See Slot.
  bool Trim() { return slot_->Trim(); }

 private:
  ExecutionSlot(const ExecutableModel* executable, const Model* model, const Bucket& capacity,
                const Options& options, std::shared_ptr<Slot> slot);

  // Returns the tokens of a row's history, extended to `positions`; of a sequence without a row if
  // `row` is nullptr.
  const int32_t* Padded(const RequestRow* row, int32_t positions);
  // Adds the padding that no row has: behind rows whose attention is in both directions, and of
  // the places that are left.
  void FillRectangle(const Bucket& bucket);
  // Adds a sequence with pages that are given for this step only.
  void Place(const int32_t* tokens, int32_t count);
  void AddRow(const RequestRow& row, const Bucket& bucket);
  // Completes the latest sequence, which is the row's, beyond its tokens and pages.
  void Describe(const RequestRow& row);
  void AppendSampledRows(RequestRow* row, int32_t sequence);
  void AppendPeaks(RequestRow* row, int32_t sequence);
  void AppendDraw(RequestRow* row, int32_t sequence);
  void AppendSampledRow(const SampledRow& sampled);
  void AppendStates(const RequestRow& row, int32_t sequence);
  void CollectPeaks(size_t i);
  bool CollectStates(size_t i);
  void AttachDiagnostics();
  void ScatterDiagnostics(size_t i, const float* source, std::vector<float>* reply) const;

  const ExecutableModel* const executable_;
  const Model* const model_;
  const Bucket capacity_;
  const Options options_;
  const std::shared_ptr<Slot> slot_;
  StepBatch batch_;

  // A row's part in the step, since the row itself may have moved on to the next step.
  struct RowStep {
    int32_t first_position, tokens;
    bool at_end;  // whether it computes the row's last position
  };

  std::span<RequestRow* const> rows_;  // those of the latest Assign
  std::vector<RowStep> row_steps_;     // of these
  bool diagnostics_wanted_ = false;
  int32_t useful_tokens_ = 0;
  std::vector<int32_t> padded_;      // tokens of padded sequences, one after another
  std::vector<int32_t> step_pages_;  // 0, 1, ..; a sequence without pages gets the next of these
  int64_t pages_given_ = 0;
  std::vector<StepSequence> sequences_;
  std::vector<SampledRow> sampled_;
  std::vector<size_t> sampled_begin_;  // [rows + 1], into sampled_ and results_
  std::vector<kernels::SampleResult> results_;
  std::vector<StateSum> states_;
  std::vector<RowStates::Positions> wanted_states_;  // scratch
  std::vector<size_t> states_begin_;                 // [rows + 1], into states_
  std::vector<double> state_values_;                 // [states, hidden]
  std::vector<float> xsa_cos_sim_;                   // [layers, tokens, heads] by row of the step
  std::vector<float> xsa_proj_frac_;                 // likewise
};

}  // namespace sluice
