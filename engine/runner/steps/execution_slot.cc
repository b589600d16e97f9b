#include "engine/runner/steps/execution_slot.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "engine/rows/padding.h"
#include "engine/rows/sparse_terms.h"
#include "kernels/diversity.h"

namespace sluice {
namespace {

// Returns a sampled row that reports only its result.
SampledRow SampledAt(int32_t sequence, int32_t position) {
  SampledRow row{};
  row.sequence = sequence;
  row.position = position;
  row.target = -1;
  return row;
}

}  // namespace

Bucket ExecutionSlot::CapacityOf(const Ladder& ladder) {
  Bucket capacity;
  for (const Bucket& bucket : ladder.buckets()) {
    capacity.tokens = std::max(capacity.tokens, bucket.tokens);
    capacity.sequences = std::max(capacity.sequences, bucket.sequences);
  }
  return capacity;
}

absl::StatusOr<std::unique_ptr<ExecutionSlot>> ExecutionSlot::Create(
    const ExecutableModel* executable, const Model* model, const Ladder& ladder,
    const Options& options) {
  const Bucket capacity = CapacityOf(ladder);
  SLUICE_CHECK(options.pages >= MaxPages(capacity, options.page_tokens));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Slot> slot,
                          executable->CreateSlot(capacity, options.pages));
  std::shared_ptr<const SpanHead> spans;
  if (model->spans) {
    spans = std::make_shared<const SpanHead>(*model, executable->host_profile());
  }
  return std::unique_ptr<ExecutionSlot>(
      new ExecutionSlot(executable, model, capacity, options, std::move(slot), std::move(spans)));
}

std::unique_ptr<ExecutionSlot> ExecutionSlot::Beside() const {
  return std::unique_ptr<ExecutionSlot>(
      new ExecutionSlot(executable_, model_, capacity_, options_, slot_, span_head_));
}

ExecutionSlot::ExecutionSlot(const ExecutableModel* executable, const Model* model,
                             const Bucket& capacity, const Options& options,
                             std::shared_ptr<Slot> slot, std::shared_ptr<const SpanHead> spans)
    : executable_(executable),
      model_(model),
      capacity_(capacity),
      options_(options),
      slot_(std::move(slot)),
      span_head_(std::move(spans)),
      batch_(capacity.tokens, capacity.sequences, model->config.max_positions, options.page_tokens,
             model->config.input_width, model->config.padding_token) {
  const int64_t sequences = capacity.sequences;
  const int64_t tokens = capacity.tokens;
  padded_.reserve(tokens);
  step_pages_.resize(MaxPages(capacity, options.page_tokens));
  std::iota(step_pages_.begin(), step_pages_.end(), 0);
  sequences_.reserve(sequences);
  sampled_.reserve(sequences + tokens);
  sampled_begin_.reserve(sequences + 1);
  results_.resize(sequences + tokens);
  states_.reserve(sequences + tokens);
  wanted_states_.reserve(sequences + tokens);
  states_begin_.reserve(sequences + 1);
  row_steps_.reserve(sequences);
}

void ExecutionSlot::Assign(std::span<RequestRow* const> rows, const Bucket& bucket) {
  pages_given_ = 0;
  padded_.clear();
  sequences_.clear();
  sampled_.clear();
  sampled_begin_.assign(1, 0);
  states_.clear();
  states_begin_.assign(1, 0);
  rows_ = rows;
  row_steps_.clear();
  useful_tokens_ = 0;
  diagnostics_wanted_ = false;
  for (int32_t i = 0; i < std::ssize(rows); ++i) {
    RequestRow* const row = rows[i];
    row_steps_.push_back({.first_position = row->first_position,
                          .tokens = row->tokens,
                          .drafted = row->drafted,
                          .at_end = row->step_end() - row->drafted == row->length()});
    AddRow(*row, bucket);
    AppendSampledRows(row, i);
    sampled_begin_.push_back(sampled_.size());
    AppendStates(*row, i);
    states_begin_.push_back(states_.size());
    useful_tokens_ += row->tokens;
    diagnostics_wanted_ |= !row->owner->reply.xsa_cos_sim.empty();
  }
  if (bucket.padded()) FillRectangle(bucket);
  const int64_t width = model_->config.hidden_size;
  double* const state_values = state_values_.Use(states_.size() * width);
  for (size_t s = 0; s < states_.size(); ++s) states_[s].out = state_values + s * width;
  batch_.Assign(sequences_, sampled_, executable_->row_order(), states_);
  if (diagnostics_wanted_) AttachDiagnostics();
}

void ExecutionSlot::AddRow(const RequestRow& row, const Bucket& bucket) {
  if (bucket.padded()) {
    const int32_t* const tokens = Padded(&row, bucket.positions);
    Place(tokens, model_->config.causal ? bucket.positions : row.length());
  } else if (row.kv.ids.empty()) {
    Place(row.history.data(), row.tokens);
  } else {
    const SequencePages& kv = row.kv;
    const bool copies = row.first_position == kv.shared;  // if there is a page to copy
    sequences_.push_back({.first_position = row.first_position,
                          .count = row.tokens,
                          .tokens = row.history.data() + row.first_position,
                          .pages = kv.ids.data(),
                          .drawn_by = row.drawing > 0 ? row.outputs.draw : -1,
                          .copied_page = copies ? kv.copied_from : -1});
  }
  Describe(row);
}

void ExecutionSlot::FillRectangle(const Bucket& bucket) {
  const auto rows = static_cast<int32_t>(sequences_.size());
  for (int32_t i = 0; i < rows; ++i) {
    const int32_t live = sequences_[i].count;
    if (live < bucket.positions) Place(sequences_[i].tokens + live, bucket.positions - live);
  }
  for (int32_t i = rows; i < bucket.sequences; ++i) {
    Place(Padded(nullptr, bucket.positions), bucket.positions);
  }
}

void ExecutionSlot::Describe(const RequestRow& row) {
  StepSequence& sequence = sequences_.back();
  sequence.position_offset = row.position_offset;
  if (row.owner->adapter != nullptr) sequence.adapter = row.owner->adapter->weights.get();
  const Request& request = row.owner->request;
  const int32_t live =
      std::max(std::min(row.step_end(), row.prompt.length) - sequence.first_position, 0);
  const int64_t first = row.prompt.offset + sequence.first_position;
  if (!request.hidden.empty()) sequence.hidden = request.hidden[row.index];
  if (!request.inputs.empty()) {
    sequence.input_count = live;
    sequence.inputs = request.inputs.data() + first * model_->config.input_width;
  }
  if (!request.types.empty()) {
    sequence.type_count = live;
    sequence.types = request.types.data() + first;
  }
}

const int32_t* ExecutionSlot::Padded(const RequestRow* row, int32_t positions) {
  const size_t begin = padded_.size();
  const size_t end = begin + positions;
  SLUICE_CHECK(end <= padded_.capacity());  // so pointers to earlier sequences stay valid
  padded_.resize(end);                      // with zeros
  const std::span<int32_t> tokens = std::span(padded_).subspan(begin);
  if (row != nullptr) {
    std::copy(row->history.begin(), row->history.end(), tokens.begin());
    Pad(options_.padding, row->length(), tokens);
  }
  return tokens.data();
}

void ExecutionSlot::Place(const int32_t* tokens, int32_t count) {
  const int32_t* const pages = step_pages_.data() + pages_given_;
  pages_given_ += (count + options_.page_tokens - 1) / options_.page_tokens;
  SLUICE_CHECK(pages_given_ <= std::ssize(step_pages_));
  sequences_.push_back({.first_position = 0, .count = count, .tokens = tokens, .pages = pages});
}

void ExecutionSlot::AppendSampledRow(const SampledRow& sampled) {
  SLUICE_CHECK(sampled_.size() < results_.size());
  sampled_.push_back(sampled);
  sampled_.back().result = &results_[sampled_.size() - 1];
}

void ExecutionSlot::AppendSampledRows(RequestRow* row, int32_t sequence) {
  if (!row->outputs.peaks.empty()) AppendPeaks(row, sequence);
  if (row->scored && row->owner->Wants(kOutputPromptLogprobs)) {
    const int32_t end = std::min(row->step_end(), row->prompt.length - 1);
    for (int32_t position = row->first_position; position < end; ++position) {
      SampledRow scored = SampledAt(sequence, position);
      scored.target = row->history[position + 1];
      AppendSampledRow(scored);
    }
  }
  if (row_steps_.back().at_end) AppendDraws(row, sequence);
}

// Appends all positions of the prompt, for the largest logits.
void ExecutionSlot::AppendPeaks(RequestRow* row, int32_t sequence) {
  const int32_t end = std::min(row->step_end(), row->prompt.length);
  for (int32_t position = row->first_position; position < end; ++position) {
    SampledRow raised = SampledAt(sequence, position);
    raised.target = 0;
    raised.peaks = row->outputs.peaks.data();
    AppendSampledRow(raised);
  }
}

// Appends the outputs at the last position and at each drafted token.
void ExecutionSlot::AppendDraws(RequestRow* row, int32_t sequence) {
  ActiveRequest& active = *row->owner;
  const bool logits = row->drawn() == 0 && active.Wants(kOutputLogits);
  if (row->generation.limit == 0 && !logits) return;
  row->outputs.draw = std::ssize(sampled_);
  for (int32_t drafted = 0; drafted <= row->drafted; ++drafted) {
    SampledRow draw = DrawAfter(row, sequence, drafted);
    if (logits) {
      draw.logits = active.reply.logits.data() + row->index * model_->config.vocab_size;
    }
    AppendSampledRow(draw);
  }
}

// Returns the draw after the row's first `drafted` drafted tokens.
SampledRow ExecutionSlot::DrawAfter(RequestRow* row, int32_t sequence, int32_t drafted) {
  const Request& request = row->owner->request;
  SampledRow draw = row->DrawAfter(drafted);
  draw.sequence = sequence;
  draw.position = row->length() - 1 + drafted;
  RequestRow::Candidates& candidates = row->outputs.candidates;
  if (candidates.ids.empty()) return draw;
  const int64_t begin = int64_t{drafted} * candidates.pool;
  draw.num_top = request.spec->num_top;
  draw.top_ids = candidates.ids.data() + begin;
  draw.top_logprobs = candidates.logprobs.data() + begin;
  if (!candidates.scores.empty()) draw.top_scores = candidates.scores.data() + begin;
  draw.diversity = request.spec->diversity;
  draw.pool = candidates.pool;
  if (!candidates.scratch.empty()) {
    draw.diverse_scratch = candidates.scratch.data() +
                           drafted * kernels::DiverseScratch(candidates.pool, draw.num_top);
  }
  return draw;
}

void ExecutionSlot::AppendStates(const RequestRow& row, int32_t sequence) {
  if (row.outputs.states == nullptr) return;
  const int32_t end = std::min(row.step_end(), row.prompt.length);
  wanted_states_.clear();
  row.outputs.states->AppendWanted(row.first_position, end, &wanted_states_);
  for (const auto [first, count, largest] : wanted_states_) {
    states_.push_back({.sequence = sequence,
                       .position = first,
                       .out = nullptr,
                       .count = count,
                       .largest = largest,
                       .of_trunk = row.owner->request.spec->head != nullptr});
  }
}

void ExecutionSlot::AttachDiagnostics() {
  const ModelConfig& config = model_->config;
  const int64_t live = config.layers * batch_.tokens() * config.heads;
  // Layers without XSA do not write their part.
  const auto zeros = [live](StepBuffer<float>* buffer) {
    float* const values = buffer->Use(live);
    std::fill_n(values, live, 0.0f);
    return values;
  };
  batch_.xsa_cos_sim = zeros(&xsa_cos_sim_);
  batch_.xsa_proj_frac = zeros(&xsa_proj_frac_);
}

bool ExecutionSlot::TrimBuffers() {
  const bool states = state_values_.Trim();
  const bool cos_sim = xsa_cos_sim_.Trim(), proj_frac = xsa_proj_frac_.Trim();
  return states || cos_sim || proj_frac;
}

int64_t ExecutionSlot::buffer_bytes() const {
  return state_values_.held() * kSizeOf<double> +
         (xsa_cos_sim_.held() + xsa_proj_frac_.held()) * kSizeOf<float>;
}

ExecutionSlot::Result ExecutionSlot::Collect(size_t i) {
  RequestRow* const row = rows_[i];
  Reply& reply = row->owner->reply;
  const size_t begin = sampled_begin_[i];
  const size_t end = sampled_begin_[i + 1];
  for (size_t s = begin; s + row_steps_[i].drafted < end; ++s) {
    if (results_[s].token < 0) return {.finite = false};
  }
  if (!CollectStates(i)) return {.finite = false};
  CollectPeaks(i);
  Result result{.at_end = row_steps_[i].at_end};
  for (size_t s = begin; s < end; ++s) {
    if (sampled_[s].peaks != nullptr) continue;
    if (sampled_[s].target >= 0) {
      reply.prompt_logprobs[row->prompt.offset + sampled_[s].position + 1] = results_[s].logprob;
    } else if (row->generation.limit > 0) {
      result.drawn = std::span(results_).subspan(s, end - s);
      break;
    }
  }
  if (!reply.xsa_cos_sim.empty()) {
    ScatterDiagnostics(i, xsa_cos_sim_.data(), &reply.xsa_cos_sim);
    ScatterDiagnostics(i, xsa_proj_frac_.data(), &reply.xsa_proj_frac);
    const int32_t step_end = row_steps_[i].first_position + row_steps_[i].tokens;
    row->outputs.diagnosed = std::max(row->outputs.diagnosed, step_end);
  }
  return result;
}

void ExecutionSlot::CollectPeaks(size_t i) {
  RequestRow* const row = rows_[i];
  const int32_t step_end = row_steps_[i].first_position + row_steps_[i].tokens;
  if (row->outputs.peaks.empty() || step_end != row->prompt.length) return;
  Reply& reply = row->owner->reply;
  const int64_t most = row->owner->request.spec->states.max_active_dims;
  reply.sparse_counts[row->index] =
      TakeHeaviestTerms(row->outputs.peaks, model_->config.serving.sparse_logarithms,
                        std::span(reply.sparse_ids).subspan(row->index * most, most),
                        std::span(reply.sparse_weights).subspan(row->index * most, most));
}

bool ExecutionSlot::CollectStates(size_t i) {
  RequestRow* const row = rows_[i];
  if (row->outputs.states == nullptr) return true;
  const auto divide = [this](int64_t n, int64_t grain,
                             absl::FunctionRef<void(int64_t, int64_t)> body) {
    executable_->ParallelFor(n, grain, body);
  };
  const size_t width = model_->config.hidden_size;
  const size_t begin = states_begin_[i], count = states_begin_[i + 1] - begin;
  wanted_states_.clear();
  for (const StateSum& sum : std::span(states_).subspan(begin, count)) {
    wanted_states_.push_back({sum.position, sum.count, sum.largest});
  }
  const std::span<const double> sums(state_values_.data() + begin * width, count * width);
  if (!row->outputs.states->Take(wanted_states_, sums, divide)) return false;
  const int32_t step_end = row_steps_[i].first_position + row_steps_[i].tokens;
  if (step_end != row->prompt.length) return true;
  ActiveRequest& active = *row->owner;
  if (!row->outputs.states->Finish(row->index, &active.reply, divide)) return false;
  if (active.Wants(kOutputExtraction)) {
    return span_head_->Extract(active.request.spec->extraction, active.label_vectors,
                               row->outputs.states->TakeVectors(), divide,
                               &active.reply.extracted[row->index]);
  }
  if (active.max_sim) {
    active.max_sim->Take(row->index, row->outputs.states->TakeVectors(), divide, &active.reply);
  }
  return true;
}

void ExecutionSlot::ScatterDiagnostics(size_t i, const float* source,
                                       std::vector<float>* reply) const {
  const ModelConfig& config = model_->config;
  const RequestRow& row = *rows_[i];
  const auto steps =
      batch_.sequence_rows().subspan(batch_.sequences()[i].rows_offset, row_steps_[i].tokens);
  // [layers, room, heads] of the row
  const int64_t room = row.MaxPositions();
  float* const of_row =
      reply->data() + config.layers * config.heads * row.outputs.diagnostics_begin;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const float* of_layer = source + layer * batch_.tokens() * config.heads;  // [tokens, heads]
    float* out = of_row + (layer * room + row_steps_[i].first_position) * config.heads;
    for (int32_t step_row : steps) {
      out = std::copy_n(of_layer + step_row * config.heads, config.heads, out);
    }
  }
}

}  // namespace sluice
