#include "engine/step_batch.h"

#include <algorithm>

#include "kernels/check.h"

namespace sluice {
namespace {

int32_t CeilDiv(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace

int32_t MostPages(const Bucket& bucket, int32_t page_tokens) {
  const int32_t sequences = std::min(bucket.sequences, bucket.tokens);
  return sequences + (bucket.tokens - sequences) / page_tokens;
}

StepBatch::StepBatch(int32_t max_tokens, int32_t max_sequences, int32_t max_positions,
                     int32_t page_tokens)
    : page_tokens_(page_tokens),
      max_tokens_(max_tokens),
      max_sequences_(max_sequences),
      max_positions_(max_positions),
      next_row_(max_positions) {
  token_ids_.reserve(max_tokens);
  positions_.reserve(max_tokens);
  kv_slots_.reserve(max_tokens);
  sequence_rows_.reserve(max_tokens);
  groups_.reserve(max_tokens);
  pages_.reserve(size_t{1} * max_sequences * CeilDiv(max_positions, page_tokens));
  sequences_.reserve(max_sequences);
  sampled_.reserve(max_tokens + max_sequences);
  sampled_rows_.reserve(max_tokens + max_sequences);
}

void StepBatch::Assign(std::span<const StepSequence> sequences, std::span<const SampledRow> sampled,
                       RowOrder order) {
  SLUICE_CHECK(sequences.size() <= static_cast<size_t>(max_sequences_));
  SLUICE_CHECK(sampled.size() <= sampled_.capacity());
  xsa_cos_sim = nullptr;
  xsa_proj_frac = nullptr;
  sequences_.clear();
  pages_.clear();
  max_context_ = 0;
  longest_ = 0;
  int32_t tokens = 0;
  for (const StepSequence& sequence : sequences) {
    SLUICE_CHECK(sequence.first_position >= 0 && sequence.count >= 1);
    SLUICE_CHECK(sequence.count <= max_positions_ - sequence.first_position);
    SLUICE_CHECK(sequence.count <= max_tokens_ - tokens);
    const int32_t context = sequence.first_position + sequence.count;
    const int32_t pages = CeilDiv(context, page_tokens_);
    SLUICE_CHECK(pages_.size() + pages <= pages_.capacity());
    sequences_.push_back(
        {sequence.first_position, sequence.count, tokens, static_cast<int32_t>(pages_.size())});
    pages_.insert(pages_.end(), sequence.pages, sequence.pages + pages);
    tokens += sequence.count;
    max_context_ = std::max(max_context_, context);
    longest_ = std::max(longest_, sequence.count);
  }
  token_ids_.resize(tokens);
  positions_.resize(tokens);
  kv_slots_.resize(tokens);
  sequence_rows_.resize(tokens);
  order == RowOrder::kPositionMajor ? NumberByPosition() : NumberBySequence();
  FillRows(sequences);
  FillGroups();
  sampled_.assign(sampled.begin(), sampled.end());
  FindSampledRows();
}

// Counting sort by position, stable in the order of sequences.
void StepBatch::NumberByPosition() {
  std::fill_n(next_row_.begin(), max_context_, 0);
  for (const Sequence& sequence : sequences_) {
    for (int32_t i = 0; i < sequence.count; ++i) ++next_row_[sequence.first_position + i];
  }
  int32_t row = 0;
  for (int32_t position = 0; position < max_context_; ++position) {
    const int32_t count = next_row_[position];
    next_row_[position] = row;
    row += count;
  }
  for (const Sequence& sequence : sequences_) {
    for (int32_t i = 0; i < sequence.count; ++i) {
      sequence_rows_[sequence.rows_offset + i] = next_row_[sequence.first_position + i]++;
    }
  }
}

void StepBatch::NumberBySequence() {
  for (size_t row = 0; row < sequence_rows_.size(); ++row) {
    sequence_rows_[row] = static_cast<int32_t>(row);
  }
}

void StepBatch::FillRows(std::span<const StepSequence> sequences) {
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const Sequence& sequence = sequences_[s];
    for (int32_t i = 0; i < sequence.count; ++i) {
      const int32_t row = sequence_rows_[sequence.rows_offset + i];
      const int32_t position = sequence.first_position + i;
      const int32_t page = pages_[sequence.pages_offset + position / page_tokens_];
      token_ids_[row] = sequences[s].tokens[i];
      positions_[row] = position;
      kv_slots_[row] = page * page_tokens_ + position % page_tokens_;
    }
  }
}

void StepBatch::FillGroups() {
  groups_.clear();
  for (int32_t row = 0; row < tokens(); ++row) {
    if (row == 0 || positions_[row] != positions_[row - 1]) {
      groups_.push_back({positions_[row], row, 0});
    }
    ++groups_.back().count;
  }
}

void StepBatch::FindSampledRows() {
  sampled_rows_.clear();
  for (const SampledRow& sampled : sampled_) {
    SLUICE_CHECK(sampled.sequence >= 0 &&
                 sampled.sequence < static_cast<int32_t>(sequences_.size()));
    const Sequence& sequence = sequences_[sampled.sequence];
    const int32_t i = sampled.position - sequence.first_position;
    SLUICE_CHECK(i >= 0 && i < sequence.count);
    sampled_rows_.push_back(sequence_rows_[sequence.rows_offset + i]);
  }
}

}  // namespace sluice
