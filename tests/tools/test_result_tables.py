"""Tests that the tables of the measurements are valid Markdown."""

import argparse
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOADTEST = ROOT / "loadtest"
sys.path.insert(0, str(LOADTEST))
import memory  # noqa: E402

RULE = re.compile(r"\|(---:?\|)+")


def headings(source):
    """Returns the headings and rules of the tables in a program that are constant."""
    for node in ast.walk(ast.parse(source)):
        for head, rule in zip(getattr(node, "elts", ()), getattr(node, "elts", ())[1:]):
            constant = isinstance(head, ast.Constant) and isinstance(rule, ast.Constant)
            if constant and RULE.fullmatch(str(rule.value)):
                yield head.value, rule.value


def cells(line):
    """Returns the number of cells of a line, or None if it is not a row of a table."""
    return line.count("|") - 1 if line.startswith("| ") and line.endswith(" |") else None


def test_headings_have_as_many_cells_as_their_rules():
    found = [(path, *each) for path in sorted(LOADTEST.rglob("*.py"))
             for each in headings(path.read_text())]
    assert len(found) > 10
    wrong = [f"{path.relative_to(ROOT)}: {head}" for path, head, rule in found
             if cells(head) != rule.count("|") - 1]
    assert not wrong


def test_a_wrong_heading_is_found():
    (wrong,), (right,) = (list(headings(f'lines = ["", "{head}", "|---|---|"]'))
                          for head in ("a | b |", "| a | b |"))
    assert cells(wrong[0]) is None and cells(right[0]) == 2


def test_the_table_of_memory_has_the_same_cells_in_all_rows():
    account = {"weights": 1 << 20, "activations": 0, "plans": 0, "kv": 3 << 20}
    rows = [{"model": "m", "kv": "4MiB", "full": {"account": account, "resident": 4 << 20}}]
    base = {"account": dict.fromkeys(account, 0), "resident": 0}
    table = memory.table(argparse.Namespace(label="A machine"), base, rows)
    head, rule, row = [line for line in table.splitlines() if "|" in line]
    assert cells(head) == cells(row) == rule.count("|") - 1
    assert head.startswith("| model | limit of KV pages | weights | activations | plans | KV |")
