"""Tests that the tables of the measurements are valid Markdown."""

import argparse
import ast
import json
import pathlib
import re
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOADTEST = ROOT / "loadtest"
sys.path.insert(0, str(LOADTEST))
import ingestion  # noqa: E402
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


def test_the_page_of_ingestion_is_made_of_its_figures(monkeypatch):
    report = json.loads((LOADTEST / "results" / "ingestion.json").read_text())
    monkeypatch.setattr(ingestion.reporting, "processor", lambda: report["processor"])
    monkeypatch.setattr(ingestion.os, "cpu_count", lambda: 2)
    page = ingestion.table(argparse.Namespace(**report["options"]), report["rows"])
    assert page == (LOADTEST / "results" / "ingestion.md").read_text()
    assert "1,024 in this run" in page  # Calls failed.


def test_rates_of_ingestion_leave_out_failed_calls():
    process = types.SimpleNamespace(cpu_s=lambda: used.pop())
    used = [5, 5, 1, 1]
    row = ingestion.measure(types.SimpleNamespace(gateway=process, daemon=process), "some",
                            lambda _, texts: [None, b"a", None, b"b"][:len(texts)],
                            ["x"] * 4, [b"a"] * 4)
    assert (row["failures"], row["wrong"]) == (2, 1)
    assert row["per_s"] * row["seconds"] == pytest.approx(2)
    assert row["gateway_ms"] == row["daemon_ms"] == 2000


def test_the_table_of_memory_has_the_same_cells_in_all_rows():
    account = {"weights": 1 << 20, "activations": 0, "plans": 0, "kv": 3 << 20}
    rows = [{"model": "m", "kv": "4MiB", "full": {"account": account, "resident": 4 << 20}}]
    base = {"account": dict.fromkeys(account, 0), "resident": 0}
    table = memory.table(argparse.Namespace(label="A machine"), base, rows)
    head, rule, row = [line for line in table.splitlines() if "|" in line]
    assert cells(head) == cells(row) == rule.count("|") - 1
    assert head.startswith("| model | limit of KV pages | weights | activations | plans | KV |")
