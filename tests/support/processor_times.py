"""A pytest plugin that records the processor time of each test in the report.

It counts the test process and all its descendants, including running ones.
"""

import os
import pathlib

import pytest

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def processor_seconds(process):
    """Returns the processor seconds of a process and all its descendants, running or ended."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = " ".join(path.read_text()
                            for path in pathlib.Path(f"/proc/{process}/task").glob("*/children"))
    except OSError:  # The process has ended; its parent's times include it.
        return 0.0
    # Fields 14 to 17 of proc(5): user and system time of the process and of its ended children.
    own = sum(map(int, fields[11:15])) / TICKS_A_SECOND
    return own + sum(map(processor_seconds, children.split()))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item):
    item.began_cpu_s = processor_seconds(os.getpid())
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item):
    yield
    seconds = processor_seconds(os.getpid()) - item.began_cpu_s
    item.user_properties.append(("cpu_s", f"{seconds:.2f}"))
