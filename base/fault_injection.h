// Faults that tests inject into the daemon at named points of a request's life.
//
// The points are always compiled in, so the tested binary is the deployed one. At its start the
// daemon calls SetFaults once with the environment variable SLUICE_TEST_FAULTS. While no fault is
// set, a point costs one relaxed load.
//
// The text is a list of faults separated by ';', each of the form
//     POINT[@ID]:ACTION[*COUNT]
//   POINT   admit          Submit was called
//           queue          the budget admitted the request, which is not queued yet
//           before_replay  a step was decided (no lock is held at this and the next two points)
//           replay         takes the place of the replay
//           deliver        the replay has ended
//           load           a model is about to be packed
//           allocate       the memory of a model's steps is about to be taken
//           accept         a gRPC connection is about to be accepted; fail acts as an I/O error
//   ID      restricts the fault to the request with this id, or to a step that carries it; not
//           allowed at the last three points
//   ACTION  delay=MS       continues after this many milliseconds
//           fail=CODE      resource_exhausted, internal or unavailable; not at deliver
//           hang           waits for ever, or until the faults are changed
//           until=FILE     makes FILE.met, continues once FILE exists; the name has no ; and no *
//           nan            at deliver only: a row's logits count as not finite
//           illegal_access at before_replay only: the step gets a token that no table has, so that
//                          a GPU accesses memory that does not exist; not for the CPU, where the
//                          daemon crashes
//   COUNT   the number of times that the fault is used, from the first time on; default: no limit
// At each point the daemon uses the first fault of the list that applies and is not used up.
#pragma once

#include <atomic>
#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "base/enum_names.h"

namespace sluice {

// The points from kLoad on concern no request.
enum class FaultPoint {
  kAdmit,
  kQueue,
  kBeforeReplay,
  kReplay,
  kDeliver,
  kLoad,
  kAllocate,
  kAccept
};

constexpr auto EnumNamesOf(FaultPoint) {
  using enum FaultPoint;
  return EnumNameTable<FaultPoint>({{kAdmit, "admit"},
                                    {kQueue, "queue"},
                                    {kBeforeReplay, "before_replay"},
                                    {kReplay, "replay"},
                                    {kDeliver, "deliver"},
                                    {kLoad, "load"},
                                    {kAllocate, "allocate"},
                                    {kAccept, "accept"}});
}

// The name of the environment variable.
inline constexpr char kFaultsVariable[] = "SLUICE_TEST_FAULTS";

// Replaces all faults and releases the threads that hang in one. An empty text means no faults.
// Returns InvalidArgument that names the faulty part; nothing is changed then.
absl::Status SetFaults(std::string_view text);

namespace fault_internal {
extern std::atomic<bool> on;
}

inline bool FaultsOn() { return fault_internal::on.load(std::memory_order_relaxed); }

// Returns whether the event at the point concerns the request with this id.
using Concerns = std::function<bool(std::string_view id)>;

// Performs the first fault that applies: delays, hangs or returns an error. Requires FaultsOn(),
// and that the caller holds no lock.
absl::Status InjectFault(FaultPoint point, const Concerns& concerns);
// Return whether a fault `nan` applies at deliver, or `illegal_access` at before_replay. The
// requirements are the same.
bool InjectNan(std::string_view id);
bool InjectIllegalAccess(const Concerns& concerns);

}  // namespace sluice
