#include "engine/runner/active_request.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace sluice {
namespace {

template <typename T>
int64_t BytesOf(const std::vector<T>& vector) {
  return static_cast<int64_t>(vector.size() * sizeof(T));
}

bool Generates(const Request& request) { return request.max_tokens > 1; }

int64_t FixedBytes(const Request& request) {
  auto bytes = static_cast<int64_t>(sizeof(ActiveRequest));
  bytes += BytesOf(request.edits.bias) + BytesOf(request.edits.allowed) + BytesOf(request.stop.ids);
  for (const std::string& text : request.stop.texts) bytes += static_cast<int64_t>(text.size());
  bytes += BytesOf(request.inputs);
  for (const TokenLists* lists : {&request.candidates, &request.excluded}) {
    bytes += BytesOf(lists->tokens) + BytesOf(lists->begin);
  }
  if ((request.outputs & kOutputCandidates) != 0) bytes += BytesOf(request.candidates.tokens);
  return bytes + static_cast<int64_t>(RequestHistory::kSteps * sizeof(ExplainedStep));
}

// Of one candidate.
int64_t TopBytes(const Request& request) {
  const size_t scores = (request.outputs & kOutputTopScores) != 0 ? 1 : 0;
  return static_cast<int64_t>(sizeof(int32_t) + (1 + scores) * sizeof(float));
}

int64_t RowBytes(const Request& request) {
  auto bytes = static_cast<int64_t>(sizeof(Row) + sizeof(int32_t));
  if (RowEdits::Wanted(request)) bytes += static_cast<int64_t>(sizeof(RowEdits));
  if (!request.stop.texts.empty()) bytes += static_cast<int64_t>(sizeof(TextStream));
  bytes += request.num_top * TopBytes(request);
  if (RowStates::Wanted(request)) bytes += RowStates::Bytes(request);
  if ((request.outputs & kOutputLogits) != 0) {
    bytes += request.model->config.vocab_size * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

// Of the entry of a penalised token, and of its place.
constexpr int64_t kSeenBytes = sizeof(kernels::SeenToken) + 2 * sizeof(int32_t);

int64_t PromptTokenBytes(const Request& request) {
  int64_t bytes = sizeof(int32_t);
  if (Generates(request)) bytes += sizeof(int32_t);
  if (request.edits.repetition_penalty != 1.0f) bytes += kSeenBytes;
  if ((request.outputs & kOutputPromptLogprobs) != 0) bytes += sizeof(float);
  const ModelConfig& config = request.model->config;
  if ((request.outputs & kOutputDiagnostics) != 0 && config.xsa.Any()) {
    bytes += 2 * config.layers * config.heads * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

// Kept by the row, and by the sink until the answer is written.
int64_t GeneratedTokenBytes(const Request& request) {
  int64_t bytes = sizeof(GeneratedToken);
  if (Generates(request)) bytes += sizeof(int32_t);
  if (RowEdits::Wanted(request)) bytes += kSeenBytes;
  return bytes + request.num_top * TopBytes(request);
}

// What is at other positions is something else, and no prefix of it: only rows of equal offset share
// pages.
void AlignRow(const ModelConfig& config, Row* row) {
  if (config.serving.alignment == PositionAlignment::kStart) return;
  row->position_offset = static_cast<int32_t>(config.max_positions) - row->prompt_length;
  row->kv.root = static_cast<uint64_t>(row->position_offset);
}

}  // namespace

bool Row::Keep(int32_t token) {
  ++generated;
  scored = false;
  if (edits != nullptr) edits->Keep(token);
  if (generated >= max_generated) return false;
  own_tokens.push_back(token);
  history = own_tokens;
  return true;
}

ActiveRequest::ActiveRequest(Request accepted, std::shared_ptr<Sink> receiver, MonoTime received,
                             MonoTime queued)
    : request(std::move(accepted)),
      load(LoadOf(request)),
      sink(std::move(receiver)),
      rows_left(request.rows()),
      rows(static_cast<size_t>(request.rows())) {
  trace.received = received;
  trace.queued = queued;
  trace.prompt_tokens = static_cast<int64_t>(request.tokens.size());
  const auto max_positions = static_cast<int32_t>(request.model->config.max_positions);
  if (!request.stop.texts.empty()) {
    stop_texts_ = std::make_shared<const StopTexts>(request.stop.texts);
  }
  int32_t offset = 0;
  for (int32_t i = 0; i < request.rows(); ++i) {
    Row& row = rows[static_cast<size_t>(i)];
    row.owner = this;
    row.index = i;
    row.prompt_offset = offset;
    row.prompt_length = request.lengths[static_cast<size_t>(i)];
    // The last token may be drawn at the last position, and is not computed any more.
    row.max_generated = std::min(request.max_tokens, max_positions + 1 - row.prompt_length);
    row.priority = request.priority;
    row.queued = queued;
    row.deadline = request.deadline;
    row.history = std::span(request.tokens)
                      .subspan(static_cast<size_t>(offset), static_cast<size_t>(row.prompt_length));
    AlignRow(request.model->config, &row);
    row.generates = row.max_generated > 1;
    row.scored = Wants(kOutputPromptLogprobs);
    row.sampled_end = row.max_generated > 0 || Wants(kOutputLogits);
    if (RowStates::Wanted(request)) {
      row.states = std::make_unique<RowStates>(request, row.prompt_length);
    }
    // What is reported of every position must be computed, and vectors are not looked up.
    row.reuse = !row.scored && !Wants(kOutputDiagnostics) && request.inputs.empty() &&
                (row.states == nullptr || row.states->OnlyLast());
    PrepareGeneration(&row);
    offset += row.prompt_length;
  }
  const size_t steps = rows.size() * static_cast<size_t>(std::max(request.max_tokens, 1));
  history.steps.reserve(std::min(steps, RequestHistory::kSteps));
}

void ActiveRequest::PrepareGeneration(Row* row) {
  if (row->max_generated == 0) return;
  if (row->generates) {
    row->own_tokens.reserve(row->history.size() + static_cast<size_t>(row->max_generated) - 1);
    row->own_tokens.assign(row->history.begin(), row->history.end());
    row->history = row->own_tokens;
  }
  if (RowEdits::Wanted(request)) {
    const std::span<const int32_t> prompt =
        request.inputs.empty() ? row->history : std::span<const int32_t>();
    row->edits = std::make_unique<RowEdits>(request, prompt, row->max_generated);
  }
  if (stop_texts_ != nullptr) {
    row->text = std::make_unique<TextStream>(request.model->tokenizer.get(), stop_texts_,
                                             request.stop.min_tokens);
  }
  if (Wants(kOutputTopCandidates)) {
    row->top_ids.resize(static_cast<size_t>(request.num_top));
    row->top_logprobs.resize(row->top_ids.size());
    if (Wants(kOutputTopScores)) row->top_scores.resize(row->top_ids.size());
  }
}

void ActiveRequest::AllocateReply() {
  if (std::exchange(reply_allocated, true)) return;
  const ModelConfig& config = request.model->config;
  reply.finish.assign(rows.size(), FinishReason::kNone);
  if (Wants(kOutputLogits)) {
    reply.logits.resize(rows.size() * static_cast<size_t>(config.vocab_size));
  }
  const auto numbers = [this](OutputMask output, int64_t per_row) {
    return Wants(output) ? rows.size() * static_cast<size_t>(per_row) : 0;
  };
  reply.embedding.resize(numbers(kOutputEmbedding, config.hidden_size));
  reply.scores.resize(numbers(kOutputScores, config.serving.classifier.labels));
  if (Wants(kOutputCandidates)) reply.candidate_scores.resize(request.candidates.tokens.size());
  if (Wants(kOutputPromptLogprobs)) reply.prompt_logprobs.assign(request.tokens.size(), 0.0f);
  if (Wants(kOutputDiagnostics) && config.xsa.Any()) {
    const size_t per_token = static_cast<size_t>(config.layers * config.heads);
    reply.xsa_cos_sim.resize(request.tokens.size() * per_token);
    reply.xsa_proj_frac.resize(request.tokens.size() * per_token);
  }
}

RequestLoad LoadOf(const Request& request) {
  const auto tokens = static_cast<int64_t>(request.tokens.size());
  const int64_t rows = request.rows();
  const int64_t generated = rows * request.max_tokens;
  return {.tokens = tokens + generated,
          .bytes = FixedBytes(request) + rows * RowBytes(request) +
                   tokens * PromptTokenBytes(request) + generated * GeneratedTokenBytes(request),
          .priority = request.priority};
}

}  // namespace sluice
