#include "engine/step_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"

namespace sluice {

int32_t MaxPages(const Bucket& bucket, int32_t page_tokens) {
  const int32_t sequences = std::min(bucket.sequences, bucket.tokens);
  return sequences + (bucket.tokens - sequences) / page_tokens;
}

StepBatch::StepBatch(int32_t max_tokens, int32_t max_sequences, int32_t max_positions,
                     int32_t page_tokens, int32_t input_width, int32_t padding_token)
    : page_tokens_(page_tokens),
      max_tokens_(max_tokens),
      max_sequences_(max_sequences),
      max_positions_(max_positions),
      input_width_(input_width),
      padding_token_(padding_token),
      next_row_(max_positions) {
  token_ids_.reserve(max_tokens);
  types_.reserve(max_tokens);
  inputs_.reserve(size_t{1} * max_tokens * input_width);
  positions_.reserve(max_tokens);
  kv_slots_.reserve(max_tokens);
  sequence_rows_.reserve(max_tokens);
  groups_.reserve(max_tokens);
  adapter_groups_.reserve(max_tokens);
  adapters_.reserve(max_sequences);
  order_.reserve(max_sequences);
  sequence_adapters_.reserve(max_sequences);
  row_adapters_.reserve(max_tokens);
  pages_.reserve(size_t{1} * max_sequences * CeilDiv(max_positions, page_tokens));
  sequences_.reserve(max_sequences);
  offsets_.reserve(max_sequences);
  hidden_.reserve(max_sequences);
  page_copies_.reserve(max_sequences);
  sampled_.reserve(max_tokens + max_sequences);
  sampled_rows_.reserve(max_tokens + max_sequences);
  states_.reserve(max_tokens + max_sequences);
  state_places_.reserve(max_tokens + max_sequences);
}

void StepBatch::Assign(std::span<const StepSequence> sequences, std::span<const SampledRow> sampled,
                       RowOrder order, std::span<const StateSum> states) {
  SLUICE_CHECK(std::ssize(sequences) <= max_sequences_);
  SLUICE_CHECK(sampled.size() <= sampled_.capacity() && states.size() <= states_.capacity());
  xsa_cos_sim = nullptr;
  xsa_proj_frac = nullptr;
  sequences_.clear();
  offsets_.clear();
  hidden_.clear();
  pages_.clear();
  page_copies_.clear();
  tokens_ = 0;
  max_context_ = 0;
  end_position_ = 0;
  longest_ = 0;
  for (const StepSequence& sequence : sequences) Place(sequence);
  token_ids_.resize(tokens_);
  positions_.resize(tokens_);
  kv_slots_.resize(tokens_);
  sequence_rows_.resize(tokens_);
  OrderByAdapter(sequences);
  order == RowOrder::kPositionMajor ? NumberByPosition() : NumberBySequence();
  FillRows(sequences);
  if (padding_token_ >= 0) SkipPadding();
  if (input_width_ > 0) FillInputs(sequences);
  FillTypes(sequences);
  FillGroups();
  FillAdapterGroups();
  sampled_.assign(sampled.begin(), sampled.end());
  states_.assign(states.begin(), states.end());
  FindRows();
}

void StepBatch::Place(const StepSequence& sequence) {
  SLUICE_CHECK(sequence.first_position >= 0 && sequence.count >= 1);
  SLUICE_CHECK(sequence.count <= max_positions_ - sequence.first_position);
  SLUICE_CHECK(sequence.count <= max_tokens_ - tokens_);
  SLUICE_CHECK(sequence.position_offset >= 0 && sequence.position_offset < max_positions_);
  SLUICE_CHECK(sequence.input_count >= 0 && sequence.input_count <= sequence.count);
  SLUICE_CHECK(sequence.input_count == 0 || input_width_ > 0);
  SLUICE_CHECK(sequence.type_count >= 0 && sequence.type_count <= sequence.count);
  const int32_t context = sequence.first_position + sequence.count;
  const int32_t pages = CeilDiv(context, page_tokens_);
  SLUICE_CHECK(pages_.size() + pages <= pages_.capacity());
  const int32_t pages_offset = std::ssize(pages_);
  sequences_.push_back({sequence.first_position, sequence.count, tokens_, pages_offset});
  offsets_.push_back(sequence.position_offset);
  SLUICE_CHECK(sequence.hidden >= 0 && sequence.hidden < sequence.count);
  hidden_.push_back(sequence.hidden);
  pages_.insert(pages_.end(), sequence.pages, sequence.pages + pages);
  if (sequence.copied_page >= 0) {
    const int32_t copied = sequence.first_position % page_tokens_;
    SLUICE_CHECK(copied > 0);
    page_copies_.push_back({.from = sequence.copied_page,
                            .to = sequence.pages[sequence.first_position / page_tokens_],
                            .positions = copied});
  }
  tokens_ += sequence.count;
  max_context_ = std::max(max_context_, context);
  end_position_ =
      std::max(end_position_, std::min(context + sequence.position_offset, max_positions_));
  longest_ = std::max(longest_, sequence.count);
}

int32_t StepBatch::PositionOf(size_t sequence, int32_t i) const {
  return std::min(sequences_[sequence].first_position + i + offsets_[sequence], max_positions_ - 1);
}

// Puts the sequences of an adapter next to each other.
void StepBatch::OrderByAdapter(std::span<const StepSequence> sequences) {
  adapters_.clear();
  order_.resize(sequences.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto adapted = [](const StepSequence& sequence) { return sequence.adapter != nullptr; };
  if (std::ranges::none_of(sequences, adapted)) return;
  const auto key = [&](int32_t s) { return std::pair(sequences[s].adapter, s); };
  std::ranges::sort(order_, {}, key);
  sequence_adapters_.assign(sequences.size(), -1);
  for (const int32_t s : order_) {
    const LoadedAdapter* const adapter = sequences[s].adapter;
    if (adapter == nullptr) continue;
    if (adapters_.empty() || adapters_.back() != adapter) adapters_.push_back(adapter);
    sequence_adapters_[s] = static_cast<int32_t>(adapters_.size()) - 1;
  }
}

// Numbers the rows by a counting sort by position, stable in order_.
void StepBatch::NumberByPosition() {
  std::fill_n(next_row_.begin(), end_position_, 0);
  for (size_t s = 0; s < sequences_.size(); ++s) {
    for (int32_t i = 0; i < sequences_[s].count; ++i) ++next_row_[PositionOf(s, i)];
  }
  int32_t row = 0;
  for (int32_t position = 0; position < end_position_; ++position) {
    const int32_t count = next_row_[position];
    next_row_[position] = row;
    row += count;
  }
  for (const int32_t s : order_) {
    const Sequence& sequence = sequences_[s];
    for (int32_t i = 0; i < sequence.count; ++i) {
      sequence_rows_[sequence.rows_offset + i] = next_row_[PositionOf(s, i)]++;
    }
  }
}

void StepBatch::NumberBySequence() {
  int32_t row = 0;
  for (const int32_t s : order_) {
    const auto begin = sequence_rows_.begin() + sequences_[s].rows_offset;
    std::iota(begin, begin + sequences_[s].count, row);
    row += sequences_[s].count;
  }
}

int32_t StepBatch::TokenOf(const StepSequence& sequence, int32_t i) {
  if (i < sequence.input_count) return -1;
  if (sequence.drawn_by >= 0 && i == sequence.count - 1) return DrawnBy(sequence.drawn_by);
  return sequence.tokens[i];
}

void StepBatch::FillRows(std::span<const StepSequence> sequences) {
  for (size_t s = 0; s < sequences_.size(); ++s) {
    const Sequence& sequence = sequences_[s];
    for (int32_t i = 0; i < sequence.count; ++i) {
      const int32_t row = sequence_rows_[sequence.rows_offset + i];
      const int32_t index = sequence.first_position + i;
      const int32_t page = pages_[sequence.pages_offset + index / page_tokens_];
      token_ids_[row] = TokenOf(sequences[s], i);
      positions_[row] = PositionOf(s, i);
      kv_slots_[row] = page * page_tokens_ + index % page_tokens_;
    }
  }
}

// Renumbers the positions of each sequence so that padding tokens do not count.
void StepBatch::SkipPadding() {
  for (const Sequence& sequence : sequences_) {
    int32_t shift = 1;
    for (int32_t i = 0; i < sequence.count; ++i) {
      const int32_t row = sequence_rows_[sequence.rows_offset + i];
      const bool padding = token_ids_[row] == padding_token_;
      if (padding) --shift;
      positions_[row] = padding ? 0 : positions_[row] + shift;
    }
  }
}

void StepBatch::FillInputs(std::span<const StepSequence> sequences) {
  const int64_t width = input_width_;
  inputs_.resize(tokens_ * width);
  for (size_t s = 0; s < sequences_.size(); ++s) {
    for (int32_t i = 0; i < sequences_[s].count; ++i) {
      const int32_t row = sequence_rows_[sequences_[s].rows_offset + i];
      float* const to = inputs_.data() + row * width;
      if (i < sequences[s].input_count) {
        std::copy_n(sequences[s].inputs + i * width, width, to);
      } else {
        std::fill_n(to, width, 0.0f);
      }
    }
  }
}

void StepBatch::FillTypes(std::span<const StepSequence> sequences) {
  types_.clear();
  const auto typed = [](const StepSequence& sequence) { return sequence.type_count > 0; };
  if (std::none_of(sequences.begin(), sequences.end(), typed)) return;
  types_.resize(tokens_);  // with zeros
  for (size_t s = 0; s < sequences_.size(); ++s) {
    for (int32_t i = 0; i < sequences[s].type_count; ++i) {
      types_[sequence_rows_[sequences_[s].rows_offset + i]] = sequences[s].types[i];
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

void StepBatch::FillAdapterGroups() {
  adapter_groups_.clear();
  if (adapters_.empty()) return;
  row_adapters_.resize(tokens_);
  for (size_t s = 0; s < sequences_.size(); ++s) {
    for (int32_t i = 0; i < sequences_[s].count; ++i) {
      row_adapters_[sequence_rows_[sequences_[s].rows_offset + i]] = sequence_adapters_[s];
    }
  }
  for (int32_t row = 0; row < tokens(); ++row) {
    const int32_t adapter = row_adapters_[row];
    if (adapter < 0) continue;
    if (row == 0 || adapter != row_adapters_[row - 1]) adapter_groups_.push_back({adapter, row, 0});
    ++adapter_groups_.back().count;
  }
}

int32_t StepBatch::PlaceOf(int32_t sequence, int32_t position) const {
  SLUICE_CHECK(sequence >= 0 && sequence < std::ssize(sequences_));
  const Sequence& place = sequences_[sequence];
  const int32_t i = position - place.first_position;
  SLUICE_CHECK(i >= 0 && i < place.count);
  return place.rows_offset + i;
}

void StepBatch::FindRows() {
  sampled_rows_.clear();
  for (const SampledRow& sampled : sampled_) {
    sampled_rows_.push_back(sequence_rows_[PlaceOf(sampled.sequence, sampled.position)]);
  }
  state_places_.clear();
  for (const StateSum& sum : states_) {
    const int32_t begin = PlaceOf(sum.sequence, sum.position);
    SLUICE_CHECK(PlaceOf(sum.sequence, sum.position + sum.count - 1) == begin + sum.count - 1);
    state_places_.push_back({begin, sum.count});
  }
}

}  // namespace sluice
