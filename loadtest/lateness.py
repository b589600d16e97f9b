"""Computes from the calls of a steady load for how long an event made calls late or fail."""

import dataclasses
import statistics

LATE = 1.5  # times the 99th percentile before the event
# A recovery ends with this many calls in a row that are answered in time, because single calls are
# late even without an event.
IN_TIME = 20


@dataclasses.dataclass(frozen=True)
class Call:
    sent_s: float  # when it was due, on the monotonic clock
    took_s: float
    status: str


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(calls: list[Call], begin_s: float, end_s: float) -> dict:
    """Returns the effects of an event from `begin_s` to `end_s` on the steady calls. Calls that
    were sent before the event and answered during it count neither as before nor as after it. The
    worst call during the event is chosen among all calls in flight at any time of it; 0 if none.
    """
    before = [call.took_s for call in calls
              if call.sent_s + call.took_s < begin_s and call.status == "OK"]
    usual = percentile(before, 0.99)
    after = sorted((call for call in calls if call.sent_s >= end_s), key=lambda call: call.sent_s)
    if not after:
        raise ValueError("no call was sent after the event")
    recovered_s, in_time, late = end_s, 0, 0
    for call in after:
        if call.status == "OK" and call.took_s <= LATE * usual:
            in_time += 1
            continue
        late += 1
        if in_time < IN_TIME:
            recovered_s, in_time = call.sent_s, 0
    during = [call.took_s for call in calls
              if call.sent_s < end_s and call.sent_s + call.took_s >= begin_s]
    failed: dict[str, int] = {}
    for call in calls:
        if call.sent_s + call.took_s >= begin_s and call.status != "OK":
            failed[call.status] = failed.get(call.status, 0) + 1
    return {"service_ms": 1e3 * statistics.mean(before), "p99_before_ms": 1e3 * usual,
            "recovery_ms": 1e3 * (recovered_s - end_s), "late_after": late,
            "worst_during_ms": 1e3 * max(during, default=0),
            "worst_after_ms": 1e3 * max(call.took_s for call in after), "failed": failed}
