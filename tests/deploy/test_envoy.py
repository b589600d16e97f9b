"""Tests the committed Envoy configuration with a real Envoy and three real daemons."""

import asyncio
import concurrent.futures
import random
import re
import signal
import subprocess

import grpc
import pytest
import yaml
from tritonclient.grpc import service_pb2_grpc

import open_loop
from envoy import CONFIG, Envoy
from manifests import default_of
from processes import DEPLOY, Daemon, tool, wait_until

PER_SECOND = 60
# Two failed health checks, one second apart, remove a draining replica from use (see CONFIG).
DRAIN = ("--server.lifecycle.drain-delay", "2500ms")


class Fleet:
    def __init__(self, folder):
        self.folder = folder
        self.replicas = [Daemon(folder, *DRAIN, wait=False) for _ in range(3)]
        for each in self.replicas:
            each.wait_ready(each.ready)
        self.envoy = Envoy(folder, [each.ports[0] for each in self.replicas])
        self.address = self.envoy.address
        self.wait_healthy(3)

    def wait_healthy(self, count):
        wait_until(lambda: self.envoy.healthy() == count, f"{count} healthy replicas")

    def restart(self, index):
        """Starts a successor on the same ports, like a replacement of a pod with the same name."""
        self.replicas[index] = Daemon(self.folder, *DRAIN, ports=self.replicas[index].ports)

    def answered(self):
        return [each.metric("sluice_requests_total", code="OK") for each in self.replicas]

    def close(self):
        for each in (self.envoy, *self.replicas):
            if each.process.poll() is None:
                each.kill()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    started = Fleet(tmp_path_factory.mktemp("envoy"))
    yield started
    started.close()


def test_configuration_is_valid_and_uses_nothing_deprecated():
    check = subprocess.run(
        [tool("envoy"), "--mode", "validate", "-c", CONFIG], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stderr
    assert "deprecated" not in check.stderr.lower(), check.stderr


def test_load_spreads_over_all_replicas(fleet):
    before = fleet.answered()
    outcome = asyncio.run(open_loop.run(fleet.address, PER_SECOND, count=300))
    shares = [(now - then) / 300 for then, now in zip(before, fleet.answered())]
    print(f"spread: {outcome.total} calls, shares {[f'{share:.2f}' for share in shares]}")
    assert outcome.codes == {"OK": 300}
    # A connection-level balancer would send all calls of the connection to one replica: 1, 0, 0.
    assert min(shares) > 0.15


def test_no_call_fails_if_a_replica_is_killed(fleet):
    def kill_and_replace():
        victim = fleet.replicas[1]
        # A stopped replica answers nothing, so calls are in flight when it is killed.
        victim.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: fleet.envoy.in_flight(victim.grpc) > 0, "a call is in flight")
        victim.kill()
        fleet.wait_healthy(2)
        fleet.restart(1)
        fleet.wait_healthy(3)

    names = [
        f"cluster.sluice.upstream_{each}"
        for each in ("rq_retry", "cx_destroy_remote_with_active_rq")
    ]
    before = [fleet.envoy.statistic(name) for name in names]
    outcome = open_loop.during(fleet.address, kill_and_replace, per_second=PER_SECOND)
    repeated, cut = (fleet.envoy.statistic(name) - then for name, then in zip(names, before))
    print(
        f"kill: {outcome.total} calls, {outcome.failed} failed, {repeated} repeated on another "
        f"replica"
    )
    assert cut > 0, "no call was in flight at the kill, so nothing was tested"
    assert outcome.failed == 0, outcome.failures


def test_no_call_fails_during_a_rolling_restart(fleet):
    def roll():
        for index in range(3):
            assert fleet.replicas[index].stop() == 0
            fleet.restart(index)
            fleet.wait_healthy(3)

    outcome = open_loop.during(fleet.address, roll, per_second=PER_SECOND)
    print(f"rolling restart: {outcome.total} calls, {outcome.failed} failed")
    assert outcome.failed == 0, outcome.failures


class DeadlineTeller(grpc.GenericRpcHandler):
    """A replica that answers every call with the seconds until the caller's deadline."""

    def service(self, details):
        def answer(_, context):
            if details.method == "/grpc.health.v1.Health/Check":
                return b"\x08\x01"  # The message means SERVING.
            return repr(context.time_remaining()).encode()

        return grpc.unary_unary_rpc_method_handler(answer)


def test_deadlines_are_passed_on(tmp_path):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=[DeadlineTeller()])
    replica = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with Envoy(tmp_path, [replica]) as envoy, grpc.insecure_channel(envoy.address) as channel:
        wait_until(lambda: envoy.healthy() == 1, "the replica is healthy")
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        # From 100 s on, the deadline header has whole seconds, rounded up.
        assert 200 < float(call(b"", timeout=250)) <= 251
        # A call without a deadline gets the route's timeout.
        assert 251 < float(call(b"")) <= 301
    server.stop(None)


def test_streams_are_answered_through_envoy(fleet):
    with grpc.insecure_channel(fleet.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        message = open_loop.request(random.Random(2), max_tokens=2)
        answers = list(stub.ModelStreamInfer(iter([message]), timeout=60))
    assert answers and not any(answer.error_message for answer in answers)


@pytest.mark.parametrize(
    "method, codes",
    [
        ("sluice.admin.v1.Admin/GetBuckets", {grpc.StatusCode.UNIMPLEMENTED}),
        (
            "inference.GRPCInferenceService/RepositoryModelUnload",
            {grpc.StatusCode.PERMISSION_DENIED},
        ),
        # For contrast: Envoy routes this method, so the daemon answers it.
        (
            "inference.GRPCInferenceService/ModelReady",
            {grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND},
        ),
    ],
)
def test_only_inference_is_routed(fleet, method, codes):
    with grpc.insecure_channel(fleet.address) as channel:
        call = channel.unary_unary(
            f"/{method}", request_serializer=bytes, response_deserializer=bytes
        )
        try:
            call(b"", timeout=60)
            code = grpc.StatusCode.OK
        except grpc.RpcError as error:
            code = error.code()
    assert code in codes


def test_header_limit_of_envoy_is_within_the_daemons_limit():
    listener = yaml.safe_load(CONFIG.read_text())["static_resources"]["listeners"][0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    assert default_of("server.grpc.max_metadata_bytes") == "8KiB"
    # Headers that Envoy adds: its x-headers, te, the path and others, with long values.
    added_headers, added_bytes = 16, 1024
    count = manager["common_http_protocol_options"]["max_headers_count"] + added_headers
    assert manager["max_request_headers_kb"] * 1024 + added_bytes + 32 * count <= 8192


def test_envoy_ends_calls_and_idle_streams_before_the_daemon():
    """The deployment page documents these times."""
    text = CONFIG.read_text()
    times = {name: int(re.search(rf"{name}: (\d+)s", text)[1])
             for name in ("max_stream_duration", "grpc_timeout_header_max", "stream_idle_timeout")}
    assert set(times.values()) == {300}
    page = " ".join((DEPLOY / "README.md").read_text().split())
    assert "at most 300 s" in page and "Envoy ends a stream without traffic after 300 s" in page
    at_daemon = default_of("server.grpc.stream_idle_timeout")
    assert f"after {at_daemon.replace('min', ' min')} (`server.grpc.stream_idle_timeout`)" in page
    assert 60 * int(at_daemon.removesuffix("min")) > times["stream_idle_timeout"]


def test_the_drain_delay_covers_the_health_checks():
    """A NOT_SERVING replica must continue to serve until the checks have removed it from use."""
    check = yaml.safe_load(CONFIG.read_text())["static_resources"]["clusters"][0]["health_checks"][
        0
    ]
    seconds = {
        name: float(re.fullmatch(r"([\d.]+)s", check[name]).group(1))
        for name in ("interval", "timeout")
    }
    noticed = check["unhealthy_threshold"] * (seconds["interval"] + seconds["timeout"])
    options = yaml.safe_load((DEPLOY / "kubernetes" / "base" / "sluice.yaml").read_text())
    assert float(options["server"]["lifecycle"]["drain_delay"].removesuffix("s")) > noticed
