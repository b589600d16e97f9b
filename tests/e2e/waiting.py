"""Waits for events on machines of any speed."""

import select
import time

# The limit in seconds of every wait, even on a slow or busy machine. A wait ends as soon as its
# event happens, so only a failing test waits this long.
PATIENCE_S = 180


def pause(seconds):
    select.select([], [], [], seconds)


def wait_until(holds, within_s=PATIENCE_S, what="the awaited event did not happen"):
    give_up = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < give_up, what
        pause(0.01)


class Gate:
    """A point where a daemon stops until the test opens it.

    str(gate) is the action `until` of base/fault_injection.h."""

    def __init__(self, path):
        self._path = path

    def __str__(self):
        return f"until={self._path}"

    def await_met(self):
        """Waits until the daemon has reached the gate."""
        wait_until(self._path.with_name(self._path.name + ".met").exists)

    def open(self):
        self._path.touch()
