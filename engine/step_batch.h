// The tokens that one run of the model computes, as explicit arrays. Kernels assume nothing else
// about a step.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/bucket.h"
#include "kernels/page_copy.h"
#include "kernels/row_group.h"
#include "kernels/sampling.h"

namespace sluice {

class LoadedAdapter;

// The part of a step that belongs to one sequence: `count` tokens from `first_position` on. Earlier
// positions are already in the KV pages.
struct StepSequence {
  int32_t first_position;
  int32_t count;
  const int32_t* tokens;  // [count]
  const int32_t* pages;   // ids of the pages up to position first_position + count - 1
  // The position of a token minus its index in the sequence. The position selects weights and
  // embeddings. The index determines the token's page and the tokens that it attends to. The offset
  // is not 0 if sequences are aligned at their end.
  int32_t position_offset = 0;
  // The first `input_count` rows are vectors, [input_count, input_width]; their tokens are ignored.
  int32_t input_count = 0;
  const float* inputs = nullptr;
  // The types of the first `type_count` tokens; the others are of type 0.
  int32_t type_count = 0;
  const int32_t* types = nullptr;
  // If not negative, the last token is not known yet and is not read from `tokens`: the sampled row
  // with this index in the previous step of the same slot draws it. Requires a backend that runs
  // steps ahead.
  int32_t drawn_by = -1;
  // The last `hidden` tokens are attended to by no token. Requires a whole sequence with attention
  // in both directions.
  int32_t hidden = 0;
  const LoadedAdapter* adapter = nullptr;  // nullptr: the base model
  // If not negative, positions [0, first_position % page_tokens) of this page are copied to the
  // page of first_position before the step.
  int32_t copied_page = -1;
};

// A row whose logits are computed. Results are written to the caller's storage, which must outlive
// the replay.
struct SampledRow {
  int32_t sequence = 0;  // index into the step's sequences
  int32_t position = 0;  // absolute; must be computed by this step
  int32_t target = -1;   // the token to score if >= 0; -1: draw a token with `params`
  kernels::SampleParams params = {};
  const kernels::LogitEdits* edits = nullptr;  // outlives the replay; nullptr for none
  // Tokens that must not be drawn; their logits are -inf. Ascending, distinct.
  std::span<const int32_t> excluded = {};
  int32_t num_top = 0;            // number of candidates to report
  int32_t* top_ids = nullptr;     // [num_pool()]
  float* top_logprobs = nullptr;  // [num_pool()]
  float* top_scores = nullptr;    // [num_pool()], the logits; may be nullptr
  // If above 0, the candidates are chosen among the `pool` best tokens (kernels/diversity.h), and
  // `top_scores` is required.
  float diversity = 0;
  int32_t pool = 0;
  double* diverse_scratch = nullptr;  // [kernels::DiverseScratch(pool, num_top)]
  float* logits = nullptr;            // [vocab]; may be nullptr
  // [vocab]; each value is replaced by the logit if the logit is larger. May be nullptr. Requires a
  // target. The rows of a sequence share it.
  float* peaks = nullptr;
  // The target or the drawn token, and its log-probability. Required.
  kernels::SampleResult* result = nullptr;

  // Returns the number of best tokens to find.
  int32_t num_pool() const { return diversity > 0 ? pool : num_top; }
};

// Sets each peak in [begin, end) to the maximum of the peak and its logit.
inline void RaiseTo(const float* logits, int64_t begin, int64_t end, float* peaks) {
  for (int64_t i = begin; i < end; ++i) peaks[i] = logits[i] > peaks[i] ? logits[i] : peaks[i];
}

// A requested sum of the states after the last norm at consecutive positions; for one position, its
// state. The states are added in double by ascending position, so a sum that is interrupted and
// continued has the same bits. Alternatively, it is the largest value of each feature, which is NaN
// if a state is not finite.
struct StateSum {
  int32_t sequence;   // index into the step's sequences
  int32_t position;   // the first one, absolute; all must be computed by this step
  double* out;        // [hidden_size], outlives the replay
  int32_t count = 1;  // of positions
  bool largest = false;
  bool of_trunk = false;  // see Graph::trunk
};

// Returns the maximum number of pages for a step of whole sequences within `bucket`; the last page
// of each sequence may be partly filled.
int32_t MaxPages(const Bucket& bucket, int32_t page_tokens);

enum class RowOrder {
  kPositionMajor,  // by position, then sequence: rows of one position are contiguous
  kSequenceMajor,
};

// The arrays of one step. The constructor reserves storage for the given capacity, so Assign does
// not allocate.
class StepBatch {
 public:
  // The places of one sequence's rows within the step.
  struct Sequence {
    int32_t first_position;
    int32_t count;
    int32_t rows_offset;   // into sequence_rows()
    int32_t pages_offset;  // into pages()
  };

  // Reserves storage for steps of up to `max_tokens` rows and `max_sequences` sequences. Each
  // sequence has pages for up to `max_positions` positions. `input_width` is the width of rows that
  // are vectors, or 0 if there are no such rows. `padding_token` is ModelConfig::padding_token; if
  // it is not negative, steps have whole sequences.
  StepBatch(int32_t max_tokens, int32_t max_sequences, int32_t max_positions, int32_t page_tokens,
            int32_t input_width = 0, int32_t padding_token = -1);

  // Lays the rows out and clears the destinations of the diagnostics. Requires that no capacity is
  // exceeded (CHECK): at most max_tokens + max_sequences sampled rows (a row may occur more than
  // once) and the same number of state sums. Pointers in `sequences` are only read during the call;
  // `sampled` and `states` are copied.
  void Assign(std::span<const StepSequence> sequences, std::span<const SampledRow> sampled,
              RowOrder order, std::span<const StateSum> states = {});

  // Gives the first row a token that no table has. For tests of a failed step.
  void Corrupt() { token_ids_[0] = std::numeric_limits<int32_t>::max(); }

  int32_t tokens() const { return std::ssize(token_ids_); }
  // Returns the size of the batch; padding counts like any other token here.
  BatchSize size() const { return {tokens(), static_cast<int32_t>(sequences_.size()), longest_}; }
  int32_t max_context() const { return max_context_; }

  // Returns the token id that represents the draw of sampled row `index` of the previous step. The
  // function is its own inverse.
  static constexpr int32_t DrawnBy(int32_t index) { return -2 - index; }

  // Per row. A row that is a vector has token -1; a row that is a token has a zero vector. If the
  // previous step draws a row's token, the row has the token DrawnBy.
  std::span<const int32_t> token_ids() const { return token_ids_; }
  // Empty if every token is of type 0.
  std::span<const int32_t> types() const { return types_; }
  std::span<const float> inputs() const { return inputs_; }  // [tokens(), input_width]
  // The positions, including the offset of their sequence. Positions of padding are at most the
  // model's last position. With a padding token, its rows have position 0, and other rows have one
  // more than the number of earlier rows of their sequence without padding tokens.
  std::span<const int32_t> positions() const { return positions_; }
  std::span<const int32_t> kv_slots() const { return kv_slots_; }  // page * page_tokens + offset
  // Groups of adjacent rows with equal position; in position-major order, one group per position.
  std::span<const kernels::RowGroup> groups() const { return groups_; }
  // The distinct adapters of the step, and groups of adjacent rows with the same adapter, whose
  // `matrix` is an index into adapters(). Rows of the base model are in no group. In
  // sequence-major order, each adapter has one group.
  std::span<const LoadedAdapter* const> adapters() const { return adapters_; }
  std::span<const kernels::RowGroup> adapter_groups() const { return adapter_groups_; }
  // Per sequence, in the order given to Assign.
  std::span<const Sequence> sequences() const { return sequences_; }
  // Per sequence, the number of its last rows that no row attends to.
  std::span<const int32_t> hidden() const { return hidden_; }
  std::span<const int32_t> sequence_rows() const { return sequence_rows_; }
  std::span<const int32_t> pages() const { return pages_; }
  // The copies that precede the step. No page is both copied from and copied to.
  std::span<const kernels::PageCopy> page_copies() const { return page_copies_; }
  // The rows to sample or score, and their row indices.
  std::span<const SampledRow> sampled() const { return sampled_; }
  std::span<const int32_t> sampled_rows() const { return sampled_rows_; }
  // The requested state sums, and the ranges of their rows in sequence_rows().
  struct Places {
    int32_t begin, count;
  };
  std::span<const StateSum> states() const { return states_; }
  std::span<const Places> state_places() const { return state_places_; }

  // The destinations of the attention diagnostics of this step: [layers, tokens(), heads] by row,
  // zero in layers without XSA; or nullptr.
  float* xsa_cos_sim = nullptr;
  float* xsa_proj_frac = nullptr;

 private:
  void Place(const StepSequence& sequence);
  int32_t PositionOf(size_t sequence, int32_t i) const;
  int32_t PlaceOf(int32_t sequence, int32_t position) const;
  void OrderByAdapter(std::span<const StepSequence> sequences);
  void NumberByPosition();
  void NumberBySequence();
  static int32_t TokenOf(const StepSequence& sequence, int32_t i);
  void FillRows(std::span<const StepSequence> sequences);
  void SkipPadding();
  void FillGroups();
  void FillAdapterGroups();
  void FillInputs(std::span<const StepSequence> sequences);
  void FillTypes(std::span<const StepSequence> sequences);
  void FindRows();

  int32_t page_tokens_;
  int32_t max_tokens_;
  int32_t max_sequences_;
  int32_t max_positions_;
  int32_t input_width_;
  int32_t padding_token_;
  int32_t tokens_ = 0;
  int32_t max_context_ = 0;
  int32_t end_position_ = 0;  // one past the largest position
  int32_t longest_ = 0;
  std::vector<int32_t> token_ids_, types_, positions_, kv_slots_, sequence_rows_, pages_,
      sampled_rows_;
  std::vector<int32_t> offsets_, hidden_;  // per sequence
  std::vector<kernels::PageCopy> page_copies_;
  std::vector<float> inputs_;
  std::vector<kernels::RowGroup> groups_, adapter_groups_;
  std::vector<const LoadedAdapter*> adapters_;
  // The sequences in the order of their rows, the index of each one's adapter or -1, and the same
  // for each row.
  std::vector<int32_t> order_, sequence_adapters_, row_adapters_;
  std::vector<Sequence> sequences_;
  std::vector<SampledRow> sampled_;
  std::vector<StateSum> states_;
  std::vector<Places> state_places_;
  std::vector<int32_t> next_row_;  // [max_positions] scratch of the counting sort
};

}  // namespace sluice
