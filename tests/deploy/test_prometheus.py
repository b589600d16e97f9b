"""Tests that every expression in deploy/ returns data when Prometheus scrapes a loaded daemon."""

import asyncio
import contextlib
import random
import subprocess
import threading
import time

import grpc
import pytest
import yaml
from tritonclient.grpc import service_pb2_grpc

import expressions
import open_loop
from processes import DEPLOY, Daemon, Gateway, Prometheus, get, tool, wait_until

PER_SECOND = 20
QUEUE = 64  # requests

# Metrics of TLS and callers, which this daemon does not use. tests/e2e/test_faults_tls.py tests
# them.
ONLY_WITH_FILES = {"sluice_certificate_expiry_timestamp_seconds", "sluice_secret_files_valid",
                   "sluice_secret_reads_total"}
# Panels may also have no data before a reload that finds an option that needs a restart.
ONLY_AT_TIMES = ONLY_WITH_FILES | {"sluice_config_needs_restart"}


def local_config(folder, daemon, gateway):
    """Writes the committed configuration with quick scrapes of both targets; returns the path."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "prometheus" / name) for name in config["rule_files"]]
    for job in config["scrape_configs"]:
        address = {"sluice": daemon.http, "sluice-gateway": gateway.metrics}[job["job_name"]]
        targets = folder / f"{job['job_name']}.yml"
        targets.write_text(yaml.safe_dump(
            [{"targets": [address], "labels": {"namespace": "inference"}}]))
        job["file_sd_configs"][0]["files"] = [str(targets)]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


def odd_calls(address):
    """Makes a wrong call, one that expires, one that is cancelled, and more than the queue takes.

    The second and the third end after a quarter of the time of a whole call, so that even on a fast
    machine they end during the run.
    """
    with grpc.insecure_channel(address) as channel:
        infer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer
        wrong = open_loop.request(random.Random(1))
        wrong.parameters["max_tokens"].int64_param = -1
        with pytest.raises(grpc.RpcError):
            infer(wrong, timeout=60)
        began = time.monotonic()
        infer(open_loop.request(random.Random(2), max_tokens=200), timeout=60)
        quarter = (time.monotonic() - began) / 4
        with contextlib.suppress(grpc.RpcError):
            infer(open_loop.request(random.Random(2), max_tokens=200), timeout=quarter)
        given_up = infer.future(open_loop.request(random.Random(3), max_tokens=200))
        with contextlib.suppress(grpc.FutureTimeoutError, grpc.RpcError):
            given_up.result(timeout=quarter)
        given_up.cancel()
        many = [infer.future(open_loop.request(random.Random(5), max_tokens=200), timeout=60)
                for _ in range(2 * QUEUE)]
        wait_until(lambda: any(call.done() for call in many), "a call is refused")
        for call in many:
            call.cancel()


def diagnosed_call(address):
    """Requests the diagnostics of exclusive self attention."""
    with grpc.insecure_channel(address) as channel:
        wanted = open_loop.request(random.Random(4))
        for name in ("xsa_cos_sim", "xsa_proj_frac"):
            wanted.outputs.add(name=name)
        service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(wanted, timeout=60)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """Prometheus after some seconds of load on a daemon and its gateway; the load continues."""
    folder = tmp_path_factory.mktemp("prometheus")
    stop = threading.Event()
    with Daemon(
        folder, "--engine.queue.max-requests", str(QUEUE)
    ) as daemon, Gateway(folder, daemon.grpc) as gateway, Prometheus(
        folder, local_config(folder, daemon, gateway)
    ) as server:
        diagnosed_call(daemon.grpc)
        assert gateway.complete() == 200
        load = threading.Thread(
            target=lambda: asyncio.run(
                open_loop.run(daemon.grpc, PER_SECOND, until=stop, max_tokens=3)
            )
        )
        load.start()
        try:
            wait_until(
                lambda: daemon.metric("sluice_cancelled_total")
                and daemon.metric("sluice_deadline_missed_total")
                and daemon.metric("sluice_rejected_total", reason="queue_full")
                or odd_calls(daemon.grpc),
                "a call was cancelled and another late",
            )
            # Rates need two samples. The rules are evaluated after that.
            for late in ("up", "sluice_cancelled_total", "sluice_deadline_missed_total"):
                wait_until(
                    lambda: server.query(f"count_over_time({late}[1m]) >= 5"), f"scrapes of {late}"
                )
            wait_until(
                lambda: server.query("model:sluice_slow_ratio:rate3d"), "the rules are evaluated"
            )
            # The gateway's ratios need traffic between two scrapes.
            wait_until(
                lambda: gateway.complete() == 200
                and server.query("route:sluice_gateway_error_ratio:rate1h"),
                "the gateway's answers are counted",
            )
            yield server
        finally:
            stop.set()
            load.join()


@pytest.mark.parametrize(
    "where, expression",
    expressions.recorded() + expressions.of_dashboards() + expressions.of_autoscalers(),
    ids=lambda text: text if len(text) < 60 else "",
)
def test_an_expression_returns_data(prometheus, where, expression):
    samples = prometheus.query(expression)
    assert samples or expressions.names(expression) <= ONLY_AT_TIMES, (
        f"{where}: no data for {expression}")
    assert not samples or any(value == value for _, value in samples), (
        f"{where}: only NaN for {expression}")


@pytest.mark.parametrize("where, expression", expressions.of_alerts(), ids=lambda text: text[:40])
def test_an_alert_selects_existing_series(prometheus, where, expression):
    """The expression parses and selects real series. test_rules.py tests that the alert fires."""
    prometheus.query(expression)
    missing = expressions.names(expression) - prometheus.metric_names() - ONLY_WITH_FILES
    assert not missing, f"{where} selects {missing}, which nothing exports"


def test_no_alert_is_raised_by_a_healthy_daemon(prometheus):
    raised = {labels["alertname"] for labels, _ in prometheus.query('ALERTS{alertstate="firing"}')}
    assert not raised


@pytest.mark.parametrize(
    "where, selector, label", expressions.of_variables(), ids=lambda text: text[:40]
)
def test_a_variable_has_values(prometheus, where, selector, label):
    assert {labels.get(label) for labels, _ in prometheus.query(selector)} - {None, ""}, where


def test_promtool_accepts_the_metrics_text(prometheus):
    text = get(prometheus.query('up{job="sluice"}')[0][0]["instance"], "/metrics")
    check = subprocess.run(
        [tool("promtool"), "check", "metrics"], input=text, capture_output=True, text=True
    )
    # promtool mistakes the bits of an entropy for an amount of data.
    advice = {f'sluice_{of}_entropy_bits use base unit "bytes" instead of "bits"'
              for of in ("shape", "length")}
    assert set(check.stderr.splitlines()) <= advice, check.stderr
    assert check.returncode in (0, 3), check.stdout  # Status 3 means that there is only advice.
