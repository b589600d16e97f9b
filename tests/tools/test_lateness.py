"""Tests which calls the measurement of recoveries counts as late."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "loadtest"))

import lateness  # noqa: E402


def calls(*late, failed=()):
    """Returns calls that take 0.1 s, one every 0.1 s from 0 on; calls sent at `late` take 1 s."""
    made = []
    for number in range(100):
        sent = number / 10
        status = "UNAVAILABLE" if sent in failed else "OK"
        made.append(lateness.Call(sent, 1.0 if sent in late else 0.1, status))
    return made


def test_recovery_lasts_until_the_last_of_many_late_calls():
    made = lateness.figures(calls(4.5, 5.2, 5.7), 4.0, 5.0)
    assert made["recovery_ms"] == pytest.approx(700)
    assert (made["late_after"], made["failed"]) == (2, {})
    assert made["service_ms"] == pytest.approx(100)
    assert made["worst_after_ms"] == pytest.approx(1000)


def test_calls_in_time_end_a_recovery():
    late_by_itself = 5.2 + 0.1 * (lateness.IN_TIME + 1)
    made = lateness.figures(calls(5.2, round(late_by_itself, 1)), 4.0, 5.0)
    assert (made["recovery_ms"], made["late_after"]) == (pytest.approx(200), 2)
    sooner = lateness.figures(calls(5.2, round(late_by_itself - 0.1, 1)), 4.0, 5.0)
    assert sooner["recovery_ms"] == pytest.approx(100 * (lateness.IN_TIME + 2))


def test_late_calls_during_the_event_do_not_count_as_recovery():
    made = lateness.figures(calls(4.5), 4.0, 5.0)
    assert (made["recovery_ms"], made["late_after"]) == (0, 0)
    assert made["worst_during_ms"] == pytest.approx(1000)


def test_the_worst_call_of_the_event_may_have_been_sent_before_it():
    assert lateness.figures(calls(3.5), 4.0, 5.0)["worst_during_ms"] == pytest.approx(1000)
    assert lateness.figures(calls(2.8, 5.0), 4.0, 5.0)["worst_during_ms"] == pytest.approx(100)


def test_a_failed_call_counts_as_late():
    made = lateness.figures(calls(failed=(6.0,)), 4.0, 5.0)
    assert made["recovery_ms"] == pytest.approx(1000)
    assert made["failed"] == {"UNAVAILABLE": 1}


def test_late_calls_before_the_event_set_the_normal_latency():
    # A tenth of the earlier calls takes 1 s, so 1 s is their 99th percentile.
    usual = (0.5, 1.5, 2.5, 3.0)
    assert lateness.figures(calls(*usual, 5.2), 4.0, 5.0)["recovery_ms"] == 0


def test_an_event_that_outlasts_the_calls_is_an_error():
    with pytest.raises(ValueError, match="after the event"):
        lateness.figures(calls(), 4.0, 11.0)
