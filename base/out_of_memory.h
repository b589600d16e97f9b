// When memory runs out, the operation that needs it fails, and the process continues.
//
//   return OrOutOfMemory([&] { return ReadEverything(); });
//
// std::bad_alloc passes through code in which objects own all resources. It becomes an error at the
// end of an operation that can fail as a whole. Elsewhere it ends the process.
#pragma once

#include <new>
#include <type_traits>

#include "absl/status/status.h"
#include "base/reason.h"

namespace sluice {

// Returns the error of reason kMemory. The error is made once, because making it needs memory.
inline const absl::Status& OutOfMemoryError() {
  static const auto* const error =
      new absl::Status(ReasonError(Reason::kMemory, "the process has no memory left"));
  return *error;
}

// Calls `run`. Returns its Status or StatusOr, or OutOfMemoryError if it throws bad_alloc.
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
