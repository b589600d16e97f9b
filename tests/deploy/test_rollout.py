"""Tests the cluster set-up of Envoy in deploy/README.md with a real Envoy and real daemons."""

import asyncio
import subprocess
import sys

import grpc
import pytest
import yaml

import open_loop
from authority import Authority
from envoy import CONFIG, Envoy
from manifests import config_map, container, the, with_components
from processes import DEMO, DEPLOY, Daemon, free_port, get, tool, wait_until

# A replica reports NOT_SERVING for longer than two health checks take.
DRAIN = ("--server.lifecycle.drain-delay", "2500ms")


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    """The CPU overlay with Envoy, without and with TLS at Envoy."""
    folder = tmp_path_factory.mktemp("overlay")
    return {
        "plain": with_components(folder / "plain", "envoy", base="overlays/cpu"),
        "tls": with_components(folder / "tls", "envoy", "envoy_tls", base="overlays/cpu"),
    }


def configuration(manifests):
    return config_map(manifests, "sluice-envoy")["envoy.yaml"]


def daemon(folder, version, **named):
    """Starts a daemon whose model `demo` has version `version`."""
    return Daemon(folder, "--model", f"demo:{version}={DEMO}", *DRAIN, model=None, **named)


def test_no_call_fails_while_a_model_version_is_replaced(manifests, tmp_path):
    """Replaces two replicas with two of the next version, like a rolling update with a surge."""
    ports = [(free_port(), free_port()) for _ in range(3)]
    old = [daemon(tmp_path, 1, ports=each) for each in ports[:2]]
    with Envoy(tmp_path, [each[0] for each in ports], configuration(manifests["plain"])) as envoy:

        def wait_healthy(count):
            wait_until(lambda: envoy.healthy() == count, f"{count} healthy replicas")

        def roll():
            wait_healthy(2)
            for place, replica in zip((ports[2], ports[0]), old):
                started.append(daemon(tmp_path, 2, ports=place))
                wait_healthy(3)
                assert replica.stop() == 0
                wait_healthy(2)

        started = []
        try:
            wait_healthy(2)
            outcome = open_loop.during(envoy.address, roll, per_second=40)
            after = asyncio.run(open_loop.run(envoy.address, 40, count=40))
        finally:
            for each in (*old, *started):
                if each.process.poll() is None:
                    each.kill()
    print(f"rolled version: {outcome.total} calls, {outcome.failed} failed")
    assert outcome.failed == 0, outcome.failures
    assert {"1", "2"} == set(outcome.versions), "the load did not see both versions"
    assert set(after.versions) == {"2"} and after.failed == 0


def test_no_call_fails_when_an_envoy_ends(tmp_path):
    """GET /drain, the preStop hook, moves callers to the other Envoy between calls."""
    with Daemon(tmp_path) as replica:
        first, second = (
            Envoy(tmp_path, [replica.ports[0]], change=shorten_the_wait,
                  options=("--drain-time-s", 1))
            for _ in range(2)
        )
        with first, second:
            for each in (first, second):
                wait_until(lambda each=each: each.healthy() == 1, "the replica is healthy")

            def end():
                wait_until(lambda: calls(first) > 0, "the first Envoy has calls")
                assert get(first.operations, "/drain") == ""
                wait_until(lambda: first.statistic("http.sluice.downstream_cx_active") == 0,
                           "the callers have left the first Envoy")
                first.stop()

            addresses = ",".join(each.address for each in (first, second))
            outcome = open_loop.during(f"ipv4:{addresses}", end, per_second=40)
            assert calls(second) > 0
    assert outcome.failed == 0, outcome.failures


def calls(envoy):
    return envoy.statistic("http.sluice.downstream_rq_total")


def shorten_the_wait(config):
    """Makes GET /drain take 4 s instead of 20 s."""
    text = yaml.safe_dump(config)
    assert "fixed_delay: 20s" in text
    config.clear()
    config.update(yaml.safe_load(text.replace("fixed_delay: 20s", "fixed_delay: 4s")))


def test_other_hosts_can_read_only_statistics_and_health(tmp_path):
    with Daemon(tmp_path) as replica, Envoy(tmp_path, [replica.ports[0]]) as envoy:
        assert "envoy_cluster_upstream_rq" in get(envoy.operations, "/stats/prometheus")
        assert get(envoy.operations, "/ready") == "LIVE\n"
        for path in ("/", "/config_dump", "/stats", "/quitquitquit", "/clusters", "/certs"):
            assert get(envoy.operations, path) is None, path


def test_prestop_hook_calls_the_drain_route_and_fits_the_times(manifests):
    deployment = the("Deployment", manifests["plain"], "sluice-envoy")
    pod = deployment["spec"]["template"]["spec"]
    envoy = container(deployment, "envoy")
    config = yaml.safe_load(CONFIG.read_text())["static_resources"]["listeners"]
    ports = [each["address"]["socket_address"]["port_value"] for each in config]
    assert [each["containerPort"] for each in envoy["ports"]] == ports
    hook = envoy["lifecycle"]["preStop"]["httpGet"]
    manager = config[1]["filter_chains"][0]["filters"][0]["typed_config"]
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    drain = next(each for each in routes if each["name"] == "drain")
    assert hook == {"path": drain["match"]["path"], "port": "metrics"}
    fault = drain["typed_per_filter_config"]["envoy.filters.http.fault"]["config"]
    wait = int(fault["delay"]["fixed_delay"].removesuffix("s"))
    drained = int(envoy["args"][envoy["args"].index("--drain-time-s") + 1])
    assert drained < wait < pod["terminationGracePeriodSeconds"]
    # Envoy refuses requests at this heap size, which is below the container's limit.
    heap = yaml.safe_load(CONFIG.read_text())["overload_manager"]["resource_monitors"][0]
    limit = int(envoy["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
    assert heap["typed_config"]["max_heap_size_bytes"] * 1.2 < limit


def test_the_overlay_has_the_committed_configurations(manifests):
    assert configuration(manifests["plain"]) == CONFIG.read_text()
    written = subprocess.run(
        [sys.executable, "-c", "import make_tls, pathlib\n"
         "print(make_tls.with_tls(pathlib.Path('envoy.yaml').read_text()), end='')"],
        cwd=DEPLOY / "envoy", capture_output=True, text=True, check=True)
    assert configuration(manifests["tls"]) == written.stdout, "run deploy/envoy/make_tls.py"


def test_calls_are_answered_through_tls(manifests, tmp_path):
    authority = Authority()
    pod = the("Deployment", manifests["tls"], "sluice-envoy")
    mount = next(each for each in container(pod, "envoy")["volumeMounts"] if each["name"] == "tls")
    for name, text in zip(("tls.crt", "tls.key"), authority.pair()):
        (tmp_path / name).write_bytes(text)
    text = configuration(manifests["tls"])
    assert text.count(mount["mountPath"]) == 3
    with Daemon(tmp_path) as replica, Envoy(
        tmp_path, [replica.ports[0]], text.replace(mount["mountPath"], str(tmp_path))
    ) as envoy:
        wait_until(lambda: envoy.healthy() == 1, "the replica is healthy")
        trusted = grpc.ssl_channel_credentials(authority.certificate)
        with grpc.secure_channel(envoy.address, trusted) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
            assert call(b"", timeout=60) == b"\x08\x01"
        with grpc.insecure_channel(envoy.address) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary("/inference.GRPCInferenceService/ServerReady")(b"", timeout=60)


def test_the_image_of_envoy_is_the_version_that_is_tested(manifests):
    image = container(the("Deployment", manifests["plain"], "sluice-envoy"), "envoy")["image"]
    version = subprocess.run([tool("envoy"), "--version"], capture_output=True, text=True).stdout
    assert image.rpartition("-v")[2] in version


def test_envoy_finds_the_replicas_by_their_service(manifests):
    config = yaml.safe_load(configuration(manifests["plain"]))
    endpoint = config["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0]
    named = endpoint["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    service = the("Service", manifests["plain"], named["address"])["spec"]
    assert service["clusterIP"] == "None" and service["ports"][0]["port"] == named["port_value"]
