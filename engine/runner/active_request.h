// An admitted request on its way through the engine.
#pragma once

#include <cstdint>
#include <memory>
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

// One row of a request. `state` is guarded by the runner's lock; while that is kRunning the other
// fields belong to the scheduling thread, otherwise to the holder of the lock.
struct Row : PagedSequence {
  enum class State { kWaiting, kRunning, kDone };
  // What the step that it ran in made of it.
  enum class Outcome { kDropped, kContinues, kFinished, kNotFinite };

  ActiveRequest* owner = nullptr;
  int32_t index = 0;          // within the request
  int32_t prompt_offset = 0;  // into the request's tokens
  int32_t prompt_length = 0;
  int32_t generated = 0;      // tokens drawn and kept so far
  int32_t max_generated = 0;  // max_tokens, or fewer where the model's positions end
  State state = State::kWaiting;
  Outcome outcome = Outcome::kDropped;
  int64_t work = 0;  // tokens that its steps may still compute
  // Prompt and generated tokens, which `history` shows; empty when the prompt alone is ever computed.
  std::vector<int32_t> own_tokens;
  std::unique_ptr<RowEdits> edits;    // nullptr: none
  std::unique_ptr<RowStates> states;  // nullptr: no state is wanted
  std::unique_ptr<TextStream> text;   // nullptr: no text ends it
  std::vector<int32_t> top_ids;       // [num_top] of the step
  std::vector<float> top_logprobs;    // likewise
  std::vector<float> top_scores;      // likewise, where wanted

  int32_t length() const { return static_cast<int32_t>(history.size()); }
  int32_t step_end() const { return first_position + tokens; }  // position behind the step
  // Keeps a drawn token; allocates nothing. False when it was the last one that the row may have.
  bool Keep(int32_t token);
};

struct ActiveRequest {
  // `received` and `queued` start the trace.
  ActiveRequest(Request request, std::shared_ptr<Sink> sink, MonoTime received, MonoTime queued);
  ActiveRequest(const ActiveRequest&) = delete;  // rows point to it
  ActiveRequest& operator=(const ActiveRequest&) = delete;

  bool Wants(OutputMask output) const { return (request.outputs & output) != 0; }
  // Sizes the parts of the reply that do not depend on what is generated; once.
  void AllocateReply();

  RequestId id = 0;
  const Request request;
  const RequestLoad load;
  std::shared_ptr<Sink> sink;

  // Guarded by the runner's lock.
  absl::Status status;    // the first failure, cancellation or expiry
  int32_t rows_left = 0;  // not kDone
  bool began = false;     // a step carried one of its rows
  nanoseconds needed{
      0};  // that it was thought to need when its deadline was near; zero: it was not

  // Of the scheduling thread.
  std::vector<Row> rows;
  Reply reply;
  bool reply_allocated = false;
  RequestTrace trace;
  RequestHistory history;

 private:
  void PrepareGeneration(Row* row);

  std::shared_ptr<const StopTexts> stop_texts_;  // nullptr: none
};

// What QueueOptions bounds. Its bytes are those of the request and of all that is kept for it until it
// has ended, reply and generated tokens included, at their most; what depends on the allocator is left
// out.
RequestLoad LoadOf(const Request& request);

}  // namespace sluice
