"""Follows one request by trace and id through gateway, Envoy, queue and steps."""

import http.server
import json
import os
import re
import subprocess
import sys
import threading
import urllib.error

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from envoy import Envoy
from processes import ROOT, SLUICE, Daemon, Gateway, free_port, wait_until

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector(http.server.ThreadingHTTPServer):
    """An OTLP/HTTP collector that keeps the received spans."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Collect)
        self.spans = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1/traces"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *exit):
        self.shutdown()
        super().__exit__(*exit)


class _Collect(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def attributes(span):
    values = {each.key: each.value for each in span.attributes}
    return {key: value.string_value or value.int_value for key, value in values.items()}


@pytest.fixture
def admin():
    return f"127.0.0.1:{free_port()}"


def test_one_request_is_followed_from_its_caller_to_its_steps(tmp_path, admin):
    logged = ("--server.log.format", "json", "--server.log.access-sample", "1")
    with Collector() as collector, Daemon(tmp_path, *logged, admin=admin) as daemon, Envoy(
        tmp_path, [daemon.ports[0]]
    ) as envoy:
        wait_until(lambda: envoy.healthy() == 1, "the replica is healthy")
        process = Gateway(tmp_path, envoy.address, "--otlp-endpoint", collector.url)
        with process:
            status = process.complete(traceparent=CALLER, **{"x-request-id": "followed"})
            assert status == 200
            assert process.stop() == 0, process.log.read_text()
        # The gateway sends the waiting spans before it ends.
        (span,) = collector.spans
        _, trace_id, parent_id, _ = CALLER.split("-")
        assert span.name == "POST /v1/completions"
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (trace_id, parent_id)
        assert attributes(span) == {
            "http.request.method": "POST", "http.route": "/v1/completions",
            "http.response.status_code": 200, "sluice.request_id": "followed"}
        # Envoy passes on trace and id. The daemon logs both, with the times of its stages.
        wait_until(lambda: "followed" in daemon.log.read_text(), "the access log has the request")
        (line,) = [each for each in daemon.log.read_text().splitlines() if '"followed"' in each]
        entry = json.loads(line)
        assert entry["trace_id"] == trace_id
        took_us = (span.end_time_unix_nano - span.start_time_unix_nano) / 1000
        assert 0 < entry["queue_us"] + entry["compute_us"] <= entry["total_us"] <= took_us
        assert entry["generated_tokens"] == 12
        explained = subprocess.run([SLUICE, "--admin", admin, "explain", "followed", "--json"],
                                   capture_output=True, text=True)
        assert explained.returncode == 0, explained.stderr
        assert int(json.loads(explained.stdout)["total_steps"]) == entry["steps"] == 12


def test_request_without_a_trace_starts_one_and_failures_are_marked(tmp_path):
    with Collector() as collector, Daemon(tmp_path) as daemon:
        process = Gateway(tmp_path, daemon.grpc, "--otlp-endpoint", collector.url)
        with process:
            assert process.complete() == 200
            daemon.kill()
            with pytest.raises(urllib.error.HTTPError, match="503"):
                process.complete()
            assert process.stop() == 0
        good, failed = sorted(collector.spans, key=lambda span: span.start_time_unix_nano)
        assert any(good.trace_id) and not good.parent_span_id
        assert good.trace_id != failed.trace_id
        assert (good.status.code, failed.status.code) == (0, 2)  # 2 is an error.


def test_missing_collector_affects_no_request(tmp_path):
    with Daemon(tmp_path) as daemon:
        nowhere = f"http://127.0.0.1:{free_port()}/v1/traces"
        process = Gateway(tmp_path, daemon.grpc, "--otlp-endpoint", nowhere)
        with process:
            assert process.complete() == 200
            assert process.stop() == 0


def test_error_names_the_missing_extra(tmp_path):
    hidden = tmp_path / "opentelemetry"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ImportError('no opentelemetry')")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "clients" / "python")])
    refused = subprocess.run(
        [sys.executable, "-m", "sluice_client.gateway", "--otlp-endpoint", "http://a"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert refused.returncode == 2
    assert re.search(r"--otlp-endpoint: .*install .*\[gateway,tracing\]", refused.stderr)
