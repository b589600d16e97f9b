"""Runs sluice-load for the measurements."""

import json
import pathlib
import subprocess
from collections.abc import Iterable


class Run:
    """A run of sluice-load. `command` is its command line without --out, and `out` the file of its
    report, if it writes one. The file of an earlier run is removed first. With `shows`, its
    messages appear on our stderr.
    """

    def __init__(self, command: Iterable, out: pathlib.Path | None = None, shows: bool = False):
        self._out = out
        words = [str(word) for word in command]
        if out is not None:
            out.unlink(missing_ok=True)
            words += ["--out", str(out)]
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=None if shows else subprocess.PIPE, text=True)

    def report(self) -> dict:
        """Waits for the end of the run and returns its report, which is empty without `out`. Raises
        RuntimeError if sluice-load failed or was killed.
        """
        _, errors = self.process.communicate()
        status = self.process.returncode
        if status not in (0, 1):  # 1: a phase is INVALID. Negative: a signal ended it.
            raise RuntimeError(f"sluice-load ended with status {status}: {(errors or '').strip()}")
        return json.loads(self._out.read_text()) if self._out else {}


def report_of(command: Iterable, out: pathlib.Path | None = None) -> dict:
    """Runs sluice-load to its end; see Run."""
    return Run(command, out).report()
