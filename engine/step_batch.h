// The tokens that one run of the model computes, as explicit arrays. No kernel assumes more about a
// step than these arrays say.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/bucket.h"
#include "kernels/row_group.h"
#include "kernels/sampling.h"

namespace sluice {

// What a step computes of one sequence: `count` tokens from `first_position` on. Positions before
// are in the KV pages already.
struct StepSequence {
  int32_t first_position;
  int32_t count;
  const int32_t* tokens;  // [count]
  const int32_t* pages;   // page ids up to position first_position + count - 1
  // From a token's index in its sequence, which is what pages and attention go by, to the position that
  // chooses weights and embeddings: not 0 where sequences are aligned at their end.
  int32_t position_offset = 0;
  // The first `input_count` rows of the step are vectors: [input_count, input_width], and their tokens
  // are not looked at.
  int32_t input_count = 0;
  const float* inputs = nullptr;
};

// A row whose logits are wanted. Results go to storage that the caller owns and that outlives the
// replay.
struct SampledRow {
  int32_t sequence = 0;  // index into the step's sequences
  int32_t position = 0;  // absolute; must be computed by this step
  int32_t target = -1;   // >= 0: score this token; -1: draw one as `params` say
  kernels::SampleParams params = {};
  const kernels::LogitEdits* edits = nullptr;  // outlives the replay; nullptr: none
  // Tokens that do not exist for this row, which draws: their logits are -inf. Ascending, distinct.
  std::span<const int32_t> excluded = {};
  int32_t num_top = 0;            // candidates to report
  int32_t* top_ids = nullptr;     // [num_top]
  float* top_logprobs = nullptr;  // [num_top]
  float* top_scores = nullptr;    // [num_top], their logits; or nullptr: not wanted
  float* logits = nullptr;        // [vocab], or nullptr: not wanted
  // The target or the token drawn, and its log-probability. Must be set.
  kernels::SampleResult* result = nullptr;
};

// A row whose state behind the last norm is wanted: no logits are computed for it.
struct StateRow {
  int32_t sequence;  // index into the step's sequences
  int32_t position;  // absolute; must be computed by this step
  float* out;        // [hidden_size], outlives the replay
};

// Most pages that a step of whole sequences within `bucket` takes: each may leave one partly filled.
int32_t MostPages(const Bucket& bucket, int32_t page_tokens);

enum class RowOrder {
  kPositionMajor,  // by position, then sequence: rows of one position are contiguous
  kSequenceMajor,
};

// Storage is reserved for the capacity given at construction; Assign allocates nothing within it.
class StepBatch {
 public:
  // Places of one sequence's rows within the step.
  struct Sequence {
    int32_t first_position;
    int32_t count;
    int32_t rows_offset;   // into sequence_rows()
    int32_t pages_offset;  // into pages()
  };

  // Room for steps of up to `max_tokens` rows of `max_sequences` sequences, each of which refers to
  // the pages of up to `max_positions` positions. `input_width`: of rows that are vectors; 0: none are.
  StepBatch(int32_t max_tokens, int32_t max_sequences, int32_t max_positions, int32_t page_tokens,
            int32_t input_width = 0);

  // Lays the rows out and clears the diagnostics' destinations. Exceeding a capacity is a broken
  // invariant (CHECK). At most max_tokens + max_sequences rows may be sampled, and as many states
  // wanted; a row may be sampled more than once. Pointers in `sequences` are read during the call only;
  // `sampled` and `states` are copied.
  void Assign(std::span<const StepSequence> sequences, std::span<const SampledRow> sampled,
              RowOrder order, std::span<const StateRow> states = {});

  int32_t tokens() const { return static_cast<int32_t>(token_ids_.size()); }
  // Padding counts like any other token here.
  BatchSize size() const { return {tokens(), static_cast<int32_t>(sequences_.size()), longest_}; }
  int32_t max_context() const { return max_context_; }

  // Per row. The token of a row that is a vector is -1; the vector of one that is a token is zero.
  std::span<const int32_t> token_ids() const { return token_ids_; }
  std::span<const float> inputs() const { return inputs_; }  // [tokens(), input_width]
  // With their sequences' offset; padding stays at the last one that there is.
  std::span<const int32_t> positions() const { return positions_; }
  std::span<const int32_t> kv_slots() const { return kv_slots_; }  // page * page_tokens + offset
  // Rows of equal position; one group per position in position-major order, per run otherwise.
  std::span<const kernels::RowGroup> groups() const { return groups_; }
  // Per sequence, in the order given to Assign.
  std::span<const Sequence> sequences() const { return sequences_; }
  std::span<const int32_t> sequence_rows() const { return sequence_rows_; }
  std::span<const int32_t> pages() const { return pages_; }
  // Rows to sample or score, with their row index.
  std::span<const SampledRow> sampled() const { return sampled_; }
  std::span<const int32_t> sampled_rows() const { return sampled_rows_; }
  // Rows whose state is wanted, likewise.
  std::span<const StateRow> states() const { return states_; }
  std::span<const int32_t> state_rows() const { return state_rows_; }

  // Where the attention diagnostics of this step go: [layers, tokens(), heads] by row, zero in
  // layers without XSA; or nullptr.
  float* xsa_cos_sim = nullptr;
  float* xsa_proj_frac = nullptr;

 private:
  void Place(const StepSequence& sequence);
  int32_t PositionOf(size_t sequence, int32_t i) const;
  int32_t RowOf(int32_t sequence, int32_t position) const;
  void NumberByPosition();
  void NumberBySequence();
  void FillRows(std::span<const StepSequence> sequences);
  void FillGroups();
  void FillInputs(std::span<const StepSequence> sequences);
  void FindRows();

  int32_t page_tokens_;
  int32_t max_tokens_;
  int32_t max_sequences_;
  int32_t max_positions_;
  int32_t input_width_;
  int32_t tokens_ = 0;
  int32_t max_context_ = 0;
  int32_t end_position_ = 0;  // behind the largest position
  int32_t longest_ = 0;
  std::vector<int32_t> token_ids_, positions_, kv_slots_, sequence_rows_, pages_, sampled_rows_;
  std::vector<int32_t> state_rows_, offsets_;  // offsets_: per sequence
  std::vector<float> inputs_;
  std::vector<kernels::RowGroup> groups_;
  std::vector<Sequence> sequences_;
  std::vector<SampledRow> sampled_;
  std::vector<StateRow> states_;
  std::vector<int32_t> next_row_;  // [max_positions] scratch of the counting sort
};

}  // namespace sluice
