"""Tests which files ./test --quick considers changed, and which tests cover them."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import changed  # noqa: E402

COVERED = {
    "engine/runner/models/engine_impl.cc": ["tests/engine"],
    "engine/cuda/lower_cuda.cc": ["tests/engine/cuda"],
    "engine/model/tokenizer/bpe.cc": ["tests/engine/model/tokenizer"],
    "kernels/cpu/simd/avx2.cc": ["tests/kernels/cpu"],
    "server/protocol/request/validate.cc": ["tests/server"],
    "tests/client/table_test.cc": ["tests/client"],
    "tests/engine/schedule/queue_test.cc": ["tests/engine"],
    "loadtest/load/stats.cc": ["tests/loadtest"],
    "proto/inference.proto": ["tests/client", "tests/server"],
    "docs/api.md": [],
    "README.md": [],
}


@pytest.mark.parametrize("file, labels", COVERED.items(), ids=COVERED)
def test_a_file_is_covered_by_the_tests_of_its_folder(file, labels):
    assert changed.labels_of([file]) == labels


def test_every_folder_of_the_product_is_covered():
    for folder in ("base", "cascades", "client", "config", "engine", "kernels", "server", "verify"):
        for source in (ROOT / folder).rglob("*.cc"):
            assert changed.labels_of([source.relative_to(ROOT).as_posix()]), source


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository whose branch main has the files `kept` and `removed`."""

    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *arguments],
                       cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "main")
    for name in ("kept", "removed"):
        (tmp_path / name).write_text(name)
    git("add", ".")
    git("commit", "-m", "first")
    monkeypatch.setattr(changed, "ROOT", tmp_path)
    return tmp_path, git


def test_changed_added_and_untracked_files_count_but_removed_files_do_not(repository):
    folder, git = repository
    assert changed.changed_files() == []
    git("switch", "-c", "topic")
    (folder / "committed").write_text("1")
    git("rm", "removed")
    git("add", ".")
    git("commit", "-m", "second")
    (folder / "kept").write_text("2")
    (folder / "untracked").write_text("3")
    assert changed.changed_files() == ["committed", "kept", "untracked"]


def test_commits_that_main_received_later_do_not_count(repository):
    folder, git = repository
    git("branch", "topic")
    (folder / "kept").write_text("2")
    git("commit", "-am", "later")
    git("switch", "topic")
    assert changed.changed_files() == []


@pytest.mark.parametrize("git, reason", [
    (None, "No such file or directory: 'git'"),
    ("echo 'fatal: detected dubious ownership' >&2; exit 128", "fatal: detected dubious ownership"),
], ids=["git is missing", "git refuses the repository"])
def test_quick_run_fails_before_the_build_if_git_fails(tmp_path, git, reason):
    (tmp_path / "tools").mkdir()
    for name in ("test", "tools/common.sh", "tools/changed.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "dirname"):
        (programs / name).symlink_to(shutil.which(name))
    (programs / "python3").symlink_to(sys.executable)
    if git:
        (programs / "git").write_text(f"#!/bin/sh\n{git}\n")
        (programs / "git").chmod(0o755)
    run = subprocess.run(["./test", "--quick"], cwd=tmp_path, capture_output=True, text=True,
                         env={**os.environ, "PATH": str(programs)})
    assert run.returncode == 1 and reason in run.stderr, run.stderr
    assert "run ./test without --quick" in run.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["programs", "test", "tools"]
