"""Tests the processor times of processes whose children end while they are read."""

import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import processor_times  # noqa: E402

BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"


@pytest.fixture
def childless():
    """Returns a process that waits and has no children."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process.pid


def test_a_reading_is_repeated_if_a_child_ended_meanwhile(childless, monkeypatch):
    readings = iter([(10, 0), (10, 500), (12, 500), (12, 500)])
    monkeypatch.setattr(processor_times, "ticks", lambda process: next(readings))
    assert processor_times.processor_seconds(childless) == 512 / processor_times.TICKS_A_SECOND


def test_the_time_of_a_running_child_counts():
    with subprocess.Popen([sys.executable, "-c", BUSY + "input()"], stdin=subprocess.PIPE) as child:
        while processor_times.processor_seconds(child.pid) < 0.2:
            os.sched_yield()
        own_and_ended = sum(processor_times.ticks(os.getpid())) / processor_times.TICKS_A_SECOND
        assert processor_times.processor_seconds(os.getpid()) - own_and_ended >= 0.1
        child.communicate(b"\n")


def test_the_time_of_an_ended_child_counts():
    before = processor_times.processor_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    assert processor_times.processor_seconds(os.getpid()) - before >= 0.1


def test_an_ended_process_has_no_time():
    child = subprocess.Popen(["true"])
    child.wait()
    assert processor_times.processor_seconds(child.pid) == 0
