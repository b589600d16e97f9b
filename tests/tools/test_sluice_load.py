"""Tests that measurements read only the report of the run that they started."""

import json
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOADTEST = ROOT / "loadtest"
sys.path.insert(0, str(LOADTEST))
import sluice_load  # noqa: E402

# A program that is called as `PROGRAM --out FILE`.
WRITES = 'echo \'{"phases": [1]}\' > "$2"; '


@pytest.fixture
def out(tmp_path):
    """The report of an earlier run."""
    path = tmp_path / "load.json"
    path.write_text('{"phases": ["earlier"]}')
    return path


def program(script):
    return ["sh", "-c", script, "sluice-load"]


@pytest.mark.parametrize("status", [0, 1])
def test_valid_and_invalid_runs_have_a_report(out, status):
    assert sluice_load.report_of(program(f"{WRITES} exit {status}"), out) == {"phases": [1]}


@pytest.mark.parametrize("script, why", [
    ("kill -9 $$", "status -9"),
    (f"{WRITES} kill -9 $$", "status -9"),
    ("echo no server >&2; exit 3", "status 3: no server"),
])
def test_failed_and_killed_runs_are_errors(out, script, why):
    with pytest.raises(RuntimeError, match=why):
        sluice_load.report_of(program(script), out)
    assert not out.exists() or json.loads(out.read_text()) == {"phases": [1]}


def test_the_report_of_an_earlier_run_is_not_read(out):
    with pytest.raises(FileNotFoundError):
        sluice_load.report_of(program("true"), out)


def test_a_run_without_a_report_is_only_checked():
    assert sluice_load.report_of(program('test "$#" = 0')) == {}
    with pytest.raises(RuntimeError, match="status -15"):
        sluice_load.report_of(program("kill -15 $$"))


def test_no_measurement_takes_a_signal_for_success():
    found = [str(path) for path in LOADTEST.rglob("*.py")
             if re.search(r"(returncode|wait\(\)) > \d", path.read_text())]
    assert not found
