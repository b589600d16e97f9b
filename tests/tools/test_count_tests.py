"""Tests tools/count_tests.py on small reports."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PASSED = "<testcase name='a'/>"
FAILED = "<testcase name='b'><failure message='no'/></testcase>"
ERROR = "<testcase name='c'><error message='no'/></testcase>"
# The ctest report of a test that failed or did not run.
CTEST_FAILED = "<testcase name='program' status='fail'/>"
CTEST_NOT_RUN = "<testcase name='program' status='notrun'/>"


def skip(reason, kind="pytest.skip"):
    return f"<testcase name='d'><skipped type='{kind}' message='{reason}'>x</skipped></testcase>"


NOT_APPLICABLE = skip("not applicable: needs AVX-512")


def count(*arguments, cap):
    counted = subprocess.run(
        [sys.executable, ROOT / "tools" / "count_tests.py", *arguments],
        capture_output=True, text=True, env={**os.environ, "SLUICE_TEST_ISA": cap})
    assert counted.returncode == 0, counted.stderr
    return counted.stdout


@pytest.mark.parametrize("cap, cases, expected", [
    pytest.param("", [], "1 1 0 0", id="no test"),
    pytest.param("", [PASSED, PASSED], "2 0 0 0", id="two tests pass"),
    pytest.param("", [PASSED, FAILED, ERROR], "3 2 0 0", id="a failure and an error"),
    pytest.param("avx2", [PASSED, NOT_APPLICABLE], "2 0 0 1", id="the cap hides the set"),
    pytest.param("avx2", [NOT_APPLICABLE, skip("not applicable: needs AMX")], "2 0 0 2",
                 id="the cap hides two sets"),
    pytest.param("avx512", [skip("not applicable: needs AVX-512 BF16")], "1 0 0 1",
                 id="AVX-512 without BF16"),
    pytest.param("avx2", [skip("x_test.cc:7&#x0A;not applicable: needs AMX")], "1 0 0 1",
                 id="GoogleTest puts a line before the reason"),
    pytest.param("avx2", [skip("not applicable: needs AVX2")], "1 0 1 0",
                 id="the machine has the set"),
    pytest.param("avx2", [skip("not applicable: needs a GPU")], "1 0 1 0",
                 id="the set is not in the list"),
    pytest.param("avx2", [skip("not applicable: needs AVX-512 and time")], "1 0 1 0",
                 id="words after the set"),
    pytest.param("avx2", [skip("needs AVX-512")], "1 0 1 0", id="another reason"),
    pytest.param("avx2", [skip("", kind="pytest.xfail")], "1 0 1 0", id="an expected failure"),
    pytest.param("avx2", [CTEST_NOT_RUN], "1 0 1 0", id="a program that did not run"),
    pytest.param("avx2", [CTEST_FAILED, NOT_APPLICABLE], "2 1 0 1", id="a program that failed"),
])
def test_a_report_has_four_numbers(tmp_path, cap, cases, expected):
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    assert count(report, cap=cap) == expected + "\n"


@pytest.mark.parametrize("status, cases, expected", [
    pytest.param("run", [PASSED, NOT_APPLICABLE], "2 0 0 1", id="each of its tests counts"),
    pytest.param("fail", [PASSED, FAILED], "2 1 0 0", id="a test of a program failed"),
    pytest.param("fail", [PASSED, NOT_APPLICABLE], "3 1 0 1", id="the program failed after them"),
    pytest.param("fail", None, "1 1 0 0", id="a failed program without a report"),
    pytest.param("run", None, "1 0 0 0", id="a program without a report"),
    pytest.param("run", [], "1 1 0 0", id="a filter that matches no test"),
    pytest.param("fail", [], "1 1 0 0", id="a failed program without a test"),
])
def test_a_program_of_ctest_counts_as_its_tests(tmp_path, status, cases, expected):
    programs = tmp_path / "ctest.xml"
    programs.write_text(f"<testsuite><testcase name='program' status='{status}'/></testsuite>")
    if cases is not None:
        (tmp_path / "program.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
    assert count("--ctest", programs, "--reports", tmp_path, cap="avx2") == expected + "\n"


def test_each_shard_of_a_program_must_have_a_test(tmp_path):
    programs = tmp_path / "ctest.xml"
    programs.write_text("<testsuite><testcase name='a_1' status='run'/>"
                        "<testcase name='a_2' status='run'/></testsuite>")
    (tmp_path / "a_1.xml").write_text(f"<testsuite>{PASSED}{PASSED}</testsuite>")
    (tmp_path / "a_2.xml").write_text("<testsuites/>")
    assert count("--ctest", programs, "--reports", tmp_path, cap="") == "3 1 0 0\n"


def test_reports_without_any_test_are_one_failure(tmp_path):
    programs = tmp_path / "ctest.xml"
    programs.write_text("<testsuite/>")
    assert count("--ctest", programs, "--reports", tmp_path, cap="") == "1 1 0 0\n"
