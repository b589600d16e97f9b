"""Tests that honest callers of the gateway are served next to hostile ones."""

import json
import subprocess
import sys

from conftest import ROOT, SLUICED
from waiting import PATIENCE_S


def test_honest_callers_are_served_next_to_hostile_ones(tmp_path):
    """A short run; `./test --thorough` runs 200 s."""
    out = tmp_path / "report.json"
    subprocess.run(
        [sys.executable, ROOT / "loadtest" / "gateway_hostile.py", "--sluiced", SLUICED,
         "--seconds", "6", "--rounds", "1", "--per-s", "10", "--out", out],
        check=True, capture_output=True, text=True, timeout=4 * PATIENCE_S)
    report = json.loads(out.read_text())
    assert report["failed"] == 0 and report["calls"] == 60, report
    assert sum(report["attacks"].values()) > 0
