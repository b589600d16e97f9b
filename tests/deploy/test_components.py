"""Tests the optional components and overlays of a deployment, and the Job that copies models."""

import copy
import re
import shutil
import subprocess
import sys

import jsonschema
import pytest
import yaml

import picker_schemas
import schemas
from manifests import (KUBERNETES, POD_LABELS, config_map, container, overlay, render, the,
                       with_components)
from processes import DEMO, DEPLOY, ROOT, SLUICED

METRIC_NAMES = ROOT / "proto" / "metric_names.h"
OPERATOR = "monitoring.coreos.com/v1"


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """The CPU overlay with the component inference_pool."""
    return with_components(tmp_path_factory.mktemp("pool") / "made", "inference_pool",
                           base="overlays/cpu")


@pytest.fixture(scope="module")
def grpc_pool(tmp_path_factory):
    """The CPU overlay with the component inference_pool_grpc."""
    return with_components(tmp_path_factory.mktemp("grpc_pool") / "made", "inference_pool_grpc",
                           base="overlays/cpu")


@pytest.mark.parametrize(
    "folder",
    ["overlays/kserve_cluster", "overlays/kserve_canary", "overlays/example"],
)
def test_other_kustomizations_validate(folder):
    for manifest in render(KUBERNETES / folder):
        schemas.validate(manifest)


@pytest.mark.parametrize("name", ["pool", "grpc_pool"])
def test_the_pool_validates(name, request):
    for manifest in request.getfixturevalue(name):
        schemas.validate(manifest)


@pytest.mark.parametrize(
    "kind, path, value",
    [
        ("InferencePool", ("spec", "targetPortNumber"), 8000),
        ("InferencePool", ("spec", "targetPorts", 0, "number"), 0),
        ("InferencePool", ("spec", "endpointPickerRef", "failureMode"), "Open"),
        ("InferencePool", ("spec", "appProtocol"), "h2c"),
        ("HTTPRoute", ("spec", "rules", 0, "matches", 0, "path", "type"), "Prefix"),
        ("HTTPRoute", ("spec", "rules", 0, "timeouts", "request"), "300"),
        ("HTTPRoute", ("spec", "rules", 0, "backendRefs", 0, "nam"), "sluice"),
        ("PrometheusRule", ("spec", "groups", 0, "rule"), []),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "expr"), None),
        ("Role", ("rules", 0, "verb"), ["get"]),
    ],
)
def test_validators_find_injected_faults(pool, kind, path, value):
    manifest = next(each for each in pool if each["kind"] == kind)
    schemas.assert_finds(manifest, path, value)


@pytest.mark.parametrize("name", ["cpu", "gpu", "keda", "hpa", "kserve"])
def test_every_overlay_brings_scraping_rules_and_dashboards(name):
    manifests = overlay(name)
    kinds = [each["kind"] for each in manifests if each["apiVersion"] == OPERATOR]
    assert sorted(kinds) == ["PodMonitor", "PrometheusRule"]
    groups = the("PrometheusRule", manifests)["spec"]["groups"]
    files = [DEPLOY / "prometheus" / each for each in ("rules.yml", "alerts.yml")]
    expected = [group for each in files for group in yaml.safe_load(each.read_text())["groups"]]
    assert groups == expected, "run deploy/prometheus/make_rule.py"
    dashboards = the("ConfigMap", manifests, "sluice-dashboards")
    assert dashboards["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert dashboards["data"] == {
        each.name: each.read_text() for each in (DEPLOY / "grafana" / "dashboards").glob("*.json")
    }


def test_one_patch_sets_the_label_that_a_prometheus_selects():
    changed = [each for each in overlay("example") if each["apiVersion"] == OPERATOR]
    assert len(changed) == 4
    for each in changed:
        assert each["metadata"]["labels"]["release"] == "my-prometheus"


def test_the_rules_select_the_job_of_every_pod_monitor_of_the_daemon():
    monitor = the("PodMonitor", overlay("cpu"))["spec"]
    assert POD_LABELS[monitor["jobLabel"]] == "sluice"
    endpoint = the("PodMonitor", overlay("kserve"))["spec"]["podMetricsEndpoints"][0]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "sluice"}]
    ports = the("ServingRuntime", overlay("kserve"))["spec"]["containers"][0]["ports"]
    assert endpoint["port"] in [each["name"] for each in ports]


def test_kserve_routes_both_protocols_to_one_service():
    """Port 80 of the Service is the first port of the first container. REST goes to the first port
    whose name has neither grpc nor h2c, and gRPC to the first whose name has one of them."""
    daemon, gateway = the("ServingRuntime", overlay("kserve"))["spec"]["containers"]
    rest, grpc, _ = daemon["ports"]
    assert rest["name"] == "http" and grpc["name"] == "h2c"
    arguments = dict(each.split("=", 1) for each in gateway["args"])
    assert arguments["--listen"] == f"0.0.0.0:{rest['containerPort']}"
    assert arguments["--daemon"] == f"localhost:{grpc['containerPort']}"
    # Callers cannot fill the port of the probes.
    assert arguments["--metrics"] == f"0.0.0.0:{gateway['readinessProbe']['httpGet']['port']}"


def test_the_canary_serves_the_same_name_and_gets_a_part_of_the_calls():
    manifests = overlay("kserve_canary")
    canary = the("InferenceService", manifests, "demo-canary")["spec"]["predictor"]["model"]
    runtime = the("ServingRuntime", manifests)["spec"]["containers"][0]
    assert "$(MODEL_NAME)=/mnt/models" in runtime["args"]
    assert [each["name"] for each in runtime["env"]] == ["MODEL_NAME"]
    stable = the("InferenceService", manifests, "demo")["metadata"]["name"]
    assert canary["env"] == [{"name": "MODEL_NAME", "value": stable}]
    assert canary["storageUri"].startswith("oci+native://")
    route = the("HTTPRoute", manifests)
    # KServe writes routes of these names if it uses the Gateway API.
    services = [each["metadata"]["name"] for each in manifests
                if each["kind"] == "InferenceService"]
    assert route["metadata"]["name"] not in {*services, *(f"{each}-predictor" for each in services)}
    calls, rest = route["spec"]["rules"]
    for rule, port in ((calls, 8001), (rest, 80)):
        assert [(each["name"], each["port"], each["weight"]) for each in rule["backendRefs"]] == [
            ("demo-predictor", port, 9), ("demo-canary-predictor", port, 1)]
    names = the("PodMonitor", manifests)["spec"]["selector"]["matchExpressions"][0]["values"]
    assert names == ["demo", "demo-canary"]


def test_cluster_runtime_equals_the_runtime():
    cluster = the("ClusterServingRuntime", overlay("kserve_cluster"))
    assert cluster["spec"] == the("ServingRuntime", overlay("kserve"))["spec"]
    assert not [each for each in overlay("kserve_cluster") if each["kind"] == "InferenceService"]


def test_one_setting_has_the_address_of_prometheus_for_keda():
    settings = yaml.safe_load((KUBERNETES / "overlays" / "keda" / "settings.yaml").read_text())
    triggers = the("ScaledObject", overlay("keda"))["spec"]["triggers"]
    assert {each["metadata"]["serverAddress"] for each in triggers} == {
        settings["data"]["prometheus"]
    }
    assert not [each for each in overlay("keda") if each["metadata"]["name"] == "settings"]


def test_the_queries_for_keda_select_the_deployment():
    manifests = overlay("keda")
    scaled = the("ScaledObject", manifests)
    namespace = scaled["metadata"]["namespace"]
    assert {each["metadata"]["namespace"] for each in manifests} == {namespace}
    for trigger in scaled["spec"]["triggers"]:
        query = trigger["metadata"]["query"]
        assert re.search(r'namespace="([^"]*)"', query)[1] == namespace
        pods = re.compile(re.search(r'pod=~"([^"]*)"', query)[1])
        name = the("Deployment", manifests)["metadata"]["name"]
        assert pods.fullmatch(f"{name}-74c6d9f8b5-abcde")
        assert not pods.fullmatch(f"{name}-b-74c6d9f8b5-abcde")


def picker_config(manifests):
    return yaml.safe_load(config_map(manifests, "sluice-endpoint-picker")["picker.config.yaml"])


@pytest.mark.parametrize("name, port, protocol", [("pool", 8000, None),
                                                  ("grpc_pool", 8001, "kubernetes.io/h2c")])
def test_picker_reads_existing_metrics_of_the_daemon(name, port, protocol, request):
    manifests = request.getfixturevalue(name)
    picker = container(the("Deployment", manifests, "sluice-endpoint-picker"), "picker")
    arguments = dict(each.removeprefix("--").split("=", 1) for each in picker["args"])
    assert set(arguments) <= picker_schemas.FLAGS - picker_schemas.REFUSED_FLAGS
    config = picker_config(manifests)
    jsonschema.validate(config, picker_schemas.CONFIG)
    plugins = {each["type"]: each.get("parameters") for each in config["plugins"]}
    engine, = plugins["core-metrics-extractor"]["engineConfigs"]
    assert plugins["core-metrics-extractor"]["defaultEngine"] == engine["name"]
    named = {value for key, value in engine.items() if key != "name"}
    declared = set(re.findall(r'"(sluice_\w+)"', METRIC_NAMES.read_text()))
    expected = {"sluice_requests_waiting", "sluice_requests_running"}
    if protocol is None:  # the picker reads the model of HTTP calls only
        expected.add("sluice_lora_requests_info")
    assert named == expected and named <= declared
    containers = the("Deployment", manifests, "sluice")["spec"]["template"]["spec"]["containers"]
    ports = {each["containerPort"]: each["name"] for one in containers for each in one["ports"]}
    assert ports[plugins["metrics-data-source"]["port"]] == "metrics"
    spec = the("InferencePool", manifests)["spec"]
    assert arguments["pool-name"] == "sluice"
    assert spec["selector"]["matchLabels"] == POD_LABELS
    assert spec["targetPorts"] == [{"number": port}] and spec.get("appProtocol") == protocol
    assert ports[port] == ("grpc" if protocol else "http")
    service = the("Service", manifests, spec["endpointPickerRef"]["name"])["spec"]["ports"][0]
    assert service["port"] == spec["endpointPickerRef"]["port"]["number"]
    used = [each["pluginRef"] for each in config["schedulingProfiles"][0]["plugins"]]
    used += [each["pluginRef"] for each in config.get("requestHandler", {}).get("parsers", [])]
    # The picker adds the source and the extractor of metrics by itself.
    assert sorted([*used, "metrics-data-source", "core-metrics-extractor"]) == sorted(plugins)


def test_the_pickers_account_reads_both_groups_of_its_resources(pool):
    groups = {(group, resource) for rule in the("Role", pool)["rules"]
              for group in rule["apiGroups"] for resource in rule["resources"]}
    assert groups == {("", "pods"), ("inference.networking.k8s.io", "inferencepools")} | {
        (group, resource) for group in ("llm-d.ai", "inference.networking.x-k8s.io")
        for resource in ("inferenceobjectives", "inferencemodelrewrites")}


@pytest.mark.parametrize("path, value", [
    (("apiVersion",), "inference.networking.x-k8s.io/v1alpha1"),
    (("plugins", 0, "parameters", "port"), 0),
    (("plugins", 0, "parameters", "ports"), 8002),
    (("plugins", 1, "parameters", "engineConfigs", 0, "queued"), "a"),
    (("plugins", 1, "parameters", "engineConfigs", 0, "loraSpec"), "a{b=c"),
    (("plugins", 2, "type"), "queue-filter"),
    (("scheduling",), []),
])
def test_the_pickers_schema_finds_injected_faults(pool, path, value):
    config = copy.deepcopy(picker_config(pool))
    place = config
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config, picker_schemas.CONFIG)


def test_only_picker_and_gateways_reach_the_pool(pool):
    rules = the("NetworkPolicy", pool, "sluice")["spec"]["ingress"]
    admitted = {
        rule["ports"][0]["port"]: [
            peer.get("podSelector", peer.get("namespaceSelector"))["matchLabels"]
            for other in rules
            if other["ports"] == rule["ports"]
            for peer in other["from"]
        ]
        for rule in rules
    }
    assert admitted == {
        "grpc": [{"sluice.io/client": "true"}],
        "metrics": [{"kubernetes.io/metadata.name": "monitoring"},
                    {"app.kubernetes.io/name": "sluice-endpoint-picker"}],
        "http": [{"sluice.io/http-client": "true"}],
    }


def test_the_example_is_accepted_by_the_daemon(tmp_path):
    options = yaml.safe_load(config_map(overlay("example"), "sluice")["sluice.yaml"])
    options["models"][0]["path"] = str(DEMO)
    file = tmp_path / "sluice.yaml"
    file.write_text(yaml.safe_dump(options))
    check = subprocess.run([SLUICED, "--config", file, "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr
    base = yaml.safe_load((KUBERNETES / "base" / "sluice.yaml").read_text())
    assert options["server"]["lifecycle"] == base["server"]["lifecycle"]


@pytest.mark.parametrize("name", ["sluice", "sluice-envoy", "sluice-gateway"])
def test_the_example_has_one_namespace_and_policies_that_fit_each_other(name):
    manifests = overlay("example")
    assert {each["metadata"]["namespace"] for each in manifests} == {"inference"}
    pod = the("Deployment", manifests, name)["spec"]["template"]["metadata"]["labels"]
    selected = the("NetworkPolicy", manifests, name)["spec"]["podSelector"]["matchLabels"]
    assert selected.items() <= pod.items()
    if name != "sluice":
        callers = the("NetworkPolicy", manifests, "sluice")["spec"]["ingress"][0]["from"][0]
        assert callers["podSelector"]["matchLabels"].items() <= pod.items()


def test_the_gateway_may_send_spans_to_the_namespace_of_the_monitoring():
    page = (DEPLOY.parent / "docs" / "http.md").read_text()
    namespace, port = re.search(r"--otlp-endpoint=http://\w+\.(\w+):(\d+)/", page).groups()
    policy = the("NetworkPolicy", overlay("example"), "sluice-gateway")
    assert {"to": [{"namespaceSelector": {"matchLabels": {
        "kubernetes.io/metadata.name": namespace}}}],
        "ports": [{"port": int(port)}]} in policy["spec"]["egress"]


def documented(start):
    """Returns the first code block of deploy/README.md after `start`, from YAML."""
    text = (DEPLOY / "README.md").read_text()
    assert text.count(start) == 1
    return yaml.safe_load(text.split(start)[1].split("```yaml\n")[1].split("```")[0])


def around(folder, overlay_or_component, **more):
    """Renders a kustomization around the example in the new `folder`."""
    folder.mkdir()
    (folder / "variant").mkdir()
    (folder / "kubernetes").symlink_to(KUBERNETES)
    (folder / "variant" / "kustomization.yaml").write_text(yaml.safe_dump({
        "resources": ["../kubernetes/overlays/example"],
        "components": [f"../kubernetes/components/{each}" for each in overlay_or_component],
        **more}))
    return render(folder / "variant")


def copy_of_keda(folder, **more):
    """Renders a changed copy of the overlay keda in the new `folder`."""
    folder.mkdir()
    (folder / "cpu").symlink_to(KUBERNETES / "overlays" / "cpu")
    shutil.copytree(KUBERNETES / "overlays" / "keda", folder / "mine")
    file = folder / "mine" / "kustomization.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **more}))
    return render(folder / "mine")


@pytest.mark.parametrize("key, value", [("namespace", "other"), ("namePrefix", "my-"),
                                        ("nameSuffix", "-b")])
def test_each_documented_way_to_make_a_copy_keeps_the_references(tmp_path, key, value):
    """Kustomize does not change names in texts."""
    text = (DEPLOY / "README.md").read_text()
    row = re.search(r"^\| the names of the objects \| (.*?) \|", text, re.M)[1]
    refused = re.search(r"Do\s+not set `(\w+)` or `(\w+)`", text)
    if f"`{key}`" not in row and refused and key in refused.groups():
        return
    manifests = around(tmp_path / "example", [], **{key: value})
    services = {each["metadata"]["name"] for each in manifests if each["kind"] == "Service"}
    called = [re.findall(r"dns:///([\w-]+):8001|address: ([\w-]+), port_value: 8001", text)
              for text in map(yaml.safe_dump, manifests)]
    called = {"".join(each) for found in called for each in found}
    assert called and called <= services
    manifests = copy_of_keda(tmp_path / "keda", **{key: value})
    name = the("Deployment", manifests)["metadata"]["name"]
    scaled = the("ScaledObject", manifests)
    assert scaled["spec"]["scaleTargetRef"]["name"] == name
    for trigger in scaled["spec"]["triggers"]:
        query = trigger["metadata"]["query"]
        assert re.fullmatch(re.search(r'pod=~"([^"]*)"', query)[1], f"{name}-74c6d9f8b5-abcde")
        assert f'namespace="{scaled["metadata"]["namespace"]}"' in query


def test_the_documented_patches_reach_all_pods(tmp_path):
    manifests = around(tmp_path / "made", ["inference_pool"], namespace="inference",
                       **documented("**All pods.**"))
    pods = {(each["kind"], each["metadata"]["name"]): each["spec"]["template"]["spec"]
            for each in manifests if each["kind"] in ("Deployment", "Job")}
    assert len(pods) == 5
    for (_, name), pod in pods.items():
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["nodeSelector"] == {"pool": "inference"}
        picker = "sluice-endpoint-picker"
        assert pod["serviceAccountName"] == (picker if name == picker else "inference")


def test_the_documented_certificate_has_the_names_that_callers_use(tmp_path):
    manifests = with_components(tmp_path / "made", "model_claim", "tls", "gateway", "gateway_tls")
    certificate = documented("A Certificate of cert-manager")
    secrets = {volume["secret"]["secretName"] for each in manifests if each["kind"] == "Deployment"
               for volume in each["spec"]["template"]["spec"]["volumes"] if "secret" in volume}
    assert secrets == {certificate["spec"]["secretName"]}
    gateway = container(the("Deployment", manifests, "sluice-gateway"), "gateway")
    called = re.search(r"--daemon=dns:///([\w-]+):", " ".join(gateway["args"]))[1]
    assert called in certificate["spec"]["dnsNames"]
    namespace = certificate["metadata"]["namespace"]
    services = [each["metadata"]["name"] for each in manifests
                if each["kind"] == "Service" and each["metadata"]["name"] != "sluice-gateway"]
    assert set(certificate["spec"]["dnsNames"]) == {
        name + end for name in services
        for end in ("", f".{namespace}.svc", f".{namespace}.svc.cluster.local")}


def fill(models, target):
    """Runs the command of the Job on local folders and returns its output."""
    job = the("Job", overlay("example"))["spec"]["template"]["spec"]
    shell, flags, script = job["containers"][0]["command"]
    script = script.replace("/models/", f"{models}/").replace("/target", str(target))
    done = subprocess.run([shell, flags, script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_job_copies_new_models_and_keeps_those_that_exist(tmp_path):
    models, target = tmp_path / "models", tmp_path / "target"
    target.mkdir()
    for name in ("first", "second"):
        (models / name).mkdir(parents=True)
        (models / name / "config.json").write_text(name)
    (target / ".incoming").mkdir()
    (target / ".incoming" / "rest of a Job that was killed").write_text("")
    assert fill(models, target) == ["first copied", "second copied"]
    (models / "first" / "config.json").write_text("changed")
    (models / "third").mkdir()
    assert fill(models, target) == ["first exists", "second exists", "third copied"]
    assert (target / "first" / "config.json").read_text() == "first"
    assert sorted(each.name for each in target.iterdir()) == ["first", "second", "third"]


def test_the_recipe_fills_the_one_claim_that_the_daemons_mount():
    """The commands of deploy/README.md, applied to the example as it is."""
    section = (DEPLOY / "README.md").read_text().split("## Kubernetes\n", 1)[1]
    commands = [line.partition("#")[0].split() for line in section.split("```")[1].splitlines()
                if line]
    manifests = overlay("example")
    claim = the("PersistentVolumeClaim", manifests)  # There is only one.
    namespace = claim["metadata"]["namespace"]
    images = {}
    for kind, name in (("Job", None), ("Deployment", "sluice")):
        made = the(kind, manifests, name)
        assert made["metadata"]["namespace"] == namespace
        pod = made["spec"]["template"]["spec"]
        assert [each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"]
                if each["name"] == "models"] == [claim["metadata"]["name"]]
        images[kind] = pod["containers"][0]["image"]
    assert images["Job"] in [
        f"{each['newName']}:{each['newTag']}" for each in yaml.safe_load(
            (KUBERNETES / "overlays" / "example" / "kustomization.yaml").read_text())["images"]]
    kinds = {"job": "Job", "deployment": "Deployment"}
    created, waited = [], set()
    for command in commands:
        if command[:3] == ["kubectl", "create", "namespace"]:
            created.append(command[3])
        for word in command:
            if word.partition("/")[0] in kinds and command[0] == "kubectl":
                kind, _, name = word.partition("/")
                assert the(kinds[kind], manifests, name) and namespace in command
                waited.add(kinds[kind])
    assert created == [namespace] and waited == set(kinds.values())
    applied = [command[-1] for command in commands if command[:3] == ["kubectl", "apply", "-k"]]
    copied, = [command[-1] for command in commands if command[0] == "cp"]
    assert applied == [copied]


def test_the_object_of_the_operator_is_written_from_the_rules():
    written = subprocess.run(
        [sys.executable, "-c", "import make_rule; print(make_rule.rule(), end='')"],
        cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=True)
    assert (DEPLOY / "prometheus" / "prometheus_rule.yaml").read_text() == written.stdout
