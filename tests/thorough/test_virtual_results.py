"""Repeats committed results on virtual time, which must be equal on every machine."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from conftest import BUILD  # noqa: E402


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")]
            for line in table.splitlines() if line.startswith("|")][2:]


def test_the_autoscaled_day_is_the_committed_one(tmp_path):
    table = tmp_path / "day.md"
    done = subprocess.run(
        [BUILD / "loadtest" / "scale" / "sluice-scale", "--rule",
         ROOT / "deploy" / "kubernetes" / "overlays" / "keda" / "scaled_object.yaml",
         "--table", table], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert table.read_text() == (ROOT / "loadtest" / "results" / "autoscaling.md").read_text()


def test_the_deployment_guide_has_the_figures_of_the_committed_day():
    committed = cells((ROOT / "loadtest" / "results" / "autoscaling.md").read_text())
    guide = (ROOT / "deploy" / "README.md").read_text()
    rows = cells(guide[guide.index("| fleet | replica hours"):].split("\n\n")[0])
    assert len(rows) == len(committed) == 3
    for row, (fleet, _, hours, _, p99, within, changes) in zip(rows, committed, strict=True):
        assert row[0].split(",")[0] == fleet.split(",")[0]
        digits = len(re.sub(r"^[^.]*\.?", "", row[2]))
        assert row[1:] == [hours, f"{float(p99):.{digits}f}", within, changes]
