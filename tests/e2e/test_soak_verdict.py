"""Tests how loadtest/soak.py derives its verdict from samples."""

import pathlib
import random
import subprocess
import sys
import urllib.error

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


class EndingDaemon:
    """A daemon that is killed while its second sample is taken."""

    def __init__(self, *_options):
        self.process = subprocess.Popen(["sleep", "infinity"])
        self._samples = 0

    def metrics(self):
        self._samples += 1
        if self._samples == 2:
            self.process.kill()
            self.process.wait()
            raise urllib.error.URLError("refused")
        return {}

    def stop(self, status=0):
        self.process.wait()


def test_a_daemon_that_ends_fails_the_soak_and_keeps_the_samples(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(soak, "Daemon", EndingDaemon)
    monkeypatch.setattr(soak.soak_clients, "KINDS", ())
    monkeypatch.setattr(soak, "SAMPLES_EVERY_S", 0)
    monkeypatch.setattr(sys, "argv", ["soak.py", "--out", str(tmp_path / "soak")])
    assert soak.main() == 1
    verdict = capsys.readouterr().out.splitlines()[0]
    for part in ("failed: a sample failed: ", "refused", "the daemon ended with status -9"):
        assert part in verdict
    assert len((tmp_path / "soak.csv").read_text().splitlines()) == 2  # the names and a sample
    assert "nan" not in (tmp_path / "soak.html").read_text()
