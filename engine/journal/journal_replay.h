// Repeats the runs of a journal with schedulers of its own, to check that they decide the same.
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

// Reads `journal` to its end. Errors name the line: those of the reader, InvalidArgument for an
// operation that no scheduler could have seen, DataLoss if lines were dropped, FailedPrecondition
// if the scheduler decides otherwise than the journal says.
absl::StatusOr<JournalReplay> ReplayJournal(JournalReader* journal);

}  // namespace sluice
