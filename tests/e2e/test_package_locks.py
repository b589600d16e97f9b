"""Tests that package installation waits for processes that hold the locks of apt and dpkg.

The tests run the real apt-get on an empty package system in a temporary folder."""

import contextlib
import fcntl
import os
import subprocess

import pytest
from conftest import ROOT
from waiting import PATIENCE_S

UPDATE = "apt_get update -qq"
INSTALL = "apt_get install -y -qq"


@pytest.fixture
def environment(tmp_path):
    """The environment of a shell in which apt-get uses only tmp_path and does not need root."""
    for folder in ("lists/partial", "dpkg", "archives/partial", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "dpkg" / "status").touch()
    (tmp_path / "apt.conf").write_text(f"""
        Dir::State::Lists "{tmp_path}/lists"; Dir::State::status "{tmp_path}/dpkg/status";
        Dir::State::extended_states "{tmp_path}/extended_states";
        Dir::Cache "{tmp_path}"; Dir::Cache::Archives "{tmp_path}/archives";
        Dir::Log "{tmp_path}"; Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "/dev/null";
        APT::Sandbox::User "";
    """)
    sudo = tmp_path / "bin" / "sudo"
    sudo.write_text('#!/bin/sh\nexec "$@"\n')
    sudo.chmod(0o755)
    return {
        **os.environ,
        "APT_CONFIG": str(tmp_path / "apt.conf"),
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
    }


@contextlib.contextmanager
def held(path):
    """Holds the lock file `path` in the same way as apt and dpkg."""
    with path.open("a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def shell(command, environment, **variables):
    """Starts a shell that runs `command` with tools/common.sh and prints "done" on success."""
    script = f'set -euo pipefail; . tools/common.sh; {command}; echo "done"'
    return subprocess.Popen(
        ["bash", "-c", script],
        cwd=ROOT,
        env={**environment, **variables},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


LOCKS = [(UPDATE, "lists/lock"), (INSTALL, "dpkg/lock-frontend"), (INSTALL, "dpkg/lock")]


@pytest.mark.parametrize("command, lock", LOCKS)
def test_an_installation_waits_for_a_held_lock(tmp_path, environment, command, lock):
    with held(tmp_path / lock):
        waiting = shell(command, environment)
        # This line is printed only after apt-get has failed to get the lock.
        line = waiting.stderr.readline()
        assert line.startswith("waiting up to ") and lock in line, line + waiting.stderr.read()
        assert str(os.getpid()) in line, "the message names the process that holds the lock"
    output, errors = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 0 and output == "done\n", errors


@pytest.mark.parametrize("command, lock", LOCKS)
def test_the_wait_for_a_lock_is_bounded(tmp_path, environment, command, lock):
    with held(tmp_path / lock):
        output, errors = shell(command, environment, SLUICE_APT_WAIT_S="0").communicate(
            timeout=PATIENCE_S
        )
    assert output == "" and "Could not get lock" in errors


def test_other_errors_are_not_retried(environment):
    output, errors = shell(f"{INSTALL} no-such-package", environment).communicate(
        timeout=PATIENCE_S
    )
    assert (
        output == ""
        and "Unable to locate package no-such-package" in errors
        and "waiting" not in errors
    )
