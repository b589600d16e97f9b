"""Tests tools/check_lines.py on small trees."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check(tree, path, text):
    """Returns the exit status and output of a check of a tree with one file."""
    file = tree / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    run = subprocess.run(
        [sys.executable, ROOT / "tools" / "check_lines.py", tree],
        capture_output=True,
        text=True,
        env={"PATH": str(tree)},  # without git
    )
    return run.returncode, run.stdout


def test_a_long_line_is_named(tmp_path):
    status, said = check(tmp_path, "engine/x.h", "int a;\n// " + "word " * 20 + "\n")
    assert status == 1 and "engine/x.h:2: 103 columns" in said


def test_a_line_of_a_hundred_columns_passes(tmp_path):
    assert check(tmp_path, "engine/x.h", "// " + "w " * 48 + "x\n") == (0, "")


def test_only_comments_of_a_script_count(tmp_path):
    assert check(tmp_path, "run.sh", "echo " + "word " * 20 + "\n") == (0, "")
    status, said = check(tmp_path, "other.sh", "# " + "word " * 20 + "\n")
    assert status == 1 and "other.sh:1" in said


def test_build_folders_do_not_count(tmp_path):
    assert check(tmp_path, "build/x.h", "// " + "word " * 20 + "\n") == (0, "")


def test_tables_and_code_blocks_of_documents_do_not_count(tmp_path):
    text = "| " + "word " * 20 + "|\n```\n" + "word " * 21 + "\n```\n"
    assert check(tmp_path, "page.md", text) == (0, "")
