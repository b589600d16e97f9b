"""Starts the gateway as a process and sends HTTP requests to it."""

import http.client
import json
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

from conftest import free_port
from waiting import PATIENCE_S, wait_until

# A chat template for the demo model, which has no roles.
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)

# The start of the line that the gateway logs, at a limited rate, when it refuses a caller.
REFUSED = "WARNING sluice_client.gateway: refused "


class Gateway:
    """A running gateway for `daemon`, which is a Daemon or an address."""

    def __init__(self, daemon, *options, authority=None):
        """With `authority`, the path of a certificate, requests to the gateway use HTTPS."""
        self._tls = authority and ssl.create_default_context(cafile=authority)
        self._scheme = "https" if authority else "http"
        port, metrics = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self.metrics_address = f"127.0.0.1:{metrics}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sluice_client.gateway", "--listen", self.address,
             "--metrics", self.metrics_address, "--daemon", getattr(daemon, "grpc", daemon),
             *map(str, options)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wait_until(self._live)

    def _live(self):
        assert self.process.poll() is None, self.process.stdout.read()
        try:
            return self.get("/livez").status == 200
        except OSError:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        status, output = self.stop()
        lines = [line for line in output.splitlines() if not line.startswith(REFUSED)]
        assert status == 0 and len(lines) == 1 and lines[0].startswith("sluice-gateway: "), (
            status, output)

    def stop(self):
        """Sends SIGTERM and returns the exit status and the output."""
        self.process.send_signal(signal.SIGTERM)
        output, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, output

    def get(self, path, **headers):
        return self._ask(urllib.request.Request(self._url(path), headers=headers))

    def post(self, path, body, **headers):
        """Sends `body`: bytes, or an object that is encoded as JSON."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._ask(urllib.request.Request(self._url(path), body, headers))

    def _url(self, path):
        return f"{self._scheme}://{self.address}{path}"

    def _ask(self, request):
        try:
            return Reply(urllib.request.urlopen(request, timeout=PATIENCE_S, context=self._tls))
        except urllib.error.HTTPError as error:
            return Reply(error)

    def connection(self):
        host, port = self.address.split(":")
        return http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)

    def metric(self, sample):
        """Returns the value of a sample, named as in /metrics with its labels, or 0."""
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics",
                                    timeout=PATIENCE_S) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(sample + " "):
                    return float(line.rpartition(" ")[2])
        return 0.0


class Reply:
    def __init__(self, answer):
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()

    @property
    def json(self):
        assert self.headers["content-type"] == "application/json", self.body
        return json.loads(self.body)

    @property
    def events(self):
        """The events of a stream, without the last one, which must be [DONE]."""
        *events, last = self._data()
        assert last == "[DONE]"
        return [json.loads(each) for each in events]

    @property
    def stream_error(self):
        """The error that ended a stream; None if it ended with [DONE]."""
        last = self._data()[-1]
        return None if last == "[DONE]" else json.loads(last)["error"]

    def _data(self):
        assert self.headers["content-type"].startswith("text/event-stream"), self.body
        return [each.removeprefix("data: ")
                for each in self.body.decode().split("\n\n") if each]
