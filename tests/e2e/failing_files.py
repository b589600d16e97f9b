"""Runs daemons whose n-th file operation fails, or ends them (tests/support/failing_files.cc)."""

import os
import subprocess

from conftest import BUILD, SANITIZED

LIBRARY = BUILD / "tests" / "support" / "libsluice_failing_files.so"
KILL = 0  # in place of an errno


class FailingFiles:
    """Counts the operations on files whose paths begin with `path`; the `nth` fails with the errno
    `action`. `in_place` plants that files are written in place where they should be replaced."""

    def __init__(self, path, nth=0, action=KILL, in_place=False):
        self.path, self.nth = path, nth
        self._log = path.with_name(path.name + ".operations")
        self._log.write_text("")
        preloaded = [str(LIBRARY)]
        if SANITIZED:  # The sanitizer's library has to come first.
            preloaded.insert(0, subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True,
                                               capture_output=True, text=True).stdout.strip())
        self.variables = {"LD_PRELOAD": " ".join(preloaded),
                          "SLUICE_FAILING_FILES": f"{path}:{nth}:{int(action)}:{self._log}"}
        if in_place:
            self.variables["SLUICE_FILES_IN_PLACE"] = "1"

    def operations(self):
        """Returns what was done, as "NUMBER NAME PATH"."""
        return self._log.read_text().splitlines()


def errno_text(action):
    return os.strerror(action)
