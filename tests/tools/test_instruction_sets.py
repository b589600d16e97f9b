"""Tests which tests name a profile, and which instruction sets they may use under a cap."""

import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
sys.path.append(str(SUPPORT))
import instruction_sets  # noqa: E402

OLD = "sse4_2"
AVX2 = f"{OLD} avx2 fma"
VNNI = f"{AVX2} avx_vnni"
AVX512 = f"{AVX2} avx512f avx512bw avx512dq avx512vl avx512_vnni"
BF16 = f"{AVX512} avx512_bf16"
AMX = f"{BF16} amx_tile amx_bf16 amx_int8"


@pytest.mark.parametrize("flags, cap, expected", [
    (OLD, "", []),
    (OLD, "avx2", []),
    (AVX2, "", ["AVX2"]),
    (AVX2, "avx2", ["AVX2"]),
    (AVX2, "avx512", ["AVX2"]),
    (AVX2, "avxvnni", ["AVX2"]),
    (VNNI, "", ["AVX2", "AVX-VNNI"]),
    (VNNI, "avx2", ["AVX2"]),
    (VNNI, "avxvnni", ["AVX2", "AVX-VNNI"]),
    (VNNI, "avx512", ["AVX2"]),
    (AVX512, "", ["AVX2", "AVX-512"]),
    (AVX512, "avx2", ["AVX2"]),
    (AVX512, "avx512", ["AVX2", "AVX-512"]),
    (f"{AVX2} avx512f avx512_bf16", "", ["AVX2"]),
    (BF16, "", ["AVX2", "AVX-512", "AVX-512 BF16"]),
    (BF16, "avx512", ["AVX2", "AVX-512"]),
    (AMX, "", ["AVX2", "AVX-512", "AVX-512 BF16", "AMX"]),
    (AMX, "avx2", ["AVX2"]),
    (f"{AMX} avx_vnni", "avxvnni", ["AVX2", "AVX-VNNI"]),
    (AMX, "avx512", ["AVX2", "AVX-512"]),
])
def test_a_cap_only_removes_sets(flags, cap, expected):
    found = [name for name in instruction_sets.SETS
             if instruction_sets.has(name, flags.split(), under=cap)]
    assert found == expected


def test_an_unknown_cap_is_an_error(monkeypatch):
    monkeypatch.setenv("SLUICE_TEST_ISA", "avx51")
    with pytest.raises(ValueError, match="'avx51' is unknown; expected avx2, avxvnni or avx512"):
        instruction_sets.has("AVX2")


@pytest.mark.parametrize("command, expected", [
    ("sluice verify m --profile bf16   # needs AVX-512 BF16", "AVX-512 BF16"),
    ("sluice plan m  # of a large model; needs AMX", "AMX"),
    ("sluice plan m  # a comment", None),
    ("sluice plan needs AMX", None),
])
def test_a_command_states_its_need_in_a_comment(command, expected):
    assert instruction_sets.stated_need(command) == expected


def test_a_command_with_an_unknown_need_is_an_error():
    with pytest.raises(ValueError, match="needs 'AVX512'; expected one of AVX2, AVX-VNNI"):
        instruction_sets.stated_need("sluice plan m  # needs AVX512")


NAMED = '''
import pytest

def start(profile): pass

def test_flag(): start(["--cpu.profile", "f32"])

def test_variable(): start({"SLUICE_CPU_PROFILE": "f32"})

def test_name(): start("cpu-avx512-f32")

def test_precision(): start("sluice bf16")

@pytest.mark.parametrize("words", ["verify --profile bf16", "verify --golden"])
def test_words(words): pass

COMMANDS = [f"verify --{each}" for each in ("golden", "pro" + "file f32")]

@pytest.mark.parametrize("command", COMMANDS)
def test_id(command): pass

def test_other(): start("BF16")
'''
HELPER = '''
OPTIONS = ["--cpu.profile", "bf16"]

def test_with_options(): assert OPTIONS

def test_next_to_it(): pass
'''


def run_planted(folder, *options, cap="", flags=None):
    """Runs pytest on two generated files, on a processor with `flags`. Returns the output."""
    (folder / "conftest.py").write_text(
        f"import sys\nsys.path.append({str(SUPPORT)!r})\nimport instruction_sets\n"
        + (f"instruction_sets.processor_flags = {flags!r}.split\n" if flags else "")
        + "from instruction_sets import pytest_collection_modifyitems, pytest_configure\n")
    (folder / "test_named.py").write_text(NAMED)
    (folder / "test_helper.py").write_text(HELPER)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder,
         *options, folder], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "SLUICE_TEST_ISA": cap})
    return ended.stdout + ended.stderr


def test_tests_that_name_a_profile_are_marked(tmp_path):
    listed = run_planted(tmp_path, "--collect-only", "-m", "names_profile").split("\n\n")[0]
    assert sorted(listed.splitlines()) == [
        "test_helper.py::test_next_to_it",
        "test_helper.py::test_with_options",
        "test_named.py::test_flag",
        "test_named.py::test_id[verify --profile f32]",
        "test_named.py::test_name",
        "test_named.py::test_precision",
        "test_named.py::test_variable",
        "test_named.py::test_words[verify --golden]",
        "test_named.py::test_words[verify --profile bf16]",
    ]


def test_no_test_runs_under_a_cap_above_the_processor(tmp_path):
    report = tmp_path / "report.xml"
    run_planted(tmp_path, f"--junitxml={report}", cap="avx512", flags=AVX2)
    cases = list(xml.etree.ElementTree.parse(report).iter("testcase"))
    assert len(cases) == 11
    assert {case.find("skipped").get("message") for case in cases} == {
        "not applicable: needs AVX-512"}


def test_pytest_refuses_an_unknown_cap(tmp_path):
    assert "SLUICE_TEST_ISA: 'avx51' is unknown" in run_planted(tmp_path, cap="avx51")
