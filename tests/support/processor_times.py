"""A pytest plugin that records the processor time of each test in the report.

It counts the test process and all its descendants, including running ones.
"""

import os
import pathlib

import pytest

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def ticks(process):
    """Returns two numbers of clock ticks: of the process, and of its children that have ended."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    # Fields 14 to 17 of proc(5): user and system time of the process and of its ended children.
    return sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))


def processor_seconds(process):
    """Returns the processor seconds of a process and all its descendants, running or ended."""
    try:
        while True:
            own, ended = ticks(process)
            threads = pathlib.Path(f"/proc/{process}/task").glob("*/children")
            running = sum(processor_seconds(child) for path in threads
                          for child in path.read_text().split())
            # A child that ended in the meantime would be counted twice or not at all.
            if ticks(process)[1] == ended:
                return (own + ended) / TICKS_A_SECOND + running
    except OSError:  # The process has ended; its parent's times include it.
        return 0.0


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item):
    item.began_cpu_s = processor_seconds(os.getpid())
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item):
    yield
    seconds = processor_seconds(os.getpid()) - item.began_cpu_s
    item.user_properties.append(("cpu_s", f"{seconds:.2f}"))
