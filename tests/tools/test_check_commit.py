"""Tests which commit messages tools/check_commit.py refuses."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCISSORS = "# ------------------------ >8 ------------------------\n"
LONGEST = "engine: " + "x" * 64  # 72 characters


def check(folder, message):
    """Returns the exit status and the errors for a commit message."""
    file = folder / "COMMIT_EDITMSG"
    file.write_text(message, encoding="utf-8")
    run = subprocess.run([sys.executable, ROOT / "tools" / "check_commit.py", file],
                         capture_output=True, text=True)
    return run.returncode, run.stderr


@pytest.mark.parametrize("message", [
    pytest.param("engine: drop expired rows before forming a batch\n", id="subject"),
    pytest.param("engine/cuda: use 4 streams\n\nThe copy took 2 ms.\n", id="subject_and_body"),
    pytest.param(f"{LONGEST}\n", id="72_characters"),
    pytest.param("docs: describe größe\n", id="other_letters"),
    pytest.param("\n# On branch main\ntests: use one port\n# Changes:\n", id="comments_of_git"),
    pytest.param(f"tests: use one port\n{SCISSORS}diff --git a/x b/x\n", id="diff_below_scissors"),
    pytest.param("Merge branch 'work'\n", id="merge"),
    pytest.param('Revert "engine: use 4 streams"\n\nThis reverts commit 1.\n', id="revert"),
    pytest.param("fixup! engine: use 4 streams\n", id="fixup"),
])
def test_valid_message_passes(tmp_path, message):
    assert check(tmp_path, message) == (0, "")


@pytest.mark.parametrize("message, error", [
    pytest.param("Drop expired rows\n", "line 1 is not `area: imperative`", id="no_area"),
    pytest.param("Engine: drop rows\n", "line 1 is not `area: imperative`", id="uppercase_area"),
    pytest.param("engine: Drop rows\n", "line 1 is not `area: imperative`", id="uppercase_verb"),
    pytest.param("engine:drop rows\n", "line 1 is not `area: imperative`", id="no_space"),
    pytest.param("engine: \n", "line 1 is not `area: imperative`", id="no_imperative"),
    pytest.param("# comment\n", "line 1 is not `area: imperative`", id="empty"),
    pytest.param(f"{LONGEST}x\n", "line 1 has 73 characters; the maximum is 72", id="too_long"),
    pytest.param("engine: drop rows.\n", "line 1 ends with a period", id="period"),
    pytest.param("engine: drop rows\nwhen late\n", "line 2 is not empty", id="no_empty_line"),
])
def test_invalid_message_is_refused(tmp_path, message, error):
    status, errors = check(tmp_path, message)
    assert status == 1 and error in errors


def test_each_fault_of_a_message_has_its_own_line(tmp_path):
    status, errors = check(tmp_path, f"{LONGEST}x.\nmore\n")
    assert status == 1 and len(errors.splitlines()) == 3
