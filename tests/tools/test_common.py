"""Tests the functions of tools/common.sh that print progress and missing packages."""

import os
import pathlib
import stat
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def shell(command, text="", path=None):
    """Runs a command with tools/common.sh; returns its status and output."""
    environment = {**os.environ, "PATH": path or os.environ["PATH"]}
    ended = subprocess.run(["bash", "-c", f". tools/common.sh; {command}"], cwd=ROOT, input=text,
                           env=environment, capture_output=True, text=True)
    return ended.returncode, ended.stdout + ended.stderr


def test_output_of_the_compiler_is_shown_and_steps_are_not():
    lines = ["@0/2@ Building a", "@1/2@ Building b", "a.cc:1: error: no", "@2/2@ Linking c",
             "ninja: no work to do."]
    assert shell("show_progress", "\n".join(lines) + "\n") == (0, "a.cc:1: error: no\n")


def test_the_remaining_time_follows_from_the_finished_steps():
    assert shell("SECONDS=60; show_progress 0", "@3/9@ Building a\n") == (
        0, "step 3 of 9, about 2:00 left\n")


def programs(folder, **scripts):
    """Creates programs from shell commands; returns a PATH with them and the usual tools."""
    for name, command in scripts.items():
        file = folder / name.replace("_", "-")
        file.write_text(f"#!/bin/sh\n{command}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return f"{folder}:{os.environ['PATH']}"


MISSING = "  apt-get update && apt-get install -y --no-install-recommends no-such-package\n"


def install(tmp_path, **scripts):
    (tmp_path / "packages").write_text("no-such-package  # of a test\nbash\n")
    path = programs(tmp_path, **scripts)
    return shell(f"install_packages {tmp_path}/packages; echo unreachable", path=path)


def test_without_root_the_missing_packages_and_the_command_are_named(tmp_path):
    status, printed = install(tmp_path, id="echo 1000", sudo="exit 1")
    assert status == 1 and "unreachable" not in printed
    assert "error: 1 Debian packages are missing, and installing packages needs root" in printed
    assert printed.endswith(MISSING)


def test_without_a_network_the_missing_packages_and_the_command_are_named(tmp_path):
    status, printed = install(tmp_path, id="echo 0",
                              env="echo cannot reach the mirror >&2; exit 100")
    assert status == 1 and "unreachable" not in printed
    assert "cannot reach the mirror" in printed and "is there a network?" in printed
    assert printed.endswith(MISSING)


def test_nothing_is_printed_if_all_packages_are_installed(tmp_path):
    (tmp_path / "packages").write_text("bash\n")
    assert shell(f"install_packages {tmp_path}/packages") == (0, "")
