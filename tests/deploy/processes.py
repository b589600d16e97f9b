"""Starts real daemons, Envoy and Prometheus on free local ports."""

import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from ports import free_port

DEPLOY = ROOT / "deploy"
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD_DIR", ROOT / "build" / "release"))
SLUICED = BUILD / "server" / "sluiced"
SLUICE = BUILD / "client" / "sluice"
DEMO = ROOT / "models" / "demo"
# The limit in seconds of every wait, even on a slow or busy machine.
PATIENCE_S = 180


def tool(name):
    """Returns the path of a program in this Python's environment or in the system.

    Fails if the program is missing."""
    path = shutil.which(name, path=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
    assert (
        path
    ), f"{name} is missing; see tools/packages-test-run.txt and tools/requirements-test.txt"
    return path


def wait_until(condition, what, within_s=PATIENCE_S):
    """Polls until `condition()` holds, with pauses."""
    give_up = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < give_up, f"not within {within_s} s: {what}"
        select.select([], [], [], 0.05)


def get(address, path, **query):
    """Returns the body of an HTTP answer with status 200, else None."""
    try:
        encoded = urllib.parse.urlencode(query)
        with urllib.request.urlopen(
            f"http://{address}{path}?{encoded}", timeout=PATIENCE_S
        ) as answer:
            return answer.read().decode()
    except OSError:
        return None


class Process:
    """A running program that ends with the test. Its output goes to `log`."""

    def __init__(self, command, log):
        self.log = log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                [*map(str, command)], stdout=output, stderr=subprocess.STDOUT
            )

    def wait_ready(self, condition):
        def ready_or_dead():
            assert self.process.poll() is None, self.log.read_text()
            return condition()

        wait_until(ready_or_dead, f"ready, see {self.log}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Sends SIGTERM and returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()


class Daemon(Process):
    """sluiced with the demo model. `ports` lets a successor reuse the ports of its predecessor."""

    def __init__(self, folder, *options, ports=None, wait=True, model=f"demo={DEMO}",
                 admin=""):
        self.ports = ports or (free_port(), free_port())
        self.grpc, self.http = (f"127.0.0.1:{port}" for port in self.ports)
        addresses = ["--server.grpc.address", self.grpc, "--server.metrics.address", self.http,
                     "--server.admin.address", admin]
        log = folder / f"sluiced-{self.ports[0]}.log"
        models = ["--model", model] if model else []
        super().__init__([SLUICED, *addresses, *models, *options], log)
        if wait:
            self.wait_ready(self.ready)

    def ready(self):
        return get(self.http, "/readyz") is not None

    def metric(self, name, **labels):
        """Returns the sum of the samples of `name` that carry all of `labels`."""
        total = 0.0
        for pairs, value in re.findall(
            rf"^{name}(?:\{{(.*)\}})? (\S+)$", get(self.http, "/metrics"), re.M
        ):
            if set(labels.items()) <= set(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', pairs)):
                total += float(value)
        return total


class Gateway(Process):
    """The HTTP gateway for `daemon`, an address."""

    def __init__(self, folder, daemon, *options):
        self.address, self.metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
        command = ["env", f"PYTHONPATH={ROOT / 'clients' / 'python'}", sys.executable, "-m",
                   "sluice_client.gateway", "--daemon", daemon, "--listen", self.address,
                   "--metrics", self.metrics, *options]
        super().__init__(command, folder / "gateway.log")
        self.wait_ready(lambda: get(self.address, "/livez") is not None)

    def complete(self, prompt="Once", **headers):
        """Sends a completion and returns the status."""
        body = json.dumps({"model": "demo", "prompt": prompt, "max_tokens": 12}).encode()
        request = urllib.request.Request(f"http://{self.address}/v1/completions", body,
                                         {"content-type": "application/json", **headers})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status


class Prometheus(Process):
    """Prometheus with the configuration file `config` and its data in `folder`."""

    def __init__(self, folder, config):
        self.address = f"127.0.0.1:{free_port()}"
        command = [
            tool("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.address}",
            "--log.level=warn",
        ]
        super().__init__(command, folder / "prometheus.log")
        self.wait_ready(lambda: get(self.address, "/-/ready") is not None)

    def query(self, expression):
        """Returns the samples of an instant query as [(labels, value)].

        Fails if the expression cannot be parsed."""
        body = get(self.address, "/api/v1/query", query=expression)
        assert body is not None, f"Prometheus refuses: {expression}"
        return [
            (sample["metric"], float(sample["value"][1]))
            for sample in json.loads(body)["data"]["result"]
        ]

    def metric_names(self):
        return set(json.loads(get(self.address, "/api/v1/label/__name__/values"))["data"])
