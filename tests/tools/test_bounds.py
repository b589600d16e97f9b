"""Tests that every limit of the options and of the memory plan answers "who is refused when one
peer fills it?" with a row and a test."""

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from bounds import BOUNDS, NOT_FILLED


def limits_of_options():
    """Returns the options whose value is a number, a size or a duration, without those of a
    model."""
    rows = re.findall(
        r"^\| `([\w.]+)` \|.*\| (An? (?:integer|number|size|duration)[^|]*)\| \w+ \|$",
        (ROOT / "docs" / "options.md").read_text(), re.M)
    return {name for name, _ in rows if "." in name}


def is_filled(name):
    return not any(name == each or each.endswith(".") and name.startswith(each)
                   for each in NOT_FILLED)


def lines_of_the_memory_plan():
    text = (ROOT / "server" / "common" / "memory_limits.cc").read_text()
    return {f"memory: {use}" for use in re.findall(r'\{"(\w+)", ', text)}


def test_every_limit_has_a_row_and_every_row_is_a_limit():
    limits = limits_of_options() | lines_of_the_memory_plan()
    names = [row.name for row in BOUNDS]
    assert len(names) == len(set(names))
    absent = sorted(name for name in limits - set(names) if is_filled(name))
    assert not absent, (
        f"tools/bounds.py has no row of {', '.join(absent)}: add a Bound with a test, or a row of "
        "NOT_FILLED if no peer can fill the limit; then run tools/make_docs.py")
    unknown = sorted(set(names) - limits)
    assert not unknown, f"remove the rows of {', '.join(unknown)} from BOUNDS in tools/bounds.py"
    twice = sorted(name for name in names if not is_filled(name))
    assert not twice, f"{', '.join(twice)}: in BOUNDS and in NOT_FILLED of tools/bounds.py"
    for each in NOT_FILLED:
        assert any(name.startswith(each) for name in limits), (
            f"remove {each} from NOT_FILLED in tools/bounds.py: it is not a limit")


@pytest.mark.parametrize("row", BOUNDS, ids=lambda row: row.name)
def test_the_test_of_a_row_exists(row):
    text = (ROOT / "tests" / row.file).read_text()
    names = [rf"TEST\w*\(\w+,\s*{row.test}\)", rf"def {row.test}\(", rf"SLUICE_TABLE\({row.test},"]
    assert re.search("|".join(names), text), row
