// An admitted request during its processing by the engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "engine/journal/decision_history.h"
#include "engine/model/speculation.h"
#include "engine/model/text_stream.h"
#include "engine/request.h"
#include "engine/rows/max_sim_scores.h"
#include "engine/rows/row_edits.h"
#include "engine/rows/row_states.h"
#include "engine/runner/requests/adapter_table.h"
#include "engine/schedule/admission_control.h"
#include "engine/schedule/paged_scheduler.h"
#include "engine/step_batch.h"

namespace sluice {

struct ActiveRequest;

// Returns how far back the attention of a model reads.
AttentionReach ReachOf(const ModelConfig& config);

// A row of a request: its part of the prompt, its generated tokens and its results. The scheduler
// handles it as a sequence. state() is guarded by the runner's lock. While a step carries the row,
// the other fields belong to the scheduling thread, otherwise to the holder of the lock. Each group
// of fields has one writer.
struct RequestRow : PagedSequence {
  struct Prompt {
    int32_t offset = 0;  // into the request's tokens
    int32_t length = 0;
  };
  struct Generation {
    int32_t count = 0;  // tokens drawn and kept so far
    int32_t limit = 0;  // max_tokens, or fewer if the model has too few positions
    // Prompt and generated tokens, and the drafted tokens after them; empty if the row only
    // computes its prompt.
    std::vector<int32_t> tokens;
    std::unique_ptr<RowEdits> edits;   // may be nullptr
    std::unique_ptr<TextStream> text;  // nullptr if no text ends the row
  };
  struct Drafting {
    std::unique_ptr<DraftSource> source;  // nullptr if no tokens are drafted, or by a model
    int32_t most = 0;                     // drafted tokens of a step
  };
  // The candidates of the latest step: for each draw, [num_top] of [pool]; empty if not requested.
  struct Candidates {
    int32_t pool = 0;  // num_top, or more if diverse candidates are chosen
    std::vector<int32_t> ids;
    std::vector<float> logprobs;
    std::vector<float> scores;
    std::vector<double> scratch;  // for the choice of diverse candidates
  };
  struct Outputs {
    int32_t draw = 0;  // index of its draw among the sampled rows of its latest step
    Candidates candidates;
    std::unique_ptr<RowStates> states;  // nullptr if no result needs states
    // The largest logit of each token over the prompt's positions; empty if not needed.
    std::vector<float> peaks;
    // The place of its diagnostics in the reply: they begin after this many positions of earlier
    // rows, and `diagnosed` positions have been written.
    int64_t diagnostics_begin = 0;
    int32_t diagnosed = 0;
  };
  struct Account {
    int64_t remaining_tokens = 0;  // the most tokens that its steps may still compute
    bool scoring = false;          // whether its candidates were handed to the scorer
  };

  ActiveRequest* owner = nullptr;
  int32_t index = 0;  // within the request
  Prompt prompt;
  Generation generation;  // written by StepDelivery
  Drafting drafting;
  Outputs outputs;  // written by ExecutionSlot, `states` also by CandidateScorer
  Account account;  // written by RequestTable

  // The number of tokens, including a token that the step in progress draws. `drawn` also counts
  // it.
  int32_t length() const { return static_cast<int32_t>(std::ssize(history)) + drawing; }
  int32_t drawn() const { return generation.count + drawing; }
  // The end of the positions that the next or current step computes.
  int32_t step_end() const { return first_position + tokens; }
  // The maximum number of computed positions: the last token is not computed.
  int32_t MaxPositions() const { return prompt.length + std::max(generation.limit - 1, 0); }

  // The drafted tokens that may follow its history. A draft model writes only those of a step that
  // is to compute them.
  std::span<const int32_t> drafted_tokens() const {
    return std::span(generation.tokens)
        .subspan(generation.tokens.empty() ? 0 : history.size(),
                 draft_kind == DraftKind::kModel ? drafted : drafts);
  }

  // Appends a drawn token without allocating. Returns false if the row may have no more tokens.
  // Leaves the drafted tokens after that token as they are.
  bool Keep(int32_t token);
  // Learns whether a drafted token was drawn after the drafted tokens before it.
  void LearnDraft(bool accepted);
  // Drafts the tokens that may follow its history, or leaves room for those of a draft model.
  void Draft();
  // Returns the draw of the token after its first `after` drafted tokens, without the place of the
  // draw and without candidates. Valid until the next Keep, and the next call with this number.
  SampledRow DrawAfter(int32_t after);
};

// Returns the row that is this sequence. Requires that the sequence belongs to a request.
inline RequestRow* RowOf(WaitingSequence* sequence) { return static_cast<RequestRow*>(sequence); }

struct ActiveRequest {
  // `received` and `queued` start the trace.
  ActiveRequest(Request request, std::shared_ptr<Sink> sink, MonoTime received, MonoTime queued);
  ActiveRequest(const ActiveRequest&) = delete;  // rows point to it
  ActiveRequest& operator=(const ActiveRequest&) = delete;

  bool Wants(OutputMask output) const { return (request.outputs & output) != 0; }
  // Returns the number of leading tokens that all rows share, if a separate step for them is
  // worthwhile: it must save at least half of the prompts' tokens or 256 tokens, and the shared
  // tokens must fill a page of `page_tokens`. Otherwise returns 0.
  int32_t SharedTokens(int32_t page_tokens) const;
  // Makes its prompts reuse only pages of requests with the same number (caller_numbers.h), and no
  // pages without `reuse`. Called at most once.
  void SeparatePrefixes(uint64_t number, bool reuse);
  // Sets the adapter. Requires that adapter->Matches(*request.spec). Called at most once.
  void UseAdapter(std::shared_ptr<const ServedAdapter> loaded);
  // Allocates the parts of the reply whose sizes do not depend on the generated tokens. Called
  // once.
  void AllocateReply();
  // Makes the reply of a request for which NeedsNoStep is true.
  void AnswerWithoutStep();
  // Cuts the diagnostics to the computed positions. Called once nothing more is computed.
  void CompleteReply();

  RequestId id = 0;
  const Request request;
  const RequestLoad load;
  std::shared_ptr<Sink> sink;
  std::optional<MaxSimScores> max_sim;  // if requested; used by the scheduling thread

  // Guarded by the runner's lock.
  absl::Status status;  // the first failure, cancellation or expiry
  // The number of rows that are not kDone, plus rows whose candidates are being scored.
  int32_t parts_left = 0;
  bool began = false;      // whether a step has carried any of its rows
  int32_t held_until = 0;  // tokens that the first row computes while other rows are kHeld
  std::shared_ptr<const ServedAdapter> adapter;  // nullptr: the base model, or not loaded yet
  bool awaits_adapter = false;                   // its rows are kHeld until it has its adapter
  Admission admission;                           // how it was admitted

  // Used by the scheduling thread.
  std::vector<RequestRow> rows;
  Reply reply;
  bool reply_allocated = false;
  // The vectors of its extraction's labels, [labels, width], if the model has an encoder of labels;
  // empty before the first step.
  std::vector<float> label_vectors;
  RequestTrace trace;
  RequestHistory history;
  const std::shared_ptr<const RequestName> name;  // nullptr if there is no id

 private:
  void PrepareGeneration(RequestRow* row);

  std::shared_ptr<const StopTexts> stop_texts_;  // nullptr if there are none
};

// Returns a refusal if the request itself requires one: a row has more tokens than the model has
// positions, or the deadline has passed. If `only_length` is not 0, every row must have this
// length.
absl::Status ExamineRequest(const Request& request, int64_t max_positions, MonoTime now,
                            int64_t only_length = 0);

// Returns the number of an owner (Request::turn_owner) for the scheduler; 0 if it is empty.
uint32_t OwnerKey(std::string_view owner);

// Returns the properties that decide on the request's admission.
Applicant ApplicantOf(const Request& request);

// Returns the load that QueueOptions limits. Its bytes are the maximum memory of the request and of
// everything kept for it until it ends, including reply and generated tokens, without the
// allocator's overhead.
RequestLoad LoadOf(const Request& request);

}  // namespace sluice
