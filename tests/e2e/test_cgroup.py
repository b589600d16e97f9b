"""Tests that the daemon follows its cgroup's limits while it runs.

The daemon reads /proc/self/cgroup and the files of the cgroup from a folder of the test."""

import os
import re
import subprocess

import pytest
from conftest import DEMO, SLUICED
from waiting import wait_until

MIB = 1 << 20


class Cgroup:
    """The system's files for a process in the cgroup /pod."""

    def __init__(self, root):
        self.root = root
        self._write("/proc/self/cgroup", "0::/pod\n")

    def set(self, cpus, memory):
        quota = "max" if cpus is None else str(int(cpus * 100_000))
        self._write("/sys/fs/cgroup/pod/cpu.max", f"{quota} 100000\n")
        self._write("/sys/fs/cgroup/pod/memory.max", f"{memory}\n")

    def _write(self, path, text):
        file = self.root / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(text)
        new.rename(file)


@pytest.fixture
def cgroup(tmp_path):
    made = Cgroup(tmp_path / "root")
    made.set(cpus=1, memory=1024 * MIB)
    return made


def limit(server):
    return server.metric("sluice_memory_limit_bytes", use="all")


def changes(log):
    """Returns the numbers of CPUs and threads of each logged change."""
    return [tuple(map(int, each)) for each in
            re.findall(r"CPUs of the cgroup changed.* to=(\d+) threads=(\d+)", log.read_text())]


def test_threads_and_memory_follow_the_cgroup(daemon, cgroup, tmp_path):
    log = tmp_path / "log"
    with log.open("w") as output:
        server = daemon(variables={"SLUICE_TEST_SYSTEM_ROOT": str(cgroup.root)}, log=output)
        assert limit(server) == 1024 * MIB
        cgroup.set(cpus=None, memory=2048 * MIB)
        wait_until(lambda: limit(server) == 2048 * MIB)
        cgroup.set(cpus=0.5, memory=768 * MIB)
        wait_until(lambda: limit(server) == 768 * MIB)
        server.stop()
    all_cpus = len(os.sched_getaffinity(0))
    expected = [] if all_cpus == 1 else [(all_cpus, min(all_cpus, 2)), (1, 1)]
    assert changes(log) == expected


@pytest.mark.parametrize("check", [True, False])
def test_a_limit_above_the_memory_of_the_cgroup_is_a_warning(daemon, cgroup, tmp_path, check):
    variables = {"SLUICE_TEST_SYSTEM_ROOT": str(cgroup.root)}
    limits = ("--server.memory.limit-bytes", "1025MiB")
    if check:
        output = subprocess.run([SLUICED, "--check", "--model", f"demo={DEMO}", *limits],
                                env=os.environ | variables, capture_output=True, text=True,
                                check=True).stderr
    else:
        with (tmp_path / "log").open("w") as log:
            daemon(*limits, variables=variables, log=log).stop()
        output = (tmp_path / "log").read_text()
    assert output.count("server.memory.limit_bytes is 1025.0 MiB, but the cgroup has 1024.0 MiB"
                        ) == 1, output


def test_options_override_the_cgroup(daemon, cgroup, tmp_path):
    log = tmp_path / "log"
    with log.open("w") as output:
        server = daemon("--server.memory.limit-bytes", "1GiB", "--cpu.threads", "1",
                        variables={"SLUICE_TEST_SYSTEM_ROOT": str(cgroup.root)}, log=output)
        # The other daemon has no options. Once it has followed two changes, both have looked.
        with (tmp_path / "other").open("w") as other_output:
            other = daemon(variables={"SLUICE_TEST_SYSTEM_ROOT": str(cgroup.root)},
                           log=other_output)
            for memory in (2048 * MIB, 1536 * MIB):
                cgroup.set(cpus=2, memory=memory)
                wait_until(lambda: limit(other) == memory)
            other.stop()
        assert limit(server) == 1024 * MIB
        server.stop()
    assert changes(log) == []
