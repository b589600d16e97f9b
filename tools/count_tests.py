#!/usr/bin/env python3
"""Counts the tests of JUnit reports and prints: total, failed, skipped, not applicable.

A skipped test is "not applicable" if its reason is "not applicable: needs X", X is an instruction
set of tests/support/instruction_sets.py or a writable memory cgroup, and the machine lacks X or
SLUICE_TEST_ISA hides it. Set SLUICE_TEST_ISA to the same value as for the tests. Other skipped
tests count as skipped.

A program that ctest ran (see --ctest) counts as the tests of its own report, if --reports has one.
If the program failed although none of its tests did, one more test counts as failed. A program
whose report has no test, for example because its filter matches none, counts as one failed test.
So do reports without any test.
"""

import argparse
import collections
import pathlib
import sys
import xml.etree.ElementTree

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))
from instruction_sets import is_not_applicable  # noqa: E402


def outcome_of_skip(case):
    """Returns "not applicable" or "skipped". GoogleTest puts the source line before the reason."""
    skip = case.find("skipped")
    reason = "" if skip is None else skip.get("message", "")
    return "not applicable" if is_not_applicable(reason.rpartition("\n")[2]) else "skipped"


def outcomes(report):
    """Yields (name, outcome) for each test of a report."""
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        children = {child.tag for child in case}
        if children & {"failure", "error"} or case.get("status") == "fail":
            yield case.get("name"), "failed"
        elif "skipped" in children or case.get("status") in ("notrun", "disabled"):
            yield case.get("name"), outcome_of_skip(case)
        else:
            yield case.get("name"), "passed"


def of_program(report, outcome):
    """Returns the outcomes of the tests of a program that ended with `outcome`."""
    if not report.exists():
        return [outcome]
    tests = [each for _, each in outcomes(report)]
    failed_after_them = outcome == "failed" and "failed" not in tests
    return tests + ["failed"] if failed_after_them or not tests else tests


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", nargs="*", type=pathlib.Path)
    parser.add_argument("--ctest", type=pathlib.Path, help="as --output-junit writes it")
    parser.add_argument("--reports", type=pathlib.Path, help="folder with PROGRAM.xml")
    options = parser.parse_args()

    found = collections.Counter(
        outcome for report in options.report for _, outcome in outcomes(report)
    )
    if options.ctest:
        for program, outcome in outcomes(options.ctest):
            found.update(of_program(options.reports / f"{program}.xml", outcome))
    if not found:
        found["failed"] = 1
    print(found.total(), found["failed"], found["skipped"], found["not applicable"])


if __name__ == "__main__":
    main()
