#include "engine/active_request.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// Tokens that all steps of a row compute, if no eos ends it earlier.
int64_t WholeWork(const Row& row) {
  const int64_t steps = std::max(row.max_generated, 1);
  return steps * row.prompt_length + steps * (steps - 1) / 2;
}

}  // namespace

const int32_t* Row::sequence() const {
  return history.empty() ? owner->request.tokens.data() + prompt_offset : history.data();
}

int32_t Row::SampledRows() const {
  const bool scored = first_step() && owner->Wants(kOutputPromptLogprobs);
  const bool last = max_generated > 0 || (first_step() && owner->Wants(kOutputLogits));
  return (scored ? prompt_length - 1 : 0) + (last ? 1 : 0);
}

bool Row::Keep(int32_t token) {
  ++generated;
  if (generated >= max_generated) return false;
  history.push_back(token);
  return true;
}

ActiveRequest::ActiveRequest(Request accepted, std::shared_ptr<Sink> receiver, MonoTime received,
                             MonoTime queued)
    : request(std::move(accepted)),
      sink(std::move(receiver)),
      rows_left(request.rows()),
      rows(static_cast<size_t>(request.rows())) {
  trace.received = received;
  trace.queued = queued;
  trace.prompt_tokens = static_cast<int64_t>(request.tokens.size());
  const auto max_positions = static_cast<int32_t>(request.model->config.max_positions);
  int32_t offset = 0;
  for (int32_t i = 0; i < request.rows(); ++i) {
    Row& row = rows[static_cast<size_t>(i)];
    row.owner = this;
    row.index = i;
    row.prompt_offset = offset;
    row.prompt_length = request.lengths[static_cast<size_t>(i)];
    // The last token may be drawn at the last position, and is not computed any more.
    row.max_generated = std::min(request.max_tokens, max_positions + 1 - row.prompt_length);
    row.tokens = row.prompt_length;
    row.sampled_rows = row.SampledRows();
    row.work = WholeWork(row);
    row.priority = request.priority;
    row.queued = queued;
    row.deadline = request.deadline;
    if (row.max_generated > 1) {
      const auto prompt = request.tokens.begin() + offset;
      row.history.reserve(static_cast<size_t>(row.prompt_length + row.max_generated - 1));
      row.history.assign(prompt, prompt + row.prompt_length);
    }
    offset += row.prompt_length;
  }
  const size_t steps = rows.size() * static_cast<size_t>(std::max(request.max_tokens, 1));
  history.steps.reserve(std::min(steps, RequestHistory::kSteps));
}

void ActiveRequest::AllocateReply() {
  if (std::exchange(reply_allocated, true)) return;
  const ModelConfig& config = request.model->config;
  reply.finish.assign(rows.size(), FinishReason::kNone);
  if (Wants(kOutputLogits)) {
    reply.logits.resize(rows.size() * static_cast<size_t>(config.vocab_size));
  }
  if (Wants(kOutputPromptLogprobs)) reply.prompt_logprobs.assign(request.tokens.size(), 0.0f);
  if (Wants(kOutputDiagnostics) && config.xsa.Any()) {
    const size_t per_token = static_cast<size_t>(config.layers * config.heads);
    reply.xsa_cos_sim.resize(request.tokens.size() * per_token);
    reply.xsa_proj_frac.resize(request.tokens.size() * per_token);
  }
}

Reply ActiveRequest::TakeReply() {
  for (Row& row : rows) {
    reply.top_ids.insert(reply.top_ids.end(), row.top_ids.begin(), row.top_ids.end());
    reply.top_logprobs.insert(reply.top_logprobs.end(), row.top_logprobs.begin(),
                              row.top_logprobs.end());
  }
  return std::move(reply);
}

int64_t ActiveRequest::bytes() const {
  size_t tokens = request.tokens.size() + request.lengths.size();
  for (const Row& row : rows) tokens += row.history.capacity();
  return static_cast<int64_t>(sizeof(ActiveRequest) + rows.size() * sizeof(Row) +
                              tokens * sizeof(int32_t));
}

int64_t QueuedTokens(const Request& request) {
  return static_cast<int64_t>(request.tokens.size()) +
         static_cast<int64_t>(request.rows()) * request.max_tokens;
}

}  // namespace sluice
