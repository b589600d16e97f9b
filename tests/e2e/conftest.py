"""Real daemons on free ports, real clients; nothing is mocked."""

import itertools
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import time
import urllib.request

import pytest
import tritonclient.grpc as grpcclient

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD_DIR", ROOT / "build" / "release"))
SLUICED = BUILD / "server" / "sluiced"
SLUICE = BUILD / "client" / "sluice"
DEMO = ROOT / "models" / "demo"
# ./test --sanitizers: all takes longer, and more memory.
SANITIZED = os.environ.get("SLUICE_TEST_SANITIZED") == "1"
SLOWER = 8 if SANITIZED else 1


# Below those that the kernel gives to outgoing connections; each process of tests has a range of its own.
PORTS = itertools.cycle(range(*(20000 + 2000 * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) + i)
                                for i in range(2))))


def free_port():
    """A port of the loopback that nothing else takes before it is used."""
    for port in PORTS:
        with socket.socket() as probe:
            # What an earlier test left in TIME_WAIT does not matter: gRPC and we set the same option.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Daemon:
    """A running sluiced; `options` are appended to its command line, `descriptors` is its limit of them;
    `faults`: see base/fault_injection.h."""

    def __init__(self, *options, models=(("demo", DEMO),), ready_within_s=60 * SLOWER, descriptors=None, faults="",
                 grpc=None):
        self.grpc = grpc or f"127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self.admin = f"127.0.0.1:{free_port()}"
        command = [SLUICED, "--server.grpc.address", self.grpc, "--server.metrics.address", self.http,
                   "--server.admin.address", self.admin]
        for name, path in models:
            command += ["--model", f"{name}={path}"]
        if descriptors is not None:
            command = ["prlimit", f"--nofile={descriptors}:{descriptors}", *command]
        environment = {**os.environ, "SLUICE_TEST_FAULTS": faults}
        if "--config" not in options:  # warming up takes a quarter of the time
            environment.setdefault("SLUICE_ENGINE_BATCH_MAX_BATCH_TOKENS", "1024")
        self.process = subprocess.Popen([*map(str, command), *options], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env=environment)
        try:
            self._await_ready(ready_within_s)
        except BaseException:
            self.process.kill()
            raise

    def _await_ready(self, within_s):
        give_up = time.monotonic() + within_s
        while not self.ready():
            assert self.process.poll() is None, self.process.stdout.read()
            assert time.monotonic() < give_up, "the daemon is not ready in time"
            # Connecting to a closed port fails at once: leave the processor to the starting daemon.
            select.select([], [], [], 0.02)

    def healthy(self, path):
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ready(self):
        return self.healthy("/readyz")

    def live(self):
        return self.healthy("/livez")

    def client(self, **options):
        return grpcclient.InferenceServerClient(self.grpc, **options)

    def metrics(self):
        """{(name, ((label, value), ...)): number} of every sample on /metrics."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        samples = {}
        for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.M):
            pairs = tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)))
            samples[name, pairs] = float(value)
        return samples

    def metric(self, name, **labels):
        """Sum of the samples of `name` that carry all of `labels`."""
        return sum(
            value
            for (sample, pairs), value in self.metrics().items()
            if sample == name and set(labels.items()) <= set(pairs)
        )

    def stop(self, timeout_s=40):
        """SIGTERM; returns the exit status and what was printed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        output, _ = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, output


@pytest.fixture(scope="session")
def demo():
    """One daemon with the demo model for all tests that do not change it."""
    daemon = Daemon()
    yield daemon
    status, output = daemon.stop()
    assert status == 0, output


@pytest.fixture
def daemon():
    """Starts daemons for one test and stops those that are left."""
    started = []

    def start(*options, **named):
        started.append(Daemon(*options, **named))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.stop()
