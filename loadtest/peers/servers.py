"""Runs a server's process on its own processors and suspends it while another is measured."""

import os
import pathlib
import select
import signal
import subprocess
import sys
import time

import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from arms import MODEL

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "support"))

from ports import free_port  # noqa: E402


class NotStarted(Exception):
    """A server that did not start; the message has the reason in one line."""


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


def pause(seconds: float) -> None:
    select.select([], [], [], seconds)


class Server:
    """Owns a process group, because some peers have helper processes. A server is suspended while
    another is measured, because all servers are started at the same time and an idle one may poll
    for work.
    """

    def __init__(self, command: list[str], address: str, processors: list[int], threads: int,
                 log: pathlib.Path, model: str = MODEL):
        self.address, self._log, self._model = address, log, model
        limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS",
                                                  "OPENBLAS_NUM_THREADS")}
        with log.open("w") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, **limits},
                preexec_fn=lambda: os.sched_setaffinity(0, processors))

    def wait_ready(self, within_s: float) -> None:
        give_up = time.monotonic() + within_s
        with grpcclient.InferenceServerClient(self.address) as client:
            while not self._ready(client):
                if self._process.poll() is not None:
                    raise NotStarted(f"ended with {self._process.returncode}: {self._last_line()}")
                if time.monotonic() > give_up:
                    raise NotStarted(f"not ready within {within_s:g} s: {self._last_line()}")
                pause(0.2)

    def _ready(self, client: grpcclient.InferenceServerClient) -> bool:
        try:
            return client.is_server_ready() and client.is_model_ready(self._model)
        except InferenceServerException:
            return False

    def state(self) -> str:
        """Returns whether the process runs, in words, and its last line of output."""
        ended = self._process.poll()
        return f"{'running' if ended is None else f'ended with {ended}'}; {self._last_line()}"

    def _last_line(self) -> str:
        lines = [
            line for line in self._log.read_text(errors="replace").splitlines() if line.strip()
        ]
        return lines[-1].strip() if lines else "no output"

    def cpu_seconds(self) -> float:
        """Returns the processor time of all its processes that still exist."""
        ticks = 0
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                # The name before the last ")" may contain any characters.
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == self._process.pid:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass

    def suspend(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        self.resume()
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            pass
        self._signal(signal.SIGKILL)
        self._process.wait()
