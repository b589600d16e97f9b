"""The programs that a measurement starts. Also makes the client and tests/support importable."""

import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
CLIENT = ROOT / "clients" / "python"
sys.path[:0] = [str(CLIENT), str(ROOT / "tests" / "support")]

from ports import free_port  # noqa: E402, F401

TICKS = os.sysconf("SC_CLK_TCK")


class Process:
    """A program that runs until the end of the context, and is ready when this is constructed."""

    def __init__(self, command, ready, client=CLIENT):
        environment = {**os.environ, "PYTHONPATH": str(client)}
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env=environment)
        try:
            self._await(ready, command)
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def _await(self, ready, command):
        give_up = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(ready, timeout=5).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > give_up:
                    sys.exit(f"{command[0]} does not start")
                time.sleep(0.05)

    def cpu_s(self):
        """Returns the CPU time of the process."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2]
        return sum(int(each) for each in fields.split()[11:13]) / TICKS

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
