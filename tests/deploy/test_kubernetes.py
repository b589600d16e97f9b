"""Renders the manifests with kubectl's Kustomize, validates them and checks consistency."""

import json
import re
import subprocess
import sys

import pytest
import yaml

import schemas
from manifests import (OVERLAYS, POD_LABELS, SCALED, config_map, default_of, overlay, the,
                       with_components)
from processes import DEMO, DEPLOY, ROOT, SLUICE, SLUICED, Daemon

MODEL_VOLUMES = ["model_claim", "model_init", "model_image"]


def container_and_pod(name):
    """Returns the daemon's container and the pod spec of an overlay."""
    if name == "kserve":
        runtime, service = the("ServingRuntime", overlay(name)), the(
            "InferenceService", overlay(name)
        )
        return runtime["spec"]["containers"][0], service["spec"]["predictor"]
    pod = the("Deployment", overlay(name))["spec"]["template"]["spec"]
    return next(each for each in pod["containers"] if each["name"] == "sluiced"), pod


PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def health_port(container):
    """Returns the port of server.grpc.health_address, from the environment or the arguments."""
    settings = {each["name"]: each.get("value") for each in container["env"]}
    address = settings.get("SLUICE_SERVER_GRPC_HEALTH_ADDRESS")
    if address is None:
        args = container["args"]
        address = args[args.index("--server.grpc.health-address") + 1]
    host, port = address.rsplit(":", 1)
    assert host == "0.0.0.0"
    return int(port)


def seconds(text):
    return float(re.fullmatch(r"([\d.]+)s", text).group(1))


def drain_seconds(name):
    """Returns the drain delay and drain timeout of an overlay's daemon in seconds."""
    if name == "kserve":
        args = container_and_pod(name)[0]["args"]
        return [
            seconds(args[args.index(f"--server.lifecycle.drain-{each}") + 1])
            for each in ("delay", "timeout")
        ]
    lifecycle = options(name)["server"]["lifecycle"]
    return [seconds(lifecycle[f"drain_{each}"]) for each in ("delay", "timeout")]


def options(name):
    return yaml.safe_load(config_map(overlay(name), "sluice")["sluice.yaml"])


@pytest.fixture
def variant(tmp_path):
    """Renders the base with some components."""

    def make(*components):
        return with_components(tmp_path / "variant", *components)

    return make


@pytest.mark.parametrize("name", OVERLAYS)
def test_overlay_validates(name):
    for manifest in overlay(name):
        schemas.validate(manifest)


@pytest.mark.parametrize("model", MODEL_VOLUMES)
def test_components_validate(variant, model):
    manifests = variant(model, "monitoring", "grpc_route")
    for manifest in manifests:
        schemas.validate(manifest)
    pod = the("Deployment", manifests)["spec"]["template"]["spec"]
    mount = next(each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "models")
    assert mount == {"name": "models", "mountPath": "/models", "readOnly": True}
    assert [each["name"] for each in pod["volumes"]].count("models") == 1


def test_daemon_admits_the_gateway_and_the_gateway_has_time_to_end(variant):
    manifests = variant("model_claim", "gateway")
    for manifest in manifests:
        schemas.validate(manifest)
    pod = the("Deployment", manifests, "sluice-gateway")["spec"]["template"]
    container = pod["spec"]["containers"][0]
    admitted = the("NetworkPolicy", manifests, "sluice")["spec"]["ingress"][0]["from"]
    labels = pod["metadata"]["labels"]
    assert admitted[0]["podSelector"]["matchLabels"].items() <= labels.items()
    for kind in ("NetworkPolicy", "PodDisruptionBudget", "Service"):
        spec = the(kind, manifests, "sluice-gateway")["spec"]
        selector = spec["podSelector" if kind == "NetworkPolicy" else "selector"]
        selected = selector.get("matchLabels", selector)
        assert selected == {"app.kubernetes.io/name": "sluice-gateway"} and selected.items() < (
            labels.items())
    arguments = json.dumps(container["args"])
    read = subprocess.run(
        [sys.executable, "-c", "from sluice_client.gateway import __main__ as gateway\n"
         f"given = gateway.arguments().parse_args({arguments})\n"
         "print(given.daemon, given.listen, given.metrics, given.drain_timeout)"],
        capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "clients" / "python")})
    daemon, listen, metrics, drain = read.stdout.split()
    name, port = daemon.removeprefix("dns:///").split(":")
    headless = the("Service", manifests, name)["spec"]
    assert headless["clusterIP"] == "None" and headless["ports"][0]["port"] == int(port)
    ports = {each["name"]: f"0.0.0.0:{each['containerPort']}" for each in container["ports"]}
    assert ports == {"http": listen, "metrics": metrics}
    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert sleep + int(drain) < pod["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("file", [
    "components/gateway/deployment.yaml", "components/inference_pool/sidecar.yaml",
    "overlays/kserve/serving_runtime.yaml"])
def test_gateways_take_the_calls_of_a_client_with_1000_connections(file):
    arguments = (ROOT / "deploy" / "kubernetes" / file).read_text()
    limits = re.findall(r"--max-(?:in-flight|connections)=(\d+)", arguments)
    assert limits and all(0.76 * int(each) >= 1000 for each in limits)  # the share of one caller


def test_probes_of_a_daemon_with_tls_stay_in_plain_text(variant):
    manifests = variant("model_claim", "tls")
    for manifest in manifests:
        schemas.validate(manifest)
    pod = the("Deployment", manifests)["spec"]["template"]["spec"]
    container = pod["containers"][0]
    settings = {each["name"]: each["value"] for each in container["env"]}
    for probe in PROBES:
        assert container[probe]["grpc"]["port"] == health_port(container)
    mount = next(each for each in container["volumeMounts"] if each["name"] == "tls")
    for option in ("CERTIFICATE", "KEY"):
        assert settings[f"SLUICE_SERVER_TLS_{option}_FILE"].startswith(mount["mountPath"] + "/tls.")
    assert "tls" in [each["name"] for each in pod["volumes"]]


@pytest.mark.parametrize("component", ["tls", "callers"])
def test_sluice_in_a_pod_calls_the_admin_address_if_others_need_credentials(variant, component):
    container = the("Deployment", variant("model_claim", component))["spec"]["template"]["spec"][
        "containers"][0]
    settings = {each["name"]: each["value"] for each in container["env"]}
    port = default_of("server.admin.address").strip("\"").rsplit(":", 1)[1]
    assert settings["SLUICE_SERVER"] == f"localhost:{port}"


@pytest.mark.parametrize(
    "name, kind, path, value",
    [
        ("cpu", "Deployment", ("spec", "template", "spec", "terminationGracePeriod"), 45),
        ("cpu", "Service", ("spec", "clusterIp"), "None"),
        ("cpu", "PodDisruptionBudget", ("spec", "maxUnavailable"), [1]),
        ("hpa", "HorizontalPodAutoscaler", ("spec", "metrics"), "queue"),
        ("hpa", "PodMonitor", ("spec", "podMetricsEndpoint"), []),
        ("keda", "ScaledObject", ("spec", "minReplicas"), 2),
        ("keda", "ScaledObject", ("spec", "maxReplicaCount"), "ten"),
        ("kserve", "ServingRuntime", ("spec", "protocolVersion"), ["grpc-v2"]),
        (
            "kserve",
            "ServingRuntime",
            ("spec", "containers"),
            [{"name": "a", "imagePolicy": "Always"}],
        ),
        ("kserve", "InferenceService", ("spec", "predictor", "model", "storageURI"), "pvc://a"),
        ("kserve", "InferenceService", ("spec", "predictor", "minReplicas"), "two"),
    ],
)
def test_validators_find_injected_faults(name, kind, path, value):
    manifest = next(each for each in overlay(name) if each["kind"] == kind)
    schemas.assert_finds(manifest, path, value)


@pytest.mark.parametrize(
    "path, value",
    [
        (("rules", 0, "matches", 0, "method", "services"), "inference"),
        (("rules", 0, "matches", 0, "method", "service"), "inference service"),
        (("rules", 0, "matches", 0, "method"), {}),
        (("rules", 0, "backendRefs", 0, "port"), 0),
        (("rules", 0, "backendRefs", 0, "weight"), -1),
        (("parentRefs", 0, "namespace"), "Gateways"),
        (("hostnames", 0), "SLUICE.example.com"),
    ],
)
def test_route_validator_finds_injected_faults(variant, path, value):
    route = the("GRPCRoute", variant("grpc_route"))
    place = route["spec"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(schemas.Invalid):
        schemas.validate(route)


@pytest.mark.parametrize("name", OVERLAYS)
def test_grace_period_covers_the_drain(name):
    _, pod = container_and_pod(name)
    delay, timeout = drain_seconds(name)
    # The daemon ends at most 5 s after both, even if a part of it hangs (docs/failures.md).
    assert delay + timeout + 5 < pod["terminationGracePeriodSeconds"]
    # The endpoints change some time after a pod has become unready or was deleted.
    assert delay >= 5


@pytest.mark.parametrize("name", OVERLAYS)
def test_probes_use_services_of_the_daemon_at_the_address_for_health(name, served):
    container, _ = container_and_pod(name)
    asked = {}
    for probe in PROBES:
        asked[probe] = container[probe]["grpc"]["service"]
        # The address for calls refuses new connections when memory is short.
        assert container[probe]["grpc"]["port"] == health_port(container)
        assert health_port(container) not in [each["containerPort"] for each in container["ports"]]
        check = [SLUICE, "--server", served.grpc, "health", "--service", asked[probe]]
        assert subprocess.run(check, capture_output=True).returncode == 0, asked[probe]
    # A liveness probe on readiness would kill a draining or starting replica.
    assert asked["livenessProbe"] == "sluice.liveness"
    assert asked["startupProbe"] == asked["readinessProbe"] == "sluice.readiness"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with Daemon(tmp_path_factory.mktemp("served")) as daemon:
        yield daemon


@pytest.mark.parametrize("name", SCALED)
def test_the_daemon_accepts_the_options_of_an_overlay(name, tmp_path):
    text = options(name)
    assert text["models"][0]["path"].startswith("/models/")
    text["models"][0]["path"] = str(DEMO)
    file = tmp_path / "sluice.yaml"
    file.write_text(yaml.safe_dump(text))
    check = subprocess.run([SLUICED, "--config", file, "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


def test_the_daemon_accepts_the_arguments_for_kserve():
    args = container_and_pod("kserve")[0]["args"]
    filled = [
        each.replace("$(MODEL_NAME)", "demo").replace("/mnt/models", str(DEMO)) for each in args
    ]
    assert filled != args
    check = subprocess.run([SLUICED, *filled, "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_container_has_no_privileges_and_bounded_resources(name):
    container, pod = container_and_pod(name)
    context = container["securityContext"] | pod.get("securityContext", {})
    assert context["runAsNonRoot"] and context["runAsUser"] == 10001  # The Dockerfile's USER.
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not pod["automountServiceAccountToken"]
    # Device plugins do not all support user namespaces.
    assert pod["hostUsers"] == (name == "gpu")
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert not container["image"].endswith(":latest") and ":" in container["image"]


@pytest.mark.parametrize("components", [
    ("tls", "client_ca", "callers", "gateway", "gateway_tls", "gateway_client_tls"),
    ("envoy_sidecar", "callers"), ("envoy", "envoy_tls")])
def test_pods_may_read_the_files_of_their_secrets(variant, components):
    for manifest in variant("model_claim", *components):
        if manifest["kind"] != "Deployment":
            continue
        pod = manifest["spec"]["template"]["spec"]
        if any("secret" in each for each in pod.get("volumes", [])):
            # Kubernetes gives the files to root and to this group.
            assert "fsGroup" in pod["securityContext"], manifest["metadata"]["name"]


def test_the_sidecar_is_reached_by_numbers_of_ports_and_has_time_to_end(variant):
    """Before Kubernetes 1.33, a Service does not find the named port of a sidecar."""
    manifests = variant("model_claim", "envoy_sidecar")
    pod = the("Deployment", manifests)["spec"]["template"]["spec"]
    envoy = next(each for each in pod["initContainers"] if each["name"] == "envoy")
    ports = {each["name"]: each["containerPort"] for each in envoy["ports"]}
    for service in ("sluice", "sluice-headless"):
        assert the("Service", manifests, service)["spec"]["ports"][0]["targetPort"] == ports["grpc"]
    calls, scrapes = the("NetworkPolicy", manifests, "sluice")["spec"]["ingress"]
    assert calls["ports"] == [{"port": ports["grpc"]}]
    assert {"port": ports["envoy-metrics"]} in scrapes["ports"]
    drain_s = 20  # of GET /drain, before SIGTERM
    delay, timeout = drain_seconds("cpu")
    assert drain_s + delay + timeout + 5 < pod["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("name", SCALED)
def test_selectors_match_the_pods_of_sluice_and_no_others(name):
    manifests = overlay(name)
    deployment = the("Deployment", manifests)
    assert deployment["spec"]["template"]["metadata"]["labels"] == POD_LABELS
    assert deployment["spec"]["selector"]["matchLabels"] == POD_LABELS
    assert the("PodDisruptionBudget", manifests)["spec"]["selector"]["matchLabels"] == POD_LABELS
    assert the("NetworkPolicy", manifests)["spec"]["podSelector"]["matchLabels"] == POD_LABELS
    for constraint in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]:
        assert constraint["labelSelector"]["matchLabels"] == POD_LABELS
    for service in (each for each in manifests if each["kind"] == "Service"):
        assert service["spec"]["selector"] == POD_LABELS
    # The callers' selector does not match the pods of Sluice.
    callers = the("NetworkPolicy", manifests)["spec"]["ingress"][0]["from"][0]["podSelector"][
        "matchLabels"
    ]
    assert not POD_LABELS.items() & callers.items()


@pytest.mark.parametrize("name", SCALED)
def test_every_port_is_used_by_name_and_exists(name):
    manifests = overlay(name)
    ports = {port["name"] for port in container_and_pod(name)[0]["ports"]}
    used = [
        port["port"]
        for rule in the("NetworkPolicy", manifests)["spec"]["ingress"]
        for port in rule["ports"]
    ]
    used += [
        port["targetPort"]
        for each in manifests
        if each["kind"] == "Service"
        for port in each["spec"]["ports"]
    ]
    used += [
        end["port"]
        for each in manifests
        if each["kind"] == "PodMonitor"
        for end in each["spec"]["podMetricsEndpoints"]
    ]
    assert set(used) == ports


def test_headless_service_gives_each_replica_an_address():
    assert the("Service", overlay("cpu"), "sluice-headless")["spec"]["clusterIP"] == "None"


def test_each_replica_has_one_device():
    container, _ = container_and_pod("gpu")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    # A rolling update never runs more replicas than there are devices.
    rolling = the("Deployment", overlay("gpu"))["spec"]["strategy"]["rollingUpdate"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize("name", ["keda", "hpa"])
def test_the_autoscaler_sets_the_number_of_replicas(name):
    manifests = overlay(name)
    deployment = the("Deployment", manifests)
    assert "replicas" not in deployment["spec"]
    spec = the("ScaledObject" if name == "keda" else "HorizontalPodAutoscaler", manifests)["spec"]
    assert spec["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    behavior = (spec["advanced"]["horizontalPodAutoscalerConfig"] if name == "keda" else spec)[
        "behavior"
    ]
    assert (
        behavior["scaleUp"]["stabilizationWindowSeconds"]
        < behavior["scaleDown"]["stabilizationWindowSeconds"]
    )


def test_a_disruption_leaves_at_least_one_replica():
    for name in ("cpu", "gpu"):
        manifests = overlay(name)
        budget = the("PodDisruptionBudget", manifests)["spec"]["maxUnavailable"]
        assert the("Deployment", manifests)["spec"]["replicas"] > budget


def test_kserve_serves_the_open_inference_protocol():
    runtime, service = the("ServingRuntime", overlay("kserve")), the(
        "InferenceService", overlay("kserve")
    )
    model = service["spec"]["predictor"]["model"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    assert model["modelFormat"]["name"] in [
        each["name"] for each in runtime["spec"]["supportedModelFormats"]
    ]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert runtime["spec"]["containers"][0]["name"] == "kserve-container"


def test_the_adapter_has_the_metrics_of_the_autoscaler():
    """tests/loadtest/scale/autoscaler_test.cc tests that both autoscalers have the same rule."""
    adapter = yaml.safe_load((DEPLOY / "prometheus" / "adapter_rules.yaml").read_text())
    asked = the("HorizontalPodAutoscaler", overlay("hpa"))["spec"]["metrics"]
    assert [each["pods"]["metric"]["name"] for each in asked] == [
        rule["name"]["as"] for rule in adapter["rules"]["custom"]
    ]
