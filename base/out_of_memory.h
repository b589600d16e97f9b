// Memory that runs out: the operation that needs it fails, and the process goes on.
//
//   return OrOutOfMemory([&] { return ReadEverything(); });
//
// std::bad_alloc passes through code that owns all it has by objects, and becomes an error where an
// operation ends that can fail as a whole. Elsewhere it ends the process.
#pragma once

#include <new>
#include <type_traits>

#include "absl/status/status.h"
#include "base/reason.h"

namespace sluice {

// Returns the error of reason kMemory. It is made once, since that needs memory.
inline const absl::Status& OutOfMemoryError() {
  static const auto* const error =
      new absl::Status(ReasonError(Reason::kMemory, "the process has no memory left"));
  return *error;
}

// Returns what `run` returns, a Status or StatusOr, or OutOfMemoryError if it throws bad_alloc.
template <typename Run>
std::invoke_result_t<Run&> OrOutOfMemory(Run run) {
  const absl::Status& error = OutOfMemoryError();
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return error;
  }
}

}  // namespace sluice
