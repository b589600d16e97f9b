"""Memory cgroups of a test's own, of version 1 or 2. They need a writable folder of cgroups."""

import functools
import os
import pathlib
import re
import tempfile

NEED = "a writable memory cgroup"  # what a test states that needs one
MOUNT = pathlib.Path("/sys/fs/cgroup")


def folder_of_this_process():
    """Returns the folder of this process's cgroup that controls memory, and its version."""
    unified = None
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return MOUNT / "memory" / path.lstrip("/"), 1
        if not controllers:
            unified = MOUNT / path.lstrip("/")
    return unified, 2


@functools.cache
def parent():
    """Returns the folder in which a test may make cgroups, or None. By a rule of version 2, a
    cgroup with processes cannot pass the control of memory on, except the root."""
    folder, version = folder_of_this_process()
    if folder is None or not os.access(folder, os.W_OK):
        return None
    try:
        if version == 2 and "memory" not in (folder / "cgroup.subtree_control").read_text().split():
            return None
        probe = tempfile.mkdtemp(prefix="sluice-test-", dir=folder)
        os.rmdir(probe)
    except OSError:
        return None
    return folder


class MemoryCgroup:
    """A cgroup with a limit of memory. Start a process in it with `preexec`."""

    def __init__(self, limit_bytes):
        self._version = folder_of_this_process()[1]
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="sluice-test-", dir=parent()))
        name = "memory.limit_in_bytes" if self._version == 1 else "memory.max"
        (self._folder / name).write_text(str(limit_bytes))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._folder.rmdir()

    def command(self):
        """Returns the start of a command that runs the rest of it in this cgroup."""
        return ["sh", "-c", f'echo $$ >"{self._folder}/cgroup.procs" && exec "$@"', "sh"]

    def kills(self):
        """Returns how often the kernel has ended a process for lack of memory."""
        name = "memory.oom_control" if self._version == 1 else "memory.events"
        return int(re.search(r"^oom_kill (\d+)$", (self._folder / name).read_text(), re.M)[1])
