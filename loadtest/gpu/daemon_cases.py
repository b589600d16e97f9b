"""The daemon under load: reloads, reviews, faults and the end, each with its expected outcome."""

import json
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

from cases import End

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "support"))
from ports import free_port  # noqa: E402

DEMO = "models/demo"  # below the root of the sources, or of the unpacked programs
# A fault that makes a step's kernel access a bad address, so that the device itself fails.
ILLEGAL_ACCESS = "before_replay@lost:illegal_access"
UNAVAILABLE = 3  # the client's exit status


class Failed(Exception):
    pass


class NotMeasured(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise Failed(text)


class Daemon:
    """A daemon that serves the demo model, or the one in the folder `model`; `faults` has the
    syntax of base/fault_injection.h.
    """

    def __init__(self, check, *options, faults="", model=None, batch_tokens=1024):
        self._check = check
        self.grpc, self.http, self.admin = (f"127.0.0.1:{free_port()}" for _ in range(3))
        command = [
            check.program("sluiced"), "--model", f"demo={model or check.root / DEMO}", "--device",
            "cpu" if check.rehearsal else "cuda:0", "--server.grpc.address", self.grpc,
            "--server.metrics.address", self.http, "--server.admin.address", self.admin,
            "--engine.batch.max-batch-tokens", str(batch_tokens), *options
        ]
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                        stdout=check.results.log.file,
                                        stderr=check.results.log.file,
                                        env={**check.ours, "SLUICE_TEST_FAULTS": faults},
                                        start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def _get(self, path):
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=10) as answer:
            return answer.read().decode()

    def await_ready(self, limit_s=60):
        give_up = time.monotonic() + limit_s
        while True:
            expect(self.process.poll() is None, "the daemon ended before it was ready")
            try:
                self._get("/readyz")
                return
            except OSError:
                expect(time.monotonic() < give_up, "the daemon was not ready in time")
                time.sleep(0.05)

    def metrics(self):
        """Returns the lines of the page of metrics."""
        return self._get("/metrics").splitlines()

    def metric(self, name):
        """Returns the sum of the metric's samples."""
        lines = [line for line in self.metrics() if line.startswith(name)]
        return sum(float(line.split()[-1]) for line in lines if line[len(name)] in "{ ")

    def client(self, *arguments, limit_s=60):
        """Runs the client and returns its status and output."""
        done = subprocess.run([
            str(word) for word in (self._check.program("sluice"), *arguments, "--server",
                                   self.grpc, "--admin", self.admin)
        ], env=self._check.ours, capture_output=True, text=True, timeout=limit_s)
        self._check.results.log.write(done.stdout + done.stderr)
        return done.returncode, done.stdout + done.stderr

    def load(self, *arguments, limit_s=90):
        """Runs the load generator to its end and returns its status."""
        command = [self._check.program("sluice-load"), "run", "--server", self.grpc, *arguments]
        return subprocess.run([str(word) for word in command], env=self._check.ours,
                              stdin=subprocess.DEVNULL, stdout=self._check.results.log.file,
                              stderr=self._check.results.log.file, timeout=limit_s).returncode

    def infer(self, identity):
        return self.client("infer", "--ids", "5,17,3", "--max-tokens", "4", "--id", identity)

    def stop(self, limit_s=60):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(limit_s)


class Load:
    """The load generator in a closed loop against a daemon. With `to_its_end`, the daemon outlives
    the load, so that the generator can compare its counts with the daemon's at the end."""

    def __init__(self, check, daemon, to_its_end=True):
        seconds = 1.5 if check.rehearsal else 5
        self._daemon = daemon
        self._path = check.results.raw / f"load_{check.case}.json"
        self._path.unlink(missing_ok=True)
        command = [
            check.program("sluice-load"), "run", "--server", daemon.grpc, "--concurrency",
            "4" if check.rehearsal else "64", "--max-tokens", "8", "--warm-up", "0",
            "--duration", str(seconds), "--min-duration", "0", "--min-calls", "1", "--drain", "20",
            "--quiet", "--out", self._path
        ]
        command += ["--metrics-url", daemon.http] if to_its_end else []
        self._process = subprocess.Popen([str(word) for word in command], env=check.ours,
                                         stdin=subprocess.DEVNULL, stdout=check.results.log.file,
                                         stderr=check.results.log.file)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def await_calls(self, calls=20):
        """Waits until the daemon has answered some calls."""
        give_up = time.monotonic() + 30
        while self._daemon.metric("sluice_requests_total") < calls:
            expect(self.runs() and time.monotonic() < give_up, "the load did not begin")
            time.sleep(0.02)

    def runs(self):
        return self._process.poll() is None

    def phase(self, limit_s=90):
        self._process.wait(limit_s)
        expect(self._path.exists(), "the load generator wrote no report")
        return json.loads(self._path.read_text())["phases"][0]

    def undisturbed(self):
        """Returns the phase. Requires that all its calls were answered correctly."""
        phase = self.phase()
        outcomes = phase["outcomes"]
        expect(outcomes["ok"] > 0, "no call was answered")
        expect(outcomes["ok"] == phase["calls"], f"not every call was answered well: {outcomes}")
        return phase


def figures(phase, shape):
    values = [("calls answered", phase["answered_per_s"], "calls/s"),
              ("tokens", phase["tokens_per_s"], "tokens/s"),
              ("latency, median", phase["latency_ms"]["p50"], "ms"),
              ("latency, 99th percentile", phase["latency_ms"]["p99"], "ms")]
    return [measurement(name, shape, value, unit) for name, value, unit in values]


def measurement(name, shape, value, unit):
    return {"part": "daemon", "name": name, "shape": shape, "value": value, "unit": unit}


def under_load(check):
    with Daemon(check) as daemon:
        began = time.monotonic()
        daemon.await_ready()
        ready = measurement("ready after", "demo", time.monotonic() - began, "s")
        with Load(check, daemon) as load:
            return [ready, *figures(load.undisturbed(), "load alone")]


def while_loaded(check, shape, act, *options):
    """Repeats act(daemon) while the load lasts. The load must not be affected."""
    with Daemon(check, *options) as daemon:
        daemon.await_ready()
        times = []
        with Load(check, daemon) as load:
            load.await_calls()
            while load.runs() and len(times) < 20:
                began = time.monotonic()
                status, text = act(daemon)
                expect(status == 0, f"{shape}: {text.strip()[-200:]}")
                times.append(time.monotonic() - began)
            phase = load.undisturbed()
        expect(times, f"{shape}: the load ended before the first one")
        expect(daemon.stop() == 0, "the daemon did not end with status 0")
        return [measurement(f"seconds of one {shape}", f"of {len(times)}", max(times), "s"),
                *figures(phase, shape)]


def reload(check):
    return while_loaded(check, "reload", lambda daemon: daemon.client("load", "demo"))


def review(check):
    return while_loaded(check, "ladder review", lambda daemon: daemon.client("review", "--force"),
                        "--engine.ladder.review.interval", "0")


def lose_device(check, fault):
    with Daemon(check, "--engine.watchdog.grace", "2s", faults=fault) as daemon:
        daemon.await_ready()
        status, text = daemon.infer("first")
        expect(status == 0, f"a request before the fault failed: {text.strip()[-200:]}")
        status, text = daemon.infer("lost")
        expect(status == UNAVAILABLE and "UNAVAILABLE" in text,
               f"status {status}: {text.strip()[-200:]}")
        began = time.monotonic()
        status = daemon.process.wait(60)
        expect(status == 70, f"the daemon ended with status {status}, not 70")
        return [measurement("end after a lost device", "demo", time.monotonic() - began, "s")]


def reported_loss(check):
    return lose_device(check, "replay@lost:fail=unavailable")


def illegal_access(check):
    if check.rehearsal:
        raise NotMeasured("no GPU, and on the CPU the daemon would crash")
    return lose_device(check, ILLEGAL_ACCESS)


def step_without_memory(check):
    with Daemon(check, faults="replay@alone:fail=resource_exhausted*1") as daemon:
        daemon.await_ready()
        status, text = daemon.infer("alone")
        expect(status == 1 and "RESOURCE_EXHAUSTED" in text,
               f"status {status}: {text.strip()[-200:]}")
        expect(daemon.metric("sluice_backend_errors_total") >= 1, "the fault was not counted")
        status, text = daemon.infer("after")
        expect(status == 0, f"a request after the fault failed: {text.strip()[-200:]}")
        expect(daemon.stop() == 0, "the daemon did not end with status 0")
        return []


def start_without_memory(check):
    if check.rehearsal:
        options, faults = [], "allocate:fail=resource_exhausted"
    else:
        options = ["--engine.kv.memory-bytes", str(4 * check.device["memory_bytes"])]
        faults = ""
    with Daemon(check, *options, faults=faults) as daemon:
        began = time.monotonic()
        status = daemon.process.wait(60)
        expect(status in (1, 2), f"the daemon ended with status {status}, not 1")
        return [measurement("refusal to start", "demo", time.monotonic() - began, "s")]


def drain(check):
    with Daemon(check) as daemon:
        daemon.await_ready()
        with Load(check, daemon, to_its_end=False) as load:
            load.await_calls()
            began = time.monotonic()
            status = daemon.stop()
            took = time.monotonic() - began
            outcomes = load.phase()["outcomes"]
        expect(status == 0, f"the daemon ended with status {status}")
        expect(outcomes["ok"] > 0, f"no call was answered: {outcomes}")
        expect(outcomes["wrong"] == 0 and outcomes["unfinished"] == 0,
               f"calls were lost: {outcomes}")
        return [measurement("drain under load", "demo", took, "s")]


CASES = [("load", under_load), ("reload under load", reload), ("ladder review under load", review),
         ("step without memory", step_without_memory), ("start without memory",
                                                        start_without_memory),
         ("reported loss of the device", reported_loss), ("illegal access", illegal_access),
         ("drain under load", drain)]


def run_case(name, run, check):
    mark = check.results.log.mark()
    check.case = name.replace(" ", "_")
    try:
        return End(name, "ok", {"measurements": run(check)})
    except NotMeasured as error:
        return End(name, f"not measured: {error}")
    except (Failed, OSError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
        return End(name, "failed: " + " ".join(str(error).split()),
                   {"detail": check.results.log.since(mark)})
