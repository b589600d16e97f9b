// The outcome of a call, as a user of the service experiences it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/enum_names.h"
#include "base/mutex.h"
#include "loadtest/load/answers.h"
#include "loadtest/load/transport.h"

namespace sluice::load {

// All outcomes except kOk miss the objective, whether it is short or long.
enum class Outcome : uint8_t {
  kOk,
  kRejected,    // RESOURCE_EXHAUSTED: the server refused at once for overload
  kDeadline,    // the user's deadline passed before the answer came
  kError,       // any other status
  kWrong,       // the same request was answered differently before
  kUnfinished,  // did not end within the drain time after the last arrival
  kNotSent,     // not sent because too many calls were in flight
};
constexpr auto EnumNamesOf(Outcome) {
  using enum Outcome;
  return EnumNameTable<Outcome>({{kOk, "ok"},
                                 {kRejected, "rejected"},
                                 {kDeadline, "deadline"},
                                 {kError, "error"},
                                 {kWrong, "wrong"},
                                 {kUnfinished, "unfinished"},
                                 {kNotSent, "not_sent"}});
}
inline constexpr int kOutcomes = CountEnumerators<Outcome>();

// The times of a call, counted from the start of the phase.
struct CallRecord {
  nanoseconds scheduled{0};  // in a closed loop, equal to `sent`
  nanoseconds sent{0};       // when the client sent it
  nanoseconds first{0};      // the first part of a streamed answer
  nanoseconds done{0};
  uint32_t payload = 0;
  int32_t tokens = 0;
  Outcome outcome = Outcome::kUnfinished;
};

struct ErrorSample {
  int64_t count = 0;
  std::string first_message;
};
using Errors = std::map<int, ErrorSample>;  // by gRPC status code

// Decides the outcome of answers. It is thread-safe.
class Judge {
 public:
  // `deadline` counts from the scheduled time; 0 means none. With null `answers`, the contents of
  // answers are not checked.
  Judge(nanoseconds deadline, AnswerBook* answers) : deadline_(deadline), answers_(answers) {}

  // Requires that `record.scheduled` and `record.done` are set.
  Outcome Decide(const CallRecord& record, const Answer& answer);

  Errors errors() const;

 private:
  Outcome OfError(const Answer& answer);
  bool Agrees(const CallRecord& record, const Answer& answer);

  const nanoseconds deadline_;
  AnswerBook* const answers_;
  mutable Mutex mu_;  // taken for errors only
  Errors errors_ ABSL_GUARDED_BY(mu_);
};

}  // namespace sluice::load
