#include "engine/runner/steps/step_delivery.h"

#include "base/fault_injection.h"

namespace sluice {
namespace {

RowOutcome Finish(RequestRow* row, FinishReason reason) {
  row->owner->reply.finish[row->index] = reason;
  return RowOutcome::kFinished;
}

// Returns whether a text that ends the row is complete with this token.
bool EndsText(RequestRow* row, int32_t token, std::string* text) {
  if (row->generation.text == nullptr) return false;
  text->clear();
  row->generation.text->Append(token, text);
  return row->generation.text->stopped();
}

}  // namespace

StepDelivery::StepDelivery(size_t max_rows) {
  tokens_.reserve(max_rows);
  parts_.reserve(max_rows);
}

RowOutcome StepDelivery::CollectRow(size_t i, RequestRow* row, ExecutionSlot* slot) {
  const ExecutionSlot::Result result = slot->Collect(i);
  const bool injected = FaultsOn() && InjectNan(row->owner->request.spec->id);
  if (!result.finite || injected) return RowOutcome::kNotFinite;
  if (!result.at_end) return RowOutcome::kContinues;
  if (result.drawn == nullptr) return Finish(row, FinishReason::kNone);
  const int32_t token = result.drawn->token;
  if (Ends(*row->owner->request.spec, token)) return Finish(row, FinishReason::kStop);
  const bool candidates = !row->outputs.candidates.ids.empty();
  const bool scores = candidates && row->owner->Wants(kOutputTopScores);
  tokens_.push_back({.row = row->index,
                     .index = row->generation.count,
                     .token = token,
                     .logprob = result.drawn->logprob,
                     .top_ids = candidates ? row->outputs.candidates.ids.data() : nullptr,
                     .top_logprobs = candidates ? row->outputs.candidates.logprobs.data() : nullptr,
                     .top_scores = scores ? row->outputs.candidates.scores.data() : nullptr});
  const bool more = row->Keep(token);
  if (EndsText(row, token, &text_)) return Finish(row, FinishReason::kStop);
  return more ? RowOutcome::kContinues : Finish(row, FinishReason::kLength);
}

void StepDelivery::Collect(std::span<RequestRow* const> rows, std::span<RowOutcome> outcomes,
                           MonoTime now, ExecutionSlot* slot) {
  tokens_.clear();
  parts_.clear();
  for (size_t i = 0; i < rows.size();) {
    ActiveRequest* const request = rows[i]->owner;
    const int64_t before = std::ssize(tokens_);
    for (; i < rows.size() && rows[i]->owner == request; ++i) {
      if (outcomes[i] != RowOutcome::kDropped) outcomes[i] = CollectRow(i, rows[i], slot);
    }
    const int64_t count = std::ssize(tokens_) - before;
    if (count == 0) continue;
    parts_.push_back({request, count});
    RequestTrace& trace = request->trace;
    if (trace.generated_tokens == 0) trace.first_token = now;
    trace.generated_tokens += count;
  }
}

void StepDelivery::Send() {
  const GeneratedToken* tokens = tokens_.data();
  for (const RequestTokens& part : parts_) {
    if ((part.request->request.outputs & (kOutputTokens | kOutputTopCandidates)) != 0) {
      part.request->sink->OnTokens(tokens, part.count);
    }
    tokens += part.count;
  }
}

}  // namespace sluice
