// Records the calls of an engine from the callers' side, and checks the guarantees for each call.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/request.h"

namespace sluice {

// A call and its results. Times are of the engine's clock.
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
  bool out_of_order = false;                 // a token had an unexpected index
  int64_t after_end = 0;                     // tokens after the end
};

// The events of the engine during a history. They determine how its calls may end.
struct Circumstances {
  bool overload = false;  // the queue may be full
  bool drain = false;     // admission ended; admitted requests may finish
  bool kill = false;      // the engine ended without time to finish
  bool faults = false;    // steps failed
  bool exchange = false;  // models were replaced, so a snapshot may no longer be served
  // No call without a deadline waits longer; see MostWait.
  std::optional<nanoseconds> most_wait{};
};

// Returns the time that the calls need if nothing is computed together and each step takes `step`.
// An engine that never idles while a request waits ends every call within this time.
nanoseconds MostWait(const std::vector<RecordedCall>& calls, nanoseconds step);

// Returns a sentence for each violated guarantee. Each admitted call ends once, in time, and in a
// way that the circumstances allow. Its tokens are a prefix of the tokens that it has by itself,
// and all of them if it ends OK. No token comes after its end, or for a refused call.
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
