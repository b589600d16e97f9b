"""Tests that a test names each documented metric, and each flag of the gateway and sluice-pull."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The names of metrics and flags in the tests.
NAMED = {name for path in (ROOT / "tests").rglob("*")
         if path.suffix in (".cc", ".h", ".py", ".yml") and path.name != pathlib.Path(__file__).name
         for name in re.findall(r"sluice_\w+|--[a-z][a-z-]+", path.read_text())}


def test_a_test_names_each_metric():
    metrics = set(re.findall(r"^\| `(sluice_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.M))
    for page in (ROOT / "docs").glob("*.md"):
        metrics.update(re.findall(r"\bsluice_gateway_\w+", page.read_text()))
    assert len(metrics) > 100
    # The samples of a histogram have suffixes.
    missing = [name for name in sorted(metrics) if not NAMED & {
        name + suffix for suffix in ("", "_sum", "_count", "_bucket")}]
    assert not missing, f"no test names {', '.join(missing)}"


@pytest.mark.parametrize("module", ["gateway", "pull"])
def test_a_test_names_each_flag(module):
    shown = subprocess.run(
        [sys.executable, "-m", f"sluice_client.{module}", "--help"], check=True, text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT / "clients" / "python")})
    flags = set(re.findall(r"^  (--[a-z-]+)", shown.stdout, re.M))
    assert len(flags) >= 2
    assert flags <= NAMED, f"no test names {', '.join(sorted(flags - NAMED))}"
