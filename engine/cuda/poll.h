// Busy waiting for a short time.
#pragma once

#include "base/clock.h"

namespace sluice {

// Calls `done` until it returns true or `limit` has passed on the clock of `now`, which returns a
// MonoTime. Returns whether it did; without calling it if `limit` is 0.
template <typename Done, typename Now>
bool PollFor(nanoseconds limit, Done done, Now now) {
  if (limit <= nanoseconds(0)) return false;
  const MonoTime end = now() + limit;
  do {
    if (done()) return true;
  } while (now() < end);
  return false;
}

}  // namespace sluice
