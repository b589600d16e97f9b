#!/usr/bin/env python3
"""Prints the slowest tests of JUnit reports, and every test above its budget of processor time.

A line of the file of budgets is a number of processor seconds and a pattern for names of tests. The
first pattern that matches a test gives its budget. A test's name is its program or file and its own
name, such as sluice_engine_test/EngineTest.Drains or tests/e2e/test_client.py/test_help.
"""

import argparse
import fnmatch
import pathlib
import sys
import xml.etree.ElementTree


def measured(report):
    """Yields (name, processor seconds) for each test of a report that states its seconds."""
    program = "" if report.name.startswith("pytest-") else f"{report.stem}/"
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        for property_ in case.iter("property"):
            if property_.get("name") == "cpu_s":
                place = case.get("classname").replace(".", "/") + (".py/" if not program else ".")
                yield f"{program}{place}{case.get('name')}", float(property_.get("value"))


def read_budgets(text):
    """Returns [(pattern, seconds)]."""
    lines = (line.partition("#")[0].split(None, 1) for line in text.splitlines())
    return [(fields[1].strip(), float(fields[0])) for fields in lines if fields]


def budget_of(name, budgets):
    return next(seconds for pattern, seconds in budgets if fnmatch.fnmatchcase(name, pattern))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reports", nargs="+", type=pathlib.Path)
    parser.add_argument("--budgets", type=pathlib.Path, required=True)
    parser.add_argument("--fail", action="store_true", help="fail if a test is above its budget")
    options = parser.parse_args()
    tests = [test for report in options.reports if report.exists() for test in measured(report)]
    tests.sort(key=lambda test: -test[1])
    for name, seconds in tests[:10]:
        print(f"{seconds:7.1f} s  {name}")
    budgets = read_budgets(options.budgets.read_text(encoding="utf-8"))
    above = [test for test in tests if test[1] > budget_of(test[0], budgets)]
    for name, seconds in above:
        print(f"above its budget of {budget_of(name, budgets):g} s: {seconds:.1f} s  {name}")
    return 1 if above and options.fail else 0


if __name__ == "__main__":
    sys.exit(main())
