"""Runs cases in child processes so that a crash or a hang costs one case.

A child gets the names of the remaining cases and announces the start and end of each one on its
standard output. If the child ends, or is killed, in the middle of a case, that case has failed. A
new child then gets the rest.
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
class Figure:
    """A measurement of the running case. It is kept even if the case fails later."""
    measurement: dict


@dataclass
class End:
    case: str
    outcome: str = "ok"
    record: dict = field(default_factory=dict)

    def failed(self):
        return self.outcome.startswith(("failed", "crashed", "hung"))


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
    if "measurement" in event:
        return Figure(event["measurement"])
    if "end" not in event:
        return None
    problems = event.get("problems")
    return End(event["end"], record={"problems": problems} if problems else {})


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
    """A process in its own session. Its output is also written to the log.

    Standard error uses the same pipe, so that the log keeps the order of both streams."""

    def __init__(self, command, log, environment=None):
        self._log = log
        self._process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=environment, start_new_session=True, text=True,
            errors="replace")
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            mark = self._log.mark()
            self._log.write(line)
            self._lines.put((line.rstrip("\n"), mark))
        self._lines.put((None, self._log.mark()))

    def line(self, until):
        """Returns the next line, or None at the end, and the log's mark before the line. Raises
        queue.Empty at the time `until`.
        """
        return self._lines.get(timeout=max(0.0, until - time.monotonic()))

    def end(self):
        """Kills the processes that still run and returns the status."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            return self._process.wait(10)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL  # It is stuck in the driver, which cannot be interrupted.

    def wait(self):
        """Waits for a process that has closed its output."""
        try:
            return self._process.wait(10)
        except subprocess.TimeoutExpired:
            return self.end()


class Runner:
    """Runs cases in one child after another and calls report(End, seconds) for each.

    command(names) returns the command line of a child for these cases, and event(line) parses its
    output. A case may take limit_s, and all cases end at `deadline`. With one_failure_each a child
    is ended after its first failed case, because the device may refuse everything after it.
    watch(line) may return a fault of the running case, which then counts as failed.
    """

    def __init__(self, command, event, report, *, log, limit_s, deadline, environment=None,
                 one_failure_each=False, watch=None):
        self._command = command
        self._event = event
        self._report = report
        self._log = log
        self._limit_s = limit_s
        self._deadline = deadline
        self._environment = environment
        self._one_failure_each = one_failure_each
        self._watch = watch

    def run(self, names):
        """Returns the cases that were not reached."""
        self._left = list(names)
        while self._left and time.monotonic() < self._deadline:
            child = Child(self._command(self._left), self._log, self._environment)
            try:
                if not self._follow(child):
                    break
            finally:
                child.end()
        return self._left

    def _begin(self, case, mark):
        """Stores the running case, or None, and the log position where its output begins."""
        self._current = case
        self._fault = None
        self._figures = []
        self._began = time.monotonic()
        self._mark = mark

    def _finish(self, end):
        if end.outcome == "ok" and self._fault:
            end.outcome = f"failed: {self._fault}"
        if self._figures:
            end.record["measurements"] = self._figures
        elif end.outcome == "ok" and end.record.get("problems"):
            end.outcome = "not measured"
        if end.failed():
            end.record["detail"] = self._log.since(self._mark)
        self._report(end, time.monotonic() - self._began)
        if end.case in self._left:
            self._left.remove(end.case)
        self._begin(None, self._log.mark())

    def _blame(self, outcome):
        """Ends the running case, or else the case that the child should have started."""
        self._finish(End(self._current or (self._left or ["end of the program"])[0], outcome))

    def _end_hung(self):
        """Ends the running case. The other tests of its suite would probably hang too."""
        suite, _, test = (self._current or "").partition(".")
        self._blame(f"hung: no end after {self._limit_s:.0f} s")
        if not self._one_failure_each or not test:
            return
        for name in [each for each in self._left if each.startswith(suite + ".")]:
            self._report(End(name, "not measured: a test of its suite hung"), 0)
            self._left.remove(name)

    def _follow(self, child):
        """Reads a child's output to its end; returns whether another child should go on."""
        self._begin(None, self._log.mark())
        while True:
            try:
                line, mark = child.line(min(self._began + self._limit_s, self._deadline))
            except queue.Empty:
                if time.monotonic() < self._deadline:
                    self._end_hung()
                    return True
                return False
            if line is None:
                status = child.wait()
                if self._current is None and (status == 0 or status > 0 and not self._left):
                    return False
                self._blame(f"crashed: {status_text(status)}")
                return True
            told = self._event(line)
            if self._watch is not None and self._current is not None:
                self._fault = self._fault or self._watch(line)
            if isinstance(told, Start):
                self._begin(told.case, mark)
            elif isinstance(told, Figure):
                self._figures.append(told.measurement)
            elif isinstance(told, End) and told.case == self._current:
                self._finish(told)
                if told.failed() and self._one_failure_each:
                    return True
