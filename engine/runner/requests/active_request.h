// An admitted request on its way through the engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "engine/journal/decision_history.h"
#include "engine/model/text_stream.h"
#include "engine/request.h"
#include "engine/rows/row_edits.h"
#include "engine/rows/row_states.h"
#include "engine/schedule/admission.h"
#include "engine/schedule/paged_scheduler.h"

namespace sluice {

struct ActiveRequest;

// Returns how far back the attention of a model reads.
AttentionReach ReachOf(const ModelConfig& config);

// A row of a request: its part of the prompt, the tokens that it generates and its results. It is
// the sequence that the scheduler knows. state() is guarded by the runner's lock. While a step
// carries the row, the other fields belong to the scheduling thread, otherwise to the holder of the
// lock. Each group of fields has one writer.
struct RequestRow : PagedSequence {
  struct Prompt {
    int32_t offset = 0;  // into the request's tokens
    int32_t length = 0;
  };
  struct Generation {
    int32_t count = 0;  // tokens drawn and kept so far
    int32_t limit = 0;  // max_tokens, or fewer if the model's positions end before
    // Prompt and generated tokens; empty if the row only computes its prompt.
    std::vector<int32_t> tokens;
    std::unique_ptr<RowEdits> edits;   // nullptr if there are none
    std::unique_ptr<TextStream> text;  // nullptr if no text ends the row
  };
  // The candidates of the latest step, [num_top] of [pool] each; empty if they are not wanted.
  struct Candidates {
    int32_t pool = 0;  // num_top, or more if diverse ones are chosen among them
    std::vector<int32_t> ids;
    std::vector<float> logprobs;
    std::vector<float> scores;
    std::vector<double> scratch;  // of that choice
  };
  struct Outputs {
    int32_t draw = 0;  // the index of its draw among the sampled rows of its latest step
    Candidates candidates;
    std::unique_ptr<RowStates> states;  // nullptr if no state is wanted
    // The largest logit of each token over the prompt's positions; empty if not wanted.
    std::vector<float> peaks;
    // Its diagnostics in the reply: they begin after this many positions of earlier rows, and
    // `diagnosed` positions are there.
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
  Outputs outputs;        // written by ExecutionSlot, `states` also by CandidateScorer
  Account account;        // written by RequestTable

  // The tokens, including one that the step in progress draws. Likewise `drawn`.
  int32_t length() const { return static_cast<int32_t>(std::ssize(history)) + drawing; }
  int32_t drawn() const { return generation.count + drawing; }
  // The end of the positions that the next or current step computes.
  int32_t step_end() const { return first_position + tokens; }
  // The most positions that are computed: the last token is not computed.
  int32_t MaxPositions() const { return prompt.length + std::max(generation.limit - 1, 0); }

  // Appends a drawn token; allocates nothing. Returns false if the row may have no more tokens.
  bool Keep(int32_t token);
};

// Returns the row that is this sequence. Requires that the sequence belongs to a request.
inline RequestRow* RowOf(WaitingSequence* sequence) { return static_cast<RequestRow*>(sequence); }

struct ActiveRequest {
  // `received` and `queued` start the trace.
  ActiveRequest(Request request, std::shared_ptr<Sink> sink, MonoTime received, MonoTime queued);
  ActiveRequest(const ActiveRequest&) = delete;  // rows point to it
  ActiveRequest& operator=(const ActiveRequest&) = delete;

  bool Wants(OutputMask output) const { return (request.outputs & output) != 0; }
  // Returns the number of first tokens that all rows share, if so many are worth a step of their
  // own: at least half of the prompts' tokens need then not be computed, and they fill a page of
  // `page_tokens`. Else returns 0.
  int32_t SharedTokens(int32_t page_tokens) const;
  // Makes its prompts reuse pages of its own caller alone, and of none if that is anonymous.
  void KeepPrefixesPrivate();
  // Allocates the parts of the reply whose sizes do not depend on what is generated; once.
  void AllocateReply();
  // Cuts the diagnostics to the positions that were computed, once nothing more is computed.
  void CompleteReply();

  RequestId id = 0;
  const Request request;
  const RequestLoad load;
  std::shared_ptr<Sink> sink;

  // Guarded by the runner's lock.
  absl::Status status;  // the first failure, cancellation or expiry
  // The rows that are not kDone, and those whose candidates are being scored.
  int32_t parts_left = 0;
  bool began = false;      // whether a step has carried one of its rows
  int32_t held_until = 0;  // the tokens that the first row computes while the others are kHeld
  nanoseconds needed{0};   // the forecast of AdmissionControl::Reserve

  // Used by the scheduling thread.
  std::vector<RequestRow> rows;
  Reply reply;
  bool reply_allocated = false;
  RequestTrace trace;
  RequestHistory history;
  const std::shared_ptr<const RequestName> name;  // nullptr without an id

 private:
  void PrepareGeneration(RequestRow* row);

  std::shared_ptr<const StopTexts> stop_texts_;  // nullptr if there are none
};

// Returns the load that QueueOptions bounds. Its bytes are those of the request and of all that is
// kept for it until it has ended, reply and generated tokens included, at their maximum; overhead
// of the allocator is left out.
RequestLoad LoadOf(const Request& request);

}  // namespace sluice
