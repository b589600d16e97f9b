// When memory or threads run out, the operation that needs them fails, and the process continues.
//
//   return OrOutOfMemory([&] { return ReadEverything(); });
//
// The exceptions std::bad_alloc and, for a thread that cannot be started, std::system_error pass
// through code in which objects own all resources. They become errors at the end of an operation
// that can fail as a whole. Elsewhere they end the process.
#pragma once

#include <new>
#include <system_error>
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

inline absl::Status OutOfThreadsError() {
  return ReasonError(Reason::kMemory,
                     "no more threads can be started (pids.max of the container or ulimit -u): "
                     "raise the limit or lower cpu.threads");
}

// Calls `run`. Returns its Status or StatusOr, OutOfMemoryError if it throws bad_alloc, or
// OutOfThreadsError if it cannot start a thread.
template <typename Run>
std::invoke_result_t<Run&> OrOutOfMemory(Run run) {
  const absl::Status& error = OutOfMemoryError();
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return error;
  } catch (const std::system_error& thrown) {
    if (thrown.code() != std::errc::resource_unavailable_try_again) throw;
    return OutOfThreadsError();
  }
}

}  // namespace sluice
