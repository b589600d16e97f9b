"""Tests the list of slow tests and their budgets on small reports."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def case(classname, name, seconds):
    return (f'<testcase classname="{classname}" name="{name}"><properties>'
            f'<property name="cpu_s" value="{seconds}"/></properties></testcase>')


@pytest.fixture
def run(tmp_path):
    (tmp_path / "engine_test.xml").write_text(
        "<testsuites><testsuite>" + "".join(case("Engine", f"Row{i}", i) for i in range(12))
        + '<testcase classname="Engine" name="Untimed"/></testsuite></testsuites>')
    (tmp_path / "pytest-e2e.xml").write_text(
        "<testsuites><testsuite>" + case("tests.e2e.test_client", "test_help[a b]", 30.5)
        + "</testsuite></testsuites>")

    def times(budgets, *options):
        (tmp_path / "budgets").write_text(budgets)
        return subprocess.run(
            [sys.executable, ROOT / "tools" / "test_times.py", "--budgets", tmp_path / "budgets",
             *options, tmp_path / "engine_test.xml", tmp_path / "pytest-e2e.xml"],
            capture_output=True, text=True)

    return times


def test_the_ten_slowest_tests_are_listed(run):
    lines = run("100 *\n").stdout.splitlines()
    assert lines[0] == "   30.5 s  tests/e2e/test_client.py/test_help[a b]"
    assert lines[1] == "   11.0 s  engine_test/Engine.Row11"
    assert len(lines) == 10


BUDGETS = {
    "all below": ("40 *", []),
    "one above": ("30 *", ["test_help"]),
    "the first pattern counts": ("40 tests/e2e/*  # starts daemons\n10.5 *", ["Row11"]),
    "an exact name": ("11 engine_test/Engine.Row11\n50 tests/*\n10 *", []),
}


@pytest.mark.parametrize("budgets, above", BUDGETS.values(), ids=BUDGETS)
def test_tests_above_their_budgets_are_listed_and_fail_only_on_request(run, budgets, above):
    lines = [line for line in run(budgets).stdout.splitlines() if line.startswith("above")]
    assert len(lines) == len(above) and all(name in line for name, line in zip(above, lines))
    assert run(budgets).returncode == 0
    assert run(budgets, "--fail").returncode == (1 if above else 0)
