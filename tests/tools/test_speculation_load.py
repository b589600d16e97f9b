"""Tests how the measurement of speculation derives its latencies."""

import argparse
import concurrent.futures
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "loadtest"))
import speculation  # noqa: E402


class FailingClient:
    """A client whose calls with this prompt fail."""

    def __init__(self, failing):
        self._failing = failing

    def generate(self, _model, prompt, **_options):
        if prompt.startswith(self._failing):
            raise ConnectionError("the daemon has ended")


def ended(result):
    future = concurrent.futures.Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


@pytest.mark.parametrize("failing", ["once", "abab"], ids=["call", "stream"])
def test_a_failed_call_ends_the_run(failing):
    options = argparse.Namespace(tokens=4, seconds=0.01)
    with pytest.raises(ConnectionError):
        speculation.others(FailingClient(failing), options, 1.0, False, 1000)


def test_a_failed_call_ends_the_measurement_of_the_highest_rate():
    with pytest.raises(ConnectionError):
        speculation.saturation(FailingClient("once"), 1000)


def test_the_percentile_of_few_latencies_is_one_of_them():
    assert speculation.p99([ended(each) for each in (0.5, 3.0, 1.0)]) == 3.0
    with pytest.raises(ValueError, match="refused"):
        speculation.p99([ended(1.0), ended(ValueError("refused"))])
