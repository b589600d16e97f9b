"""Makes the n-th file operation of a daemon fail or kill it (tests/support/failing_files.cc)."""

import os
import subprocess

from conftest import BUILD, SANITIZED

SUPPORT = BUILD / "tests" / "support"
KILL = 0  # an action, instead of an errno


def preload(library):
    """Returns the variables of a process that loads a library of tests/support first."""
    preloaded = [str(SUPPORT / f"libsluice_{library}.so")]
    if SANITIZED:  # The sanitizer's library must come first.
        preloaded.insert(0, subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True,
                                           capture_output=True, text=True).stdout.strip())
    return {"LD_PRELOAD": " ".join(preloaded)}


class FailingFiles:
    """Counts operations on files whose paths start with `path`. The `nth` operation fails with the
    errno `action`. While the file `full_while` exists, the disk of these files is full. With
    `in_place`, files are overwritten instead of replaced, which is a bug."""

    def __init__(self, path, nth=0, action=KILL, in_place=False, full_while=None):
        self.path, self.nth = path, nth
        self._log = path.with_name(path.name + ".operations")
        self._log.write_text("")
        self.variables = {**preload("failing_files"),
                          "SLUICE_FAILING_FILES": f"{path}:{nth}:{int(action)}:{self._log}"}
        if full_while:
            self.variables["SLUICE_FULL_WHILE"] = str(full_while)
        if in_place:
            self.variables["SLUICE_FILES_IN_PLACE"] = "1"

    def operations(self):
        """Returns the operations so far, as "NUMBER NAME PATH"."""
        return self._log.read_text().splitlines()


def errno_text(action):
    return os.strerror(action)
