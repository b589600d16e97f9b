// Records the calls of an engine as their callers see them, and checks what it promises of each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/request.h"

namespace sluice {

// A call, and all that came of it. Times are of the engine's clock.
struct RecordedCall {
  std::vector<std::vector<int32_t>> rows;
  int32_t max_tokens = 0;
  int64_t vocab = 0;  // of the model that served it
  MonoTime submitted{};
  MonoTime deadline = MonoTime::max();
  bool cancelled = false;
  absl::Status refused;  // the error of Submit
  MonoTime refused_at{};

  struct End {
    absl::Status status;
    MonoTime at;
  };
  std::vector<End> ends;
  std::vector<std::vector<int32_t>> tokens;  // by row
  bool out_of_order = false;                 // a token had another index than the next one
  int64_t after_end = 0;                     // tokens that came later than the end
};

// What happened to the engine during a history, which says how its calls may end.
struct Circumstances {
  bool overload = false;  // the queue may be full
  bool drain = false;     // admission ended; what was admitted may finish
  bool kill = false;      // the engine ended without time to finish
  bool faults = false;    // steps failed
  bool exchange = false;  // models were replaced, so that a snapshot may no longer be served
  // No call without a deadline waits longer; see MostWait.
  std::optional<nanoseconds> most_wait{};
};

// Returns the time that the calls need if nothing is ever computed together, each step alone and
// `step` long. An engine that never rests while something waits ends every call within it.
nanoseconds MostWait(const std::vector<RecordedCall>& calls, nanoseconds step);

// Returns a sentence for each promise that a history breaks: each admitted call ends once, within
// its time, in a way that the circumstances allow; its tokens are the first of those that it has
// alone, all of them if it ends OK; nothing comes after its end, or of a call that was refused.
std::vector<std::string> Violations(const std::vector<RecordedCall>& calls,
                                    const Circumstances& circumstances);

// The sink of a call. Thread-safe.
class HistorySink : public Sink {
 public:
  // `clock` outlives the sink.
  HistorySink(RecordedCall call, const Clock* clock);

  void OnTokens(const GeneratedToken* tokens, int count) override;
  void OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) override;

  void Refuse(const absl::Status& status);
  void NoteCancel();
  void AwaitDone() const;
  RecordedCall call() const;

 private:
  const Clock* const clock_;
  mutable Mutex mu_;
  mutable CondVar done_;
  RecordedCall call_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice
