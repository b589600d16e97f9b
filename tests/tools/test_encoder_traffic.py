"""Tests the traffic of the encoder comparison, its batching and its report."""

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "loadtest" / "peers" / "serve"), str(ROOT / "loadtest" / "peers")]

import encoder_table  # noqa: E402
import encoder_traffic  # noqa: E402


def test_prefix_ends_before_the_rectangle_is_too_large():
    assert encoder_traffic.prefix([10, 2, 2, 30], 30) == 3
    assert encoder_traffic.prefix([100, 1], 30) == 1, "a long text forms its own batch"
    assert encoder_traffic.prefix([1, 2, 3], 1000) == 3


@pytest.mark.parametrize("traffic", encoder_traffic.TRAFFIC.values(), ids=lambda each: each.name)
def test_lengths_match_the_load_generator(traffic):
    lengths = traffic.lengths(20_000, 3)
    assert lengths.min() >= 1 and lengths.max() <= traffic.cap
    # The median of log-normal lengths, which is below the cap.
    assert abs(np.median(lengths) - traffic.median) < 0.05 * traffic.median
    assert traffic.spec == f"lognormal:{traffic.median}:{traffic.sigma}"
    assert (traffic.lengths(100, 3) == traffic.lengths(100, 3)).all()
    assert (traffic.lengths(100, 3) != traffic.lengths(100, 4)).any()


@pytest.mark.parametrize("traffic", encoder_traffic.TRAFFIC.values(), ids=lambda each: each.name)
def test_window_of_texts_has_the_overall_mean(traffic):
    mean = traffic.lengths(50_000, 1).mean()
    for seed in range(20):
        assert abs(traffic.lengths(64, seed).mean() - mean) < 0.04 * mean


def report(rates):
    return {"date": "d", "processor": "p", "size": "minilm", "traffic": "embedding", "isa": "best",
            "seconds": 1, "objective_ms": 100, "rates": [50.0],
            "left_out": {"z int8": "it is missing"},
            "told": {name: {"batch": None, "cosine": 1.0} for name in rates},
            "rounds": {name: [{
                "closed": {"per_s": rate, "cpu_s_per_1000": 2.0, "executed_efficiency": 0.5},
                "open": [{"goodput_per_s": rate / 2, "within": 0.5, "p50_ms": 1.0, "p99_ms": 9.0,
                          "cpu_s_per_1000": 3.0, "executed_efficiency": 0.25}]} for rate in each]
                for name, each in rates.items()}}


def test_table_has_the_median_of_ratios_per_round():
    # The ratio of medians would be 20 / 10. The ratios of the rounds are 1, 2 and 40.
    text = encoder_table.text_of(report({"sluice f32": [10, 20, 40], "other f32": [10, 10, 1]}))
    assert "| other f32 |  | 10 (1 to 10) | 2.00 | 0.50 | 1.00000 | 2.00 |" in text
    assert "| sluice f32 | 10 | 50.0 % | 1.0 | 9.0 | 3.00 | 0.25 |" in text
    assert "z int8 is left out: it is missing" in text
