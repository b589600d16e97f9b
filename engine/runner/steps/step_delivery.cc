#include "engine/runner/steps/step_delivery.h"

#include "absl/status/statusor.h"
#include "base/fault_injection.h"
#include "base/out_of_memory.h"

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
  const auto collect = [&]() -> absl::StatusOr<ExecutionSlot::Result> { return slot->Collect(i); };
  const absl::StatusOr<ExecutionSlot::Result> collected = OrOutOfMemory(collect);
  if (!collected.ok()) return RowOutcome::kNoMemory;
  const ExecutionSlot::Result& result = *collected;
  const bool injected = FaultsOn() && InjectNan(row->owner->request.spec->id);
  if (!result.finite || injected) return RowOutcome::kNotFinite;
  if (!result.at_end) return RowOutcome::kContinues;
  if (result.drawn.empty()) return Finish(row, FinishReason::kNone);
  const std::span<const int32_t> drafts = row->drafted_tokens();
  const auto drafted = static_cast<int32_t>(result.drawn.size()) - 1;
  RowOutcome outcome = RowOutcome::kContinues;
  int32_t accepted = 0;
  for (bool equal = true; equal && accepted <= drafted; ++accepted) {
    const kernels::SampleResult& drawn = result.drawn[accepted];
    if (accepted < std::ssize(drafts)) row->LearnDraft(drawn.token == drafts[accepted]);
    equal = accepted < drafted && drawn.token == drafts[accepted];
    outcome = CollectDraw(row, accepted, drawn);
    equal &= outcome == RowOutcome::kContinues;
  }
  --accepted;  // the last draw is not a drafted token
  row->rejected = drafted - accepted;
  row->owner->trace.drafted_tokens += drafted;
  row->owner->trace.accepted_tokens += accepted;
  row->owner->trace.draft_kind = row->draft_kind;
  if (outcome == RowOutcome::kContinues) row->Draft();
  return outcome;
}

RowOutcome StepDelivery::CollectDraw(RequestRow* row, int32_t draw,
                                     const kernels::SampleResult& drawn) {
  const int32_t token = drawn.token;
  if (token < 0) return RowOutcome::kNotFinite;
  if (Ends(*row->owner->request.spec, token)) return Finish(row, FinishReason::kStop);
  const RequestRow::Candidates& candidates = row->outputs.candidates;
  const int64_t begin = int64_t{draw} * candidates.pool;
  const bool wanted = !candidates.ids.empty();
  const bool scores = wanted && row->owner->Wants(kOutputTopScores);
  tokens_.push_back({.row = row->index,
                     .index = row->generation.count,
                     .token = token,
                     .logprob = drawn.logprob,
                     .top_ids = wanted ? candidates.ids.data() + begin : nullptr,
                     .top_logprobs = wanted ? candidates.logprobs.data() + begin : nullptr,
                     .top_scores = scores ? candidates.scores.data() + begin : nullptr});
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
