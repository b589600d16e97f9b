"""Runs cases in child processes so that a crash or a hang costs one case.

A child gets the names of the cases that are left and announces each one's start and end on its
standard output. When it ends, or is ended, in the middle of a case, that case has failed, and a new
child gets the rest.
"""

import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field


@dataclass
class Start:
    case: str


@dataclass
class End:
    case: str
    outcome: str = "ok"
    record: dict = field(default_factory=dict)


def bench_event(line):
    """Reads a line of `gpu_bench run` or of torch_peers.py; None for any other text."""
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if "start" in event:
        return Start(event["start"])
    if "end" not in event:
        return None
    record = {key: event[key] for key in ("measurements", "problems") if event.get(key)}
    return End(event["end"], "ok" if record.get("measurements") else "not measured", record)


GTEST = re.compile(r"^\[( RUN      |       OK |  FAILED  |  SKIPPED )\] ([^ ,]+)"
                   r"(?:.*\((\d+) ms\))?")


def gtest_event(line):
    """Reads a line of a GoogleTest program; None for any other text."""
    match = GTEST.match(line)
    if not match or "/" not in match[2] and "." not in match[2]:
        return None
    kind = match[1].strip()
    if kind == "RUN":
        return Start(match[2])
    if match[3] is None:
        return None  # the list of failed tests at the end
    return End(match[2], {"OK": "ok", "FAILED": "failed", "SKIPPED": "skipped"}[kind])


def gtest_names(listing):
    """Yields (name, parameter) from the output of --gtest_list_tests."""
    suite = ""
    for line in listing.splitlines():
        name, _, parameter = line.partition("#")
        if not line.startswith(" "):
            suite = name.strip()
        elif suite.endswith("."):
            yield suite + name.strip(), parameter.strip()


def status_text(status):
    if status < 0:
        try:
            return f"ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"ended by signal {-status}"
    return f"ended with status {status}"


class Child:
    """A process in a session of its own. Its standard error goes to the log, and a copy of its
    standard output."""

    def __init__(self, command, log, environment=None, cwd=None):
        self._log = log
        self._process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=log.file, env=environment, cwd=cwd, start_new_session=True, text=True,
            errors="replace")
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            self._log.write(line)
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self, until):
        """Returns the next line, None at the end, or raises queue.Empty at the time `until`."""
        return self._lines.get(timeout=max(0.0, until - time.monotonic()))

    def end(self):
        """Kills what still runs and returns the status."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            return self._process.wait(10)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL  # It is stuck in the driver, which is left to it.

    def wait(self):
        """Waits for a process that has closed its output."""
        try:
            return self._process.wait(10)
        except subprocess.TimeoutExpired:
            return self.end()


def run_cases(names, command, event, report, *, log, limit_s, deadline, environment=None,
              one_failure_each=False, watch=None):
    """Runs the cases and calls report(End, seconds) for each; returns those that were not reached.

    command(names) is the command line of a child for these cases. A case may take limit_s; all of
    them end at `deadline`. With one_failure_each a child is ended after its first failed case,
    since the device may refuse everything after it. watch(line) may return a fault of the running
    case, which is then a failure.
    """
    left = list(names)
    while left and time.monotonic() < deadline:
        mark = log.mark()
        child = Child(command(left), log, environment)
        current, fault, began = None, None, time.monotonic()
        try:
            while True:
                try:
                    line = child.line(min(began + limit_s, deadline))
                except queue.Empty:
                    if time.monotonic() >= deadline:
                        return left
                    child.end()
                    end = End(current or left[0], f"hung: no end after {limit_s:.0f} s")
                    break
                if line is None:
                    status = child.wait()
                    if current is None and status >= 0 and (status == 0 or not left):
                        return left
                    of = current or (left[0] if left else "end of the program")
                    end = End(of, f"crashed: {status_text(status)}")
                    break
                if watch is not None and current is not None:
                    fault = fault or watch(line)
                told = event(line)
                if isinstance(told, Start):
                    current, fault, began = told.case, None, time.monotonic()
                elif isinstance(told, End) and told.case in left:
                    if fault:
                        told = End(told.case, f"failed: {fault}", told.record)
                    if told.outcome.startswith("failed"):
                        told.record["detail"] = log.since(mark)
                    report(told, time.monotonic() - began)
                    left.remove(told.case)
                    current, fault, began, mark = None, None, time.monotonic(), log.mark()
                    if one_failure_each and told.outcome.startswith("failed") and left:
                        end = None
                        break
        finally:
            child.end()
        if end is not None:
            end.record["detail"] = log.since(mark)
            report(end, time.monotonic() - began)
            if end.case in left:
                left.remove(end.case)
    return left
