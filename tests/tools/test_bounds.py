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
    assert {name for name in limits - set(names) if is_filled(name)} == set()
    assert set(names) <= limits and all(map(is_filled, names))
    for each in NOT_FILLED:
        assert any(name.startswith(each) for name in limits), each


@pytest.mark.parametrize("row", BOUNDS, ids=lambda row: row.name)
def test_the_test_of_a_row_exists(row):
    text = (ROOT / "tests" / row.file).read_text()
    names = [rf"TEST\w*\(\w+,\s*{row.test}\)", rf"def {row.test}\(", rf"SLUICE_TABLE\({row.test},"]
    assert re.search("|".join(names), text), row
