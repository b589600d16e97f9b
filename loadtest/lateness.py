"""Tells from the calls of a steady load for how long an event made calls late, or fail."""

import dataclasses
import statistics

LATE = 1.5  # times the 99th percentile before the event


@dataclasses.dataclass(frozen=True)
class Call:
    sent_s: float  # on the monotonic clock, when it was due
    took_s: float
    status: str


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def figures(calls: list[Call], begin_s: float, end_s: float) -> dict:
    """Returns what the steady calls show of an event from `begin_s` to `end_s`. Calls that were
    sent before and answered during the event belong to neither side.
    """
    before = [call.took_s for call in calls
              if call.sent_s + call.took_s < begin_s and call.status == "OK"]
    usual = percentile(before, 0.99)
    bad = [call for call in calls if call.sent_s >= begin_s and
           (call.status != "OK" or call.took_s > LATE * usual)]
    if not any(call.sent_s >= end_s for call in calls):
        raise ValueError("no call was sent after the event")
    after = [call.sent_s - end_s for call in bad if call.sent_s >= end_s]
    failed: dict[str, int] = {}
    for call in calls:
        if call.sent_s + call.took_s >= begin_s and call.status != "OK":
            failed[call.status] = failed.get(call.status, 0) + 1
    return {"service_ms": 1e3 * statistics.mean(before), "p99_before_ms": 1e3 * usual,
            "recovery_ms": 1e3 * max(after, default=0.0), "late_after": len(after),
            "worst_after_ms": 1e3 * max(call.took_s for call in calls if call.sent_s >= end_s),
            "failed": failed}
