#include "engine/delivery.h"

#include <algorithm>

namespace sluice {
namespace {

bool IsEos(const ModelConfig& config, int32_t token) {
  const auto& ids = config.eos_token_ids;
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

void Finish(Row* row, FinishReason reason) {
  row->outcome = Row::Outcome::kFinished;
  row->owner->reply.finish[static_cast<size_t>(row->index)] = reason;
}

// An eos is not returned, nor are the candidates it was drawn from.
void Stop(Row* row) {
  const auto kept = static_cast<size_t>(row->generated) * row->owner->request.num_top;
  row->top_ids.resize(std::min(row->top_ids.size(), kept));
  row->top_logprobs.resize(row->top_ids.size());
  Finish(row, FinishReason::kStop);
}

// Decides the row's outcome and appends the token that it keeps.
void CollectRow(size_t i, Row* row, ExecutionSlot* slot, std::vector<GeneratedToken>* tokens) {
  const ExecutionSlot::Result result = slot->Collect(i);
  if (!result.finite) {
    row->outcome = Row::Outcome::kNotFinite;
    return;
  }
  if (result.drawn == nullptr) {
    Finish(row, FinishReason::kNone);
    return;
  }
  const int32_t token = result.drawn->token;
  if (IsEos(row->owner->request.model->config, token)) {
    Stop(row);
    return;
  }
  tokens->push_back({.row = row->index,
                     .index = row->generated,
                     .token = token,
                     .logprob = result.drawn->logprob});
  row->outcome = Row::Outcome::kContinues;
  if (!row->Keep(token)) Finish(row, FinishReason::kLength);
}

}  // namespace

void DeliverStep(std::span<Row* const> rows, MonoTime now, ExecutionSlot* slot,
                 std::vector<GeneratedToken>* scratch) {
  for (size_t i = 0; i < rows.size();) {
    ActiveRequest* const request = rows[i]->owner;
    scratch->clear();
    for (; i < rows.size() && rows[i]->owner == request; ++i) {
      if (rows[i]->outcome != Row::Outcome::kDropped) CollectRow(i, rows[i], slot, scratch);
    }
    if (scratch->empty()) continue;
    RequestTrace& trace = request->trace;
    if (trace.generated_tokens == 0) trace.first_token = now;
    trace.generated_tokens += static_cast<int64_t>(scratch->size());
    if (request->Wants(kOutputTokens)) {
      request->sink->OnTokens(scratch->data(), static_cast<int>(scratch->size()));
    }
  }
}

}  // namespace sluice
