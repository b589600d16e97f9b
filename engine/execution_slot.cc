#include "engine/execution_slot.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/padding.h"
#include "kernels/check.h"

namespace sluice {
namespace {

int32_t PagesOf(int32_t tokens, int32_t page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

// Most pages that sequences within `capacity` can take: each may leave one page partly filled.
int32_t MostPages(const Bucket& capacity, int32_t page_tokens) {
  const int32_t sequences = std::min(capacity.sequences, capacity.tokens);
  return sequences + (capacity.tokens - sequences) / page_tokens;
}

Bucket CapacityOf(const Ladder& ladder) {
  Bucket capacity;
  for (const Bucket& bucket : ladder.buckets()) {
    capacity.tokens = std::max(capacity.tokens, bucket.tokens);
    capacity.sequences = std::max(capacity.sequences, bucket.sequences);
  }
  return capacity;
}

// A draw that reports nothing but its result.
SampledRow SampledAt(int32_t sequence, int32_t position) {
  SampledRow row{};
  row.sequence = sequence;
  row.position = position;
  row.target = -1;
  return row;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExecutionSlot>> ExecutionSlot::Create(
    const ExecutableModel* executable, const Model* model, const Ladder& ladder,
    PaddingKind padding, int32_t page_tokens) {
  const Bucket capacity = CapacityOf(ladder);
  absl::StatusOr<std::unique_ptr<Slot>> slot = executable->CreateSlot(capacity);
  if (!slot.ok()) return slot.status();
  const int32_t needed = MostPages(capacity, page_tokens);
  if ((*slot)->pages() < needed) {
    return absl::InternalError(absl::StrCat("a slot for ", capacity.tokens, " tokens has ",
                                            (*slot)->pages(), " KV pages, needs ", needed));
  }
  return std::unique_ptr<ExecutionSlot>(
      new ExecutionSlot(executable, model, capacity, padding, page_tokens, *std::move(slot)));
}

ExecutionSlot::ExecutionSlot(const ExecutableModel* executable, const Model* model,
                             const Bucket& capacity, PaddingKind padding, int32_t page_tokens,
                             std::unique_ptr<Slot> slot)
    : executable_(executable),
      model_(model),
      capacity_(capacity),
      padding_(padding),
      page_tokens_(page_tokens),
      slot_(std::move(slot)),
      allocator_(slot_->pages()),
      batch_(capacity.tokens, capacity.sequences, static_cast<int32_t>(model->config.max_positions),
             page_tokens) {
  const auto sequences = static_cast<size_t>(capacity.sequences);
  const auto tokens = static_cast<size_t>(capacity.tokens);
  padded_.reserve(tokens);
  pages_.reserve(static_cast<size_t>(MostPages(capacity, page_tokens)));
  sequences_.reserve(sequences);
  sampled_.reserve(sequences + tokens);
  sampled_begin_.reserve(sequences + 1);
  results_.resize(sequences + tokens);
}

void ExecutionSlot::Assign(std::span<Row* const> rows, const Bucket& bucket) {
  allocator_.Free(pages_);
  pages_.clear();
  padded_.clear();
  sequences_.clear();
  sampled_.clear();
  sampled_begin_.assign(1, 0);
  rows_ = rows;
  useful_tokens_ = 0;
  diagnostics_wanted_ = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    Row* const row = rows[i];
    if (bucket.padded()) {
      Place(Padded(row, bucket.positions), bucket.positions);
    } else {
      Place(row->sequence(), row->length());
    }
    AppendSampledRows(row, static_cast<int32_t>(i));
    sampled_begin_.push_back(sampled_.size());
    useful_tokens_ += row->length();
    diagnostics_wanted_ |= row->first_step() && !row->owner->reply.xsa_cos_sim.empty();
  }
  while (bucket.padded() && sequences_.size() < static_cast<size_t>(bucket.sequences)) {
    Place(Padded(nullptr, bucket.positions), bucket.positions);
  }
  batch_.Assign(sequences_, sampled_, executable_->row_order());
  if (diagnostics_wanted_) AttachDiagnostics();
}

const int32_t* ExecutionSlot::Padded(const Row* row, int32_t positions) {
  const size_t begin = padded_.size();
  const auto size = static_cast<size_t>(positions);
  SLUICE_CHECK(begin + size <= padded_.capacity());  // pointers to earlier sequences stay valid
  padded_.resize(begin + size);                      // with zeros
  const std::span<int32_t> tokens = std::span(padded_).subspan(begin);
  if (row != nullptr) {
    std::copy_n(row->sequence(), row->length(), tokens.begin());
    Pad(padding_, row->length(), tokens);
  }
  return tokens.data();
}

void ExecutionSlot::Place(const int32_t* tokens, int32_t count) {
  const size_t begin = pages_.size();
  const auto pages = static_cast<size_t>(PagesOf(count, page_tokens_));
  SLUICE_CHECK(begin + pages <= pages_.capacity());  // pointers to earlier pages stay valid
  pages_.resize(begin + pages);
  const bool allocated = allocator_.Allocate(std::span(pages_).subspan(begin));
  SLUICE_CHECK(allocated);
  sequences_.push_back(
      {.first_position = 0, .count = count, .tokens = tokens, .pages = pages_.data() + begin});
}

void ExecutionSlot::AppendSampledRow(const SampledRow& sampled) {
  SLUICE_CHECK(sampled_.size() < results_.size());
  sampled_.push_back(sampled);
  sampled_.back().result = &results_[sampled_.size() - 1];
}

void ExecutionSlot::AppendSampledRows(Row* row, int32_t sequence) {
  ActiveRequest& active = *row->owner;
  const Request& request = active.request;
  if (row->first_step() && active.Wants(kOutputPromptLogprobs)) {
    for (int32_t position = 0; position + 1 < row->prompt_length; ++position) {
      SampledRow scored = SampledAt(sequence, position);
      scored.target = row->sequence()[position + 1];
      AppendSampledRow(scored);
    }
  }
  const bool logits = row->first_step() && active.Wants(kOutputLogits);
  if (row->max_generated == 0 && !logits) return;
  SampledRow last = SampledAt(sequence, row->length() - 1);
  last.params = request.sampling;
  last.params.token_index = static_cast<uint64_t>(row->generated);
  last.params.sample = static_cast<uint32_t>(row->index);
  if (logits) {
    last.logits = active.reply.logits.data() + row->index * model_->config.vocab_size;
  }
  if (row->max_generated > 0 && active.Wants(kOutputTopCandidates) && request.num_top > 0) {
    const auto num_top = static_cast<size_t>(request.num_top);
    const size_t kept = static_cast<size_t>(row->generated) * num_top;
    row->top_ids.resize(kept + num_top);
    row->top_logprobs.resize(kept + num_top);
    last.num_top = request.num_top;
    last.top_ids = row->top_ids.data() + kept;
    last.top_logprobs = row->top_logprobs.data() + kept;
  }
  AppendSampledRow(last);
}

void ExecutionSlot::AttachDiagnostics() {
  const ModelConfig& config = model_->config;
  const size_t most = static_cast<size_t>(config.layers * capacity_.tokens * config.heads);
  const size_t live = static_cast<size_t>(config.layers * batch_.tokens() * config.heads);
  for (std::vector<float>* buffer : {&xsa_cos_sim_, &xsa_proj_frac_}) {
    buffer->reserve(most);
    buffer->assign(live, 0.0f);  // layers without XSA leave theirs as they are
  }
  batch_.xsa_cos_sim = xsa_cos_sim_.data();
  batch_.xsa_proj_frac = xsa_proj_frac_.data();
}

absl::Status ExecutionSlot::Replay(const Plan& plan) {
  return executable_->Replay(plan, *slot_, batch_);
}

ExecutionSlot::Result ExecutionSlot::Collect(size_t i) {
  Row* const row = rows_[i];
  Reply& reply = row->owner->reply;
  const size_t begin = sampled_begin_[i];
  const size_t end = sampled_begin_[i + 1];
  for (size_t s = begin; s < end; ++s) {
    if (results_[s].token < 0) return {.finite = false};
  }
  Result result;
  for (size_t s = begin; s < end; ++s) {
    if (sampled_[s].target >= 0) {
      reply.prompt_logprobs[static_cast<size_t>(row->prompt_offset + sampled_[s].position + 1)] =
          results_[s].logprob;
    } else if (row->max_generated > 0) {
      result.drawn = &results_[s];
    }
  }
  if (row->first_step() && !reply.xsa_cos_sim.empty()) {
    ScatterDiagnostics(i, xsa_cos_sim_.data(), &reply.xsa_cos_sim);
    ScatterDiagnostics(i, xsa_proj_frac_.data(), &reply.xsa_proj_frac);
  }
  return result;
}

void ExecutionSlot::ScatterDiagnostics(size_t i, const float* source,
                                       std::vector<float>* reply) const {
  const ModelConfig& config = model_->config;
  const auto rows =
      batch_.sequence_rows().subspan(static_cast<size_t>(batch_.sequences()[i].rows_offset),
                                     static_cast<size_t>(rows_[i]->length()));
  float* out = reply->data() + config.layers * config.heads * rows_[i]->prompt_offset;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const float* of_layer = source + layer * batch_.tokens() * config.heads;  // [tokens, heads]
    for (int32_t step_row : rows) {
      out = std::copy_n(of_layer + step_row * config.heads, config.heads, out);
    }
  }
}

}  // namespace sluice
