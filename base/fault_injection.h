// Faults that tests have the daemon commit at named points of a request's life.
//
// They are compiled in, so that what is tested is what is served, and switched on by SetFaults alone,
// which the daemon calls once, at start, with the environment variable SLUICE_TEST_FAULTS. While they
// are off a point costs one relaxed load.
//
// The text is a list of faults separated by ';', each
//     POINT[@ID]:ACTION[*COUNT]
//   POINT   admit          Submit was called
//           queue          admitted by the budget, not yet queued
//           before_replay  a step was decided (no lock is held, here and at the next two)
//           replay         in place of the replay
//           deliver        the replay has ended
//           load           a model is to be packed
//           allocate       the memory of its steps is to be taken
//           accept         a gRPC connection is to be accepted; fail: as an I/O error would
//   ID      only for the request with this id, or a step that carries it; not at the last three
//   ACTION  delay=MS       goes on after so many milliseconds
//           fail=CODE      resource_exhausted, internal or unavailable; not at deliver
//           hang           for ever, or until the faults are changed
//           until=FILE     makes FILE.met, and goes on once FILE exists; a name without ; and *
//           nan            deliver only: a row's logits count as not finite
//   COUNT   how often, from the first time on; without: always
// Each point meets the first fault of the list that applies and is not used up.
#pragma once

#include <atomic>
#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "base/enum_names.h"

namespace sluice {

// From kLoad on no request is concerned.
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

// Replaces all faults, and lets those go who hang. Empty: none. InvalidArgument names the fault that is
// wrong; nothing is changed then.
absl::Status SetFaults(std::string_view text);

namespace fault_internal {
extern std::atomic<bool> on;
}

inline bool FaultsOn() { return fault_internal::on.load(std::memory_order_relaxed); }

// Whether something that happens at the point concerns the request with this id.
using Concerns = std::function<bool(std::string_view id)>;

// Delays, hangs or fails. To be called where FaultsOn() only, and without a lock.
absl::Status InjectFault(FaultPoint point, const Concerns& concerns);
// Does the point's `nan` strike? Likewise.
bool InjectNan(FaultPoint point, std::string_view id);

}  // namespace sluice
