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
#include "engine/rows/span_head.h"
#include "engine/runner/requests/active_request.h"
#include "engine/runner/steps/step_buffer.h"
#include "engine/step_batch.h"

namespace sluice {

// Turns rows into a step batch, runs it, and writes the results to the rows and their replies. A
// row's step computes its positions [first_position, step_end()) in the KV pages that it holds.
// Rows without pages compute all their positions, in pages that are used for this step only. In a
// padded bucket, each row is padded to the bucket's positions, and sequences without a row fill the
// rectangle, so that the device does the full work of a padded layout. Causal attention never looks
// at padding; otherwise padding is a separate sequence. Storage is allocated at construction,
// except for diagnostics and states, which are allocated at first use. Only one thread uses it and
// the slots that Beside returns.
class ExecutionSlot {
 public:
  struct Options {
    PaddingKind padding = PaddingKind::kZeros;
    int32_t page_tokens = 0;
    int32_t pages = 0;  // at least MaxPages of CapacityOf(ladder)
  };
  // Returns the maximum tokens and the maximum sequences over all buckets.
  static Bucket CapacityOf(const Ladder& ladder);
  // Creates a slot that can run every bucket of `ladder`. Both pointers must outlive the slot.
  // Returns the backend's errors.
  static absl::StatusOr<std::unique_ptr<ExecutionSlot>> Create(const ExecutableModel* executable,
                                                               const Model* model,
                                                               const Ladder& ladder,
                                                               const Options& options);
  // Returns a slot that shares the backend's slot and pages with this slot, and has its own
  // buffers. It is for a step that is laid out and started while this slot's step runs.
  std::unique_ptr<ExecutionSlot> Beside() const;

  // Lays out the steps of the rows for `bucket`, with all requested outputs. Requires that the rows
  // fit, and that they stay valid until they are collected.
  void Assign(std::span<RequestRow* const> rows, const Bucket& bucket);

  // For tests: makes the laid-out step fail on a GPU.
  void CorruptStep() { batch_.Corrupt(); }

  // See ExecutableModel.
  void Start(const Plan& plan) { executable_->Start(plan, *slot_, batch_); }
  absl::Status Finish() { return executable_->Finish(*slot_); }
  absl::Status Replay(const Plan& plan) { return executable_->Replay(plan, *slot_, batch_); }

  struct Result {
    bool finite = true;  // false if the row's results must not be used
    bool at_end = true;  // false if more of its prompt must be computed
    // The drawn token, and the token drawn after each drafted token. Empty if no token was drawn.
    // Only the first is known to be finite.
    std::span<const kernels::SampleResult> drawn = {};
  };
  // Returns the result of row `i`, after a successful Finish. Writes prompt log-probabilities,
  // diagnostics and pooled states to the reply of its request. Logits and candidates have already
  // been written.
  Result Collect(size_t i);

  // Return the number of tokens of row `i`, and of all rows.
  int32_t tokens_of(size_t i) const { return row_steps_[i].tokens; }
  int32_t useful_tokens() const { return useful_tokens_; }
  int32_t computed_tokens() const { return batch_.tokens(); }
  SlotMemory memory() const { return slot_->memory(); }
  // See Slot. Slots that share a backend's slot call it for one of them only.
  bool Trim() { return slot_->Trim(); }
  // Frees memory of the host for states and diagnostics that no step has used since the previous
  // call. Returns whether a later call may free more. Requires that no step is in progress.
  bool TrimBuffers();
  // Returns the bytes of that memory.
  int64_t buffer_bytes() const;

 private:
  ExecutionSlot(const ExecutableModel* executable, const Model* model, const Bucket& capacity,
                const Options& options, std::shared_ptr<Slot> slot,
                std::shared_ptr<const SpanHead> spans);

  // Returns the tokens of a row's history, extended to `positions`. If `row` is nullptr, returns
  // the tokens of a sequence without a row.
  const int32_t* Padded(const RequestRow* row, int32_t positions);
  // Adds the padding outside of rows: after rows whose attention is in both directions, and in the
  // unused rows of the rectangle.
  void FillRectangle(const Bucket& bucket);
  // Adds a sequence with pages that are used for this step only.
  void Place(const int32_t* tokens, int32_t count);
  void AddRow(const RequestRow& row, const Bucket& bucket);
  // Sets the fields of the latest sequence, which belongs to the row, except its tokens and pages.
  void Describe(const RequestRow& row);
  void AppendSampledRows(RequestRow* row, int32_t sequence);
  void AppendPeaks(RequestRow* row, int32_t sequence);
  void AppendDraws(RequestRow* row, int32_t sequence);
  SampledRow DrawAfter(RequestRow* row, int32_t sequence, int32_t drafted);
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
  const std::shared_ptr<const SpanHead> span_head_;  // nullptr if the model has none
  StepBatch batch_;

  // A row's part in the step. It is kept here because the row may have moved on to the next step.
  struct RowStep {
    int32_t first_position, tokens, drafted;
    bool at_end;  // whether it computes the row's last position
  };

  std::span<RequestRow* const> rows_;  // rows of the latest Assign
  std::vector<RowStep> row_steps_;     // of rows_
  bool diagnostics_wanted_ = false;
  int32_t useful_tokens_ = 0;
  std::vector<int32_t> padded_;      // tokens of padded sequences, one after another
  std::vector<int32_t> step_pages_;  // 0, 1, ..; for sequences without pages
  int64_t pages_given_ = 0;
  std::vector<StepSequence> sequences_;
  std::vector<SampledRow> sampled_;
  std::vector<size_t> sampled_begin_;  // [rows + 1], into sampled_ and results_
  std::vector<kernels::SampleResult> results_;
  std::vector<StateSum> states_;
  std::vector<RowStates::Positions> wanted_states_;  // scratch
  std::vector<size_t> states_begin_;                 // [rows + 1], into states_
  StepBuffer<double> state_values_;                  // [states, hidden]
  StepBuffer<float> xsa_cos_sim_;                    // [layers, tokens, heads] by row of the step
  StepBuffer<float> xsa_proj_frac_;                  // like xsa_cos_sim_
};

}  // namespace sluice
