"""Waits for events on machines of any speed."""

import select
import time

# The bound in seconds of every wait for an event that must happen on any machine, however slow or
# busy. A test goes on as soon as the event has happened, so only a failing test waits this long.
PATIENCE_S = 180


def pause(seconds):
    select.select([], [], [], seconds)


def wait_until(holds, within_s=PATIENCE_S, what="the awaited event did not happen"):
    give_up = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < give_up, what
        pause(0.01)


class Gate:
    """A place where a daemon waits until the test opens it.

    Its text form is the action `until` of base/fault_injection.h."""

    def __init__(self, path):
        self._path = path

    def __str__(self):
        return f"until={self._path}"

    def await_met(self):
        """Waits until the daemon waits at the gate."""
        wait_until(self._path.with_name(self._path.name + ".met").exists)

    def open(self):
        self._path.touch()
