// How a call ended, as a user of the service sees it.
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

// All but kOk miss the objective, whatever it is.
enum class Outcome : uint8_t {
  kOk,
  kRejected,    // RESOURCE_EXHAUSTED: the server said at once that it has too much to do
  kDeadline,    // the user's deadline passed before the answer was there
  kError,       // any other status
  kWrong,       // answered, but not as the same request was answered before
  kUnfinished,  // no end within the drain time after the last arrival
  kNotSent,     // held back as too many calls were in flight
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

// A call's life, from the start of the phase.
struct CallRecord {
  nanoseconds scheduled{0};  // closed loop: as sent
  nanoseconds sent{0};       // when the client got round to it
  nanoseconds first{0};      // streaming: the first part of the answer
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

// Decides the outcome of answers. Thread-safe.
class Judge {
 public:
  // `deadline` from the scheduled time, 0: none. `answers` may be null: they are not looked at.
  Judge(nanoseconds deadline, AnswerBook* answers) : deadline_(deadline), answers_(answers) {}

  // `record.scheduled` and `record.done` are set.
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
