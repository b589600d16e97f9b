"""Tests the overlay for untrusted networks with its real Envoy and a real daemon."""

import random
import subprocess
import sys
import threading

import grpc
import pytest
import yaml
from tritonclient.grpc import service_pb2_grpc

import open_loop
import schemas
from authority import Authority
from envoy import Envoy
from manifests import config_map, default_of, overlay, the
from processes import DEPLOY, Daemon, tool, wait_until

HEADER = 12 << 10  # bytes: above the daemon's limit, below Envoy's default limit


@pytest.fixture(scope="module")
def manifests():
    return overlay("untrusted")


@pytest.fixture(scope="module")
def pod(manifests):
    return the("Deployment", manifests, "sluice")["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def config(manifests):
    return config_map(manifests, "sluice-envoy")["envoy.yaml"]


@pytest.fixture(scope="module")
def sidecar(pod, config, tmp_path_factory):
    """The pod's Envoy, a daemon with the pod's options, and a channel that trusts the Envoy."""
    folder, authority = tmp_path_factory.mktemp("sidecar"), Authority()
    for name, text in zip(("tls.crt", "tls.key"), authority.pair()):
        (folder / name).write_bytes(text)
    variables = {each["name"]: each["value"] for each in container_of(pod, "sluiced")["env"]}
    per_address = variables["SLUICE_SERVER_GRPC_CONNECTION_MAX_PER_ADDRESS"]
    with Daemon(folder, "--server.grpc.connection.max-per-address", per_address) as daemon, Envoy(
        folder, [daemon.ports[0]], config.replace("/etc/envoy-tls", str(folder))
    ) as envoy:
        wait_until(lambda: envoy.healthy() == 1, "the daemon is healthy")
        credentials = grpc.ssl_channel_credentials(authority.certificate)
        yield lambda: grpc.secure_channel(
            envoy.address, credentials, options=[("grpc.max_metadata_size", 1 << 20)])


def container_of(pod, name):
    (found,) = (each for each in pod["containers"] + pod["initContainers"] if each["name"] == name)
    return found


def test_the_overlay_validates(manifests):
    for manifest in manifests:
        schemas.validate(manifest)


def test_the_configuration_is_the_committed_one_and_valid(config, tmp_path):
    written = subprocess.run(
        [sys.executable, "-c", "import make_sidecar, pathlib\n"
         "print(make_sidecar.sidecar(pathlib.Path('envoy.yaml').read_text()), end='')"],
        cwd=DEPLOY / "envoy", capture_output=True, text=True, check=True)
    assert config == written.stdout, "run deploy/envoy/make_sidecar.py"
    for name, text in zip(("tls.crt", "tls.key"), Authority().pair()):
        (tmp_path / name).write_bytes(text)
    path = tmp_path / "envoy.yaml"
    path.write_text(config.replace("/etc/envoy-tls", str(tmp_path)))
    check = subprocess.run([tool("envoy"), "--mode", "validate", "-c", path], capture_output=True,
                           text=True)
    assert check.returncode == 0 and "deprecated" not in check.stderr.lower(), check.stderr


def test_only_envoy_is_reachable_from_outside(manifests, pod, config):
    daemon, envoy = container_of(pod, "sluiced"), container_of(pod, "envoy")
    listener = yaml.safe_load(config)["static_resources"]["listeners"][0]["address"]
    port = listener["socket_address"]["port_value"]
    assert {"name": "grpc", "containerPort": port} in envoy["ports"]
    assert [each["name"] for each in daemon["ports"]] == ["metrics"]
    address = next(each["value"] for each in daemon["env"]
                   if each["name"] == "SLUICE_SERVER_GRPC_ADDRESS")
    cluster = yaml.safe_load(config)["static_resources"]["clusters"][0]
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    upstream = endpoint["endpoint"]["address"]["socket_address"]
    assert address == f"{upstream['address']}:{upstream['port_value']}" == "127.0.0.1:8001"
    ingress = the("NetworkPolicy", manifests, "sluice")["spec"]["ingress"]
    assert ingress[0] == {"ports": [{"port": port}]}
    for name in ("sluice", "sluice-headless"):
        assert the("Service", manifests, name)["spec"]["ports"][0]["targetPort"] == port


def test_envoy_limits_fit_the_daemons_limits(pod, config):
    cluster = yaml.safe_load(config)["static_resources"]["clusters"][0]
    (protocol,) = cluster["typed_extension_protocol_options"].values()
    streams = protocol["explicit_http_config"]["http2_protocol_options"]["max_concurrent_streams"]
    assert streams <= int(default_of("server.grpc.max_streams"))
    connections = cluster["circuit_breakers"]["thresholds"][0]["max_connections"]
    variables = {each["name"]: each["value"] for each in container_of(pod, "sluiced")["env"]}
    most = int(variables["SLUICE_SERVER_GRPC_CONNECTION_MAX_PER_ADDRESS"])
    assert connections <= most <= int(default_of("server.grpc.connection.max"))
    assert "outlier_detection" not in cluster  # it would eject the only host
    waits = 20 + 10 + 30  # GET /drain, drain_delay, drain_timeout
    assert pod["terminationGracePeriodSeconds"] >= waits + 5
    assert container_of(pod, "envoy")["restartPolicy"] == "Always"


def stream(stub, seed):
    message = open_loop.request(random.Random(seed), max_tokens=2)
    return list(stub.ModelStreamInfer(iter([message]), timeout=60))


def test_calls_and_streams_are_answered_through_the_sidecar(sidecar):
    with sidecar() as channel:
        answers = stream(service_pb2_grpc.GRPCInferenceServiceStub(channel), 1)
    assert answers and not any(answer.error_message for answer in answers)


def test_large_headers_of_one_caller_do_not_break_streams_of_another(sidecar):
    """Envoy shares its connection to the daemon among callers."""
    begun, end = threading.Event(), threading.Event()

    def messages(seed):
        yield open_loop.request(random.Random(seed), max_tokens=2)
        begun.set()
        end.wait(60)
        yield open_loop.request(random.Random(seed), max_tokens=2)

    with sidecar() as victim, sidecar() as attacker:
        streams = [service_pb2_grpc.GRPCInferenceServiceStub(victim).ModelStreamInfer(
            messages(seed), timeout=60) for seed in range(5)]
        firsts = [next(each) for each in streams]
        assert begun.wait(60) and not any(each.error_message for each in firsts)
        call = attacker.unary_unary("/inference.GRPCInferenceService/ServerReady")
        for size in (HEADER, 100 * 40):
            count = 100 if size < HEADER else 1
            metadata = [(f"x-{i}", "x" * (size // count)) for i in range(count)]
            for _ in range(10):
                with pytest.raises(grpc.RpcError):
                    call(b"", metadata=metadata, timeout=60)
        end.set()
        for each in streams:
            assert not any(answer.error_message for answer in each)
