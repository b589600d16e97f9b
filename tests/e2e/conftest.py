"""Fixtures that start real daemons on free ports for real clients, without mocks."""

import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
import tritonclient.grpc as grpcclient
from waiting import PATIENCE_S, Gate, pause

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD_DIR", ROOT / "build" / "release"))
SLUICED = BUILD / "server" / "sluiced"
SLUICE = BUILD / "client" / "sluice"
DEMO = ROOT / "models" / "demo"
# Tests, and the programs that they start, import the Python client from its source folder.
CLIENT = ROOT / "clients" / "python"
sys.path.insert(0, str(CLIENT))
sys.path.insert(0, str(ROOT / "tests" / "support"))
from instruction_sets import pytest_collection_modifyitems, pytest_configure  # noqa: F401
from ports import free_port

os.environ["PYTHONPATH"] = str(CLIENT)
# `./test --sanitize` sets SLUICE_TEST_SANITIZED. Programs are then slower and use more memory.
SANITIZED = os.environ.get("SLUICE_TEST_SANITIZED") == "1"
SLOWER = 8 if SANITIZED else 1
# What a shell runs in the background ignores SIGINT, and so would the programs that the tests
# start. A handler is not inherited. A preexec_fn would need a fork, after which gRPC of this
# process may start threads in the child and abort it before the program has begun.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--histories", type=int, default=40, help="histories in test_histories.py")
    parser.addoption("--crash-runs", type=int, default=6, help="crashes in test_crashes.py")
    parser.addoption("--every-file-fault", action="store_true",
                     help="make each file operation fail once instead of a random sample")
    parser.addoption("--every-text", action="store_true",
                     help="compare all texts of test_extraction.py instead of a random sample")
    parser.addoption("--first-seed", type=int, help="first seed of random runs; random by default")


@pytest.fixture
def first_seed(request):
    """The first seed of a random test, printed so that a failure can be reproduced."""
    given = request.config.getoption("--first-seed")
    seed = random.randrange(1 << 30) if given is None else given
    print(f"--first-seed {seed}")
    return seed


class EndedEarly(AssertionError):
    """A daemon that ended before it was ready."""

    def __init__(self, status, output):
        super().__init__(output)
        self.status, self.output = status, output


class Daemon:
    """A running sluiced.

    `options` are appended to the command line. `descriptors` limits the file descriptors. `faults`
    lists the faults to inject, in the syntax of base/fault_injection.h. `variables` are added to
    the environment. If `log` is given, the output goes to this file. `before` is the start of the
    command, a program that runs the rest. The constructor returns when the daemon answers the path
    `awaited`. As a context, the daemon must end with status 0, unless the test has called `stop` or
    `await_end`."""

    ended = False  # whether the exit status was checked

    def __init__(self, *options, models=(("demo", DEMO),), descriptors=None, faults="",
                 grpc=None, variables=None, log=None, awaited="/readyz", before=()):
        self.grpc = grpc or f"127.0.0.1:{free_port()}"
        self.http = f"127.0.0.1:{free_port()}"
        self.admin = f"127.0.0.1:{free_port()}"
        command = [
            SLUICED,
            "--server.grpc.address",
            self.grpc,
            "--server.metrics.address",
            self.http,
            "--server.admin.address",
            self.admin,
        ]
        for name, path in models:
            command += ["--model", f"{name}={path}"]
        if descriptors is not None:
            command = ["prlimit", f"--nofile={descriptors}:{descriptors}", *command]
        environment = {**os.environ, "SLUICE_TEST_FAULTS": faults, **(variables or {})}
        if "until=" in faults:  # A slow test may hold a step for minutes.
            environment.setdefault("SLUICE_ENGINE_WATCHDOG_HANG", "1h")
        # On a slow machine, the estimated wait must not lead to refusals.
        environment.setdefault("SLUICE_ENGINE_QUEUE_MAX_WAIT", "0")
        environment.setdefault("SLUICE_SERVER_LIFECYCLE_DRAIN_DELAY", "0")
        # The expected values of the tests were computed in f32.
        environment.setdefault("SLUICE_CPU_PROFILE", "f32")
        if "--config" not in options:  # The warm-up is then four times faster.
            environment.setdefault("SLUICE_ENGINE_BATCH_MAX_BATCH_TOKENS", "1024")
        self.process = subprocess.Popen([*before, *map(str, command), *options],
                                        stdout=log or subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env=environment)
        try:
            self._await(awaited)
        except BaseException:
            self.process.kill()
            raise

    def _await(self, path):
        give_up = time.monotonic() + PATIENCE_S
        while not self.healthy(path):
            if self.process.poll() is not None:
                output = self.process.stdout.read() if self.process.stdout else ""
                raise EndedEarly(self.process.returncode, output)
            assert time.monotonic() < give_up, "the daemon is not ready in time"
            # Connecting to a closed port fails at once, so a pause keeps this from spinning.
            pause(0.02)

    def healthy(self, path):
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=PATIENCE_S) as answer:
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
        """Returns the samples of /metrics as {(name, ((label, value), ...)): number}."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        samples = {}
        for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.M):
            pairs = tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)))
            samples[name, pairs] = float(value)
        return samples

    def metric(self, name, **labels):
        """Returns the sum of the samples of `name` that carry all of `labels`."""
        return sum(
            value
            for (sample, pairs), value in self.metrics().items()
            if sample == name and set(labels.items()) <= set(pairs)
        )

    def stop(self, status=0):
        """Sends SIGTERM, checks the exit status unless it is None, and returns the output."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.await_end(status)

    def kill(self):
        self.process.kill()
        self.await_end(-signal.SIGKILL)

    def await_end(self, status):
        """Waits for the end, checks the exit status and returns the output, except from a log."""
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        self.ended = True
        assert status in (None, self.process.returncode), (
            f"exit status {self.process.returncode}, expected {status}; {output}")
        return output

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if not self.ended:
            self.stop()


@pytest.fixture(scope="session")
def demo():
    """One daemon with the demo model, shared by all tests that do not change it."""
    with Daemon() as daemon:
        yield daemon


@pytest.fixture
def daemon():
    """Starts daemons for one test. They must end with status 0 (see Daemon)."""
    with contextlib.ExitStack() as started:
        yield lambda *options, **named: started.enter_context(Daemon(*options, **named))


@pytest.fixture
def gate(daemon, tmp_path):
    """Creates gates that block daemons; opens all gates before the test's daemons are stopped."""
    made = []

    def make(name):
        made.append(Gate(tmp_path / f"gate_{name}"))
        return made[-1]

    yield make
    for each in made:
        each.open()
