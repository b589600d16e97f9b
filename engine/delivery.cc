#include "engine/delivery.h"

#include "engine/fault.h"

namespace sluice {
namespace {

void Finish(Row* row, FinishReason reason) {
  row->outcome = Row::Outcome::kFinished;
  row->owner->reply.finish[static_cast<size_t>(row->index)] = reason;
}

// Is a text that ends the row complete with this token?
bool EndsText(Row* row, int32_t token, std::string* text) {
  if (row->text == nullptr) return false;
  text->clear();
  row->text->Append(token, text);
  return row->text->stopped();
}

// Decides the row's outcome and appends the token that it keeps.
void CollectRow(size_t i, Row* row, ExecutionSlot* slot, DeliveryScratch* scratch) {
  const ExecutionSlot::Result result = slot->Collect(i);
  const bool spoiled = FaultsOn() && MeetNan(FaultPoint::kDeliver, row->owner->request.id);
  if (!result.finite || spoiled) {
    row->outcome = Row::Outcome::kNotFinite;
    return;
  }
  if (!result.at_end) {
    row->outcome = Row::Outcome::kContinues;
    return;
  }
  if (result.drawn == nullptr) return Finish(row, FinishReason::kNone);
  const int32_t token = result.drawn->token;
  if (Ends(row->owner->request, token)) return Finish(row, FinishReason::kStop);
  const bool candidates = !row->top_ids.empty();
  scratch->tokens.push_back(
      {.row = row->index,
       .index = row->generated,
       .token = token,
       .logprob = result.drawn->logprob,
       .top_ids = candidates ? row->top_ids.data() : nullptr,
       .top_logprobs = candidates ? row->top_logprobs.data() : nullptr,
       .top_scores = row->top_scores.empty() ? nullptr : row->top_scores.data()});
  row->outcome = Row::Outcome::kContinues;
  const bool more = row->Keep(token);
  if (EndsText(row, token, &scratch->text)) return Finish(row, FinishReason::kStop);
  if (!more) Finish(row, FinishReason::kLength);
}

}  // namespace

void DeliverStep(std::span<Row* const> rows, MonoTime now, ExecutionSlot* slot,
                 DeliveryScratch* scratch) {
  for (size_t i = 0; i < rows.size();) {
    ActiveRequest* const request = rows[i]->owner;
    std::vector<GeneratedToken>& tokens = scratch->tokens;
    tokens.clear();
    for (; i < rows.size() && rows[i]->owner == request; ++i) {
      if (rows[i]->outcome != Row::Outcome::kDropped) CollectRow(i, rows[i], slot, scratch);
    }
    if (tokens.empty()) continue;
    RequestTrace& trace = request->trace;
    if (trace.generated_tokens == 0) trace.first_token = now;
    trace.generated_tokens += static_cast<int64_t>(tokens.size());
    if ((request->request.outputs & (kOutputTokens | kOutputTopCandidates)) != 0) {
      request->sink->OnTokens(tokens.data(), static_cast<int>(tokens.size()));
    }
  }
}

}  // namespace sluice
