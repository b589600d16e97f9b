"""Tests how loadtest/soak.py derives its verdict from samples."""

import pathlib
import random
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "loadtest"))

import soak  # noqa: E402


def samples(seconds, growth, seed):
    """Returns (second, MiB) samples from 90 MiB that grow by `growth`, plus random messages."""
    draw = random.Random(seed)
    return [
        (at, 90 + growth * at / seconds + draw.choice((0, 0.3, 40, 90, 120)))
        for at in range(seconds)
    ]


# These numbers of samples cannot be divided into windows of equal size.
@pytest.mark.parametrize("seconds", [200, 271, 1137, 1199])
@pytest.mark.parametrize("growth", [0, 20])
def test_the_trend_equals_the_true_growth(seconds, growth):
    for seed in range(20):
        (_, first), (_, last) = soak.trend(samples(seconds, growth, seed))
        # The trend is fitted to the samples after the warm-up.
        assert last - first == pytest.approx(
            growth * (1 - soak.WARM_UP), abs=0.02 * first
        ), f"seed {seed}"
