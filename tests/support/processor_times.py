"""A plugin of pytest that records in the report the processor time of each test.

It counts the test process and all its descendants, including those that still run.
"""

import os
import pathlib

import pytest

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def processor_seconds(process):
    """Returns the processor seconds of a process and of its descendants, also of ended ones."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        children = " ".join(path.read_text()
                            for path in pathlib.Path(f"/proc/{process}/task").glob("*/children"))
    except OSError:  # The process has ended. Its parent counts it.
        return 0.0
    # Fields 14 to 17 of proc(5): user and system time, and those of ended children.
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
