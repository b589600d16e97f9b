// Repeats the runs of a journal with separate schedulers and checks that they make the same
// decisions.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/journal/journal_reader.h"

namespace sluice {

struct JournalReplay {
  int64_t runs = 0;
  int64_t decisions = 0;
  int64_t batches = 0;
  int64_t arrivals = 0;
};

// Reads `journal` to its end. Errors name the line. Returns the reader's errors, InvalidArgument
// for an operation that is impossible in a real run, DataLoss if lines were dropped, and
// FailedPrecondition if the scheduler's decision differs from the recorded one.
absl::StatusOr<JournalReplay> ReplayJournal(JournalReader* journal);

}  // namespace sluice
