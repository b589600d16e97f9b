"""Tests that sluice-load, perf_analyzer and a tritonclient loop send the same schedule."""

import csv
import sys

import numpy as np
import pytest
from conftest import BUILD, ROOT

sys.path.append(str(ROOT / "loadtest"))
import agreement  # noqa: E402

CALLS = 60
PERF_ANALYZER = str(ROOT / "build" / "venv" / "bin" / "perf_analyzer")


@pytest.fixture
def trace(tmp_path):
    """The path of a trace with bursts and twice the rows that are sent."""
    random = np.random.default_rng(3)
    arrivals = np.cumsum(random.exponential(random.choice([0.1, 3.0], 2 * CALLS)))
    path = tmp_path / "trace.csv"
    with path.open("w", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(["arrival_s", "input_tokens"])
        writer.writerows(zip(arrivals, random.integers(1, 400, 2 * CALLS)))
    return path


def test_the_schedule_has_the_mean_rate_and_fits_the_model(trace):
    rows = list(csv.DictReader(trace.open()))
    plan = agreement.schedule(rows, rate=25, count=CALLS, cap=255)
    assert plan.arrivals_s[0] == 0 and plan.arrivals_s == sorted(plan.arrivals_s)
    assert CALLS / plan.seconds == pytest.approx(25)
    assert plan.lengths == [min(int(row["input_tokens"]), 255) for row in rows[:CALLS]]


@pytest.mark.parametrize("count", [1, 2, 99, 100, 101])
@pytest.mark.parametrize("percent", [1, 50, 99, 100])
def test_percentiles_use_the_nearest_rank(count, percent):
    ordered = sorted(np.random.default_rng(count).exponential(size=count).tolist())
    assert agreement.percentile(ordered, percent) == np.percentile(ordered, percent,
                                                                  method="inverted_cdf")


def test_all_clients_send_the_whole_schedule_and_are_answered(demo, trace):
    before = demo.metric("sluice_requests_total", model="demo", code="OK")
    options = agreement.parse([
        "--server", demo.grpc, "--trace", str(trace), "--rate", "60", "--count", str(CALLS),
        "--rounds", "2", "--objective-ms", "60000", "--perf-analyzer", PERF_ANALYZER,
        "--sluice-load", str(BUILD / "loadtest" / "load" / "sluice-load")])
    measured = agreement.measure(options)
    assert list(measured) == ["sluice-load", "perf_analyzer", "tritonclient"]
    for name, results in measured.items():
        assert [result.calls for result in results] == [CALLS, CALLS]
        for result in results:
            assert 0 < result.p50_ms <= result.p99_ms
            if name != "perf_analyzer":
                assert result.within == 1 and result.answered_per_s == pytest.approx(60)
    assert demo.metric("sluice_requests_total", model="demo", code="OK") - before == 6 * CALLS
    assert agreement.table(measured).count("\n") == 5
