"""Tests the counts and the table of loadtest/bench/kernels/recompilations.py, without torch."""

import sys
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "loadtest" / "bench" / "kernels"))

import recompilations  # noqa: E402

ARM = {"op": "max", "shape": "of [16, n]", "dynamic": False, "limit": 8, "refused": None,
       "compilations": 8, "not_compiled": 92, "seconds": 12.345, "processor_seconds": 11.5,
       "eager_seconds": 0.004}


def test_counts_graphs_and_calls():
    counter = recompilations.Counter(lambda graph, inputs: lambda *x: sum(x))
    first, second = counter("graph", []), counter("another", [])
    assert (first(1, 2), second(3), first(4, 5)) == (3, 3, 9)
    assert (counter.graphs, counter.calls) == (2, 3)


def test_there_are_100_different_sizes_that_all_ops_accept():
    sizes = recompilations.SIZES
    assert len(set(sizes)) == 100
    assert min(sizes) >= recompilations.TOP
    assert max(sizes) <= 256, "the positions of the demo model"


def test_each_op_has_static_and_dynamic_arms_at_both_limits():
    arms = list(recompilations.arms_of(["max", "bmm"], 8, 100))
    assert arms[:4] == [("max", False, 8), ("max", True, 8), ("bmm", False, 8), ("bmm", True, 8)]
    assert arms[4:] == [(op, dynamic, 100) for op, dynamic, _ in arms[:4]]


def test_first_compilation_is_not_a_recompilation():
    row = recompilations.torch_row(ARM, 100)
    assert row == ["max", "of [16, n]", "static", 8, "yes", 8, 7, "92 of 100", "12.35", "11.50",
                   "4.0"]
    never = {**ARM, "compilations": 0, "refused": "Unsupported: out=", "dynamic": True}
    row = recompilations.torch_row(never, 100)
    assert row[2:7] == ["dynamic", 8, "no: Unsupported: out=", 0, 0]


def test_option_of_older_versions_of_torch_is_found():
    older = types.SimpleNamespace(cache_size_limit=8)
    newer = types.SimpleNamespace(cache_size_limit=8, recompile_limit=8)
    assert recompilations.limit_name(older) == "cache_size_limit"
    assert recompilations.limit_name(newer) == "recompile_limit"


def test_reason_is_one_short_line():
    error = ValueError("\n  first\nsecond")
    assert recompilations.first_line(error) == "ValueError: first"
    assert len(recompilations.first_line(ValueError("x" * 500))) == 160
    assert recompilations.first_line(ValueError()) == "ValueError: "


def test_table_has_a_row_for_each_arm():
    report = {"date": "2026-01-02", "processor": "P", "model": "demo", "sizes": [10, 12, 14],
              "torch": {"version": "2.5", "limit": "recompile_limit", "default_limit": 8,
                        "arms": [ARM, {**ARM, "op": "bmm"}]},
              "plans": [{"ladder": "default options", "plans": 9, "seconds": 0.0005,
                         "plans_while_serving": 0, "batches": 3, "misses": 1}]}
    text = recompilations.table(report)
    assert "| max | of [16, n] | static | 8 | yes | 8 | 7 | 92 of 3 | 12.35 |" in text
    assert "| bmm | of [16, n] |" in text
    assert "| default options | 9 | 0.50 | 0 | 3 | 1 |" in text
    assert "Not measured: top-k (static, limit 8), " in text
    assert "bmm (static, limit 8)" not in text and "bmm (static, limit 3)" in text
    assert text.endswith("|\n")
