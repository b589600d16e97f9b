"""Lints and renders the Helm chart, and compares it with the manifests of deploy/kubernetes."""

import copy
import json
import pathlib
import random
import re
import subprocess
import sys

import pytest
import yaml

import schemas
from manifests import KUBERNETES, overlay, render, the
from processes import DEMO, DEPLOY, ROOT, SLUICE, SLUICED, tool

CHART = DEPLOY / "helm" / "sluice"
OLD_VALUES = pathlib.Path(__file__).with_name("chart_values_0_1_0.yaml")


def helm(*arguments):
    return subprocess.run([tool("helm"), *arguments], capture_output=True, text=True)


def chart(*settings, release="sluice", values=None, namespace="default"):
    """Returns the chart's manifests with the given settings, each NAME=VALUE, over `values`."""
    options = ["--namespace", namespace]
    options += [part for each in settings for part in ("--set", each)]
    for key, value in (values or {}).items():
        options += ["--set-json", f"{key}={json.dumps(value)}"]
    result = helm("template", release, CHART, *options)
    assert result.returncode == 0, result.stderr
    return [each for each in yaml.safe_load_all(result.stdout) if each]


# The chart's values for each overlay and component.
MONITORED = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True},
             "dashboards": {"enabled": True}}
BASE = {"config": yaml.safe_load((KUBERNETES / "base" / "sluice.yaml").read_text())}
CLAIM = {**BASE, "models": {"claim": "sluice-models", "storage": "10Gi"}}
CPU = {**MONITORED, **CLAIM}
GPU = {"gpus": 1}
OVERLAYS = {
    "cpu": CPU,
    "gpu": {**CPU, **GPU},
    "hpa": {**CPU, "autoscaling": {"enabled": True}},
    "keda": {**CPU, "autoscaling": {"enabled": True, "kind": "keda"}},
    "untrusted": {**CPU, "envoy": {"sidecar": True}, "networkPolicy": {"anyClient": True}},
    "example": {
        **CPU,
        "image": {"repository": "registry.example/sluice"},
        "replicas": 3,
        "config": yaml.safe_load((KUBERNETES / "overlays" / "example" / "sluice.yaml").read_text()),
        "resources": {"cpu": "8", "memory": "8Gi"},
        "models": {**CLAIM["models"], "storageClass": "shared-files",
                   "fillImage": "registry.example/my-models:2"},
        "podMonitor": {"enabled": True, "labels": {"release": "my-prometheus"}},
        "envoy": {"enabled": True, "tlsSecretName": "sluice-envoy-tls"},
        "gateway": {"enabled": True, "image": {"repository": "registry.example/sluice-gateway"}},
    },
}
# KServe makes the Deployment and the Service itself.
WITHOUT_CHART = {"kserve", "kserve_canary", "kserve_cluster"}
SOURCES = {
    "model_claim": CLAIM,
    "model_fill": {"models": {"fillImage": "registry.example/sluice-models:1"}},
    "model_image": {**BASE, "models": {"image": "registry.example/sluice-models:1"}},
    "model_init": {**BASE, "models": {"initImage": "registry.example/sluice-models:1"}},
}
ENVOY = {"envoy": {"enabled": True}}
COMPONENTS = {
    "monitoring": MONITORED,
    "tls": {"tls": {"secretName": "sluice-tls"}},
    "client_ca": {"tls": {"clientCaSecretName": "sluice-client-ca"}},
    "callers": {"callers": {"secretName": "sluice-callers"}},
    "envoy": ENVOY,
    "envoy_tls": {"envoy": {"enabled": True, "tlsSecretName": "sluice-envoy-tls"}},
    "envoy_sidecar": {"envoy": {"sidecar": True}},
    "gateway": {"gateway": {"enabled": True}},
    "gateway_tls": {"tls": {"secretName": "sluice-tls"}, "gateway": {"enabled": True}},
    "gateway_client_tls": {"gateway": {"clientTlsSecretName": "sluice-gateway-tls"}},
    "gateway_ingress": {"gateway": {"ingress": {"enabled": True}}},
    "grpc_route": {"grpcRoute": {"enabled": True}},
    "inference_pool": {"inferencePool": {"enabled": True}},
    "inference_pool_grpc": {"inferencePool": {"enabled": True, "grpc": True}},
}
NEEDS = {"model_fill": ["model_claim"], "envoy_tls": ["envoy"], "client_ca": ["tls"],
         "gateway_ingress": ["gateway"],
         "gateway_tls": ["tls", "gateway"], "gateway_client_tls": ["tls", "gateway", "gateway_tls"]}
CONFLICTS = (
    {"envoy_sidecar", "envoy"}, {"envoy_sidecar", "tls"}, {"envoy", "tls"},
    {"envoy_sidecar", "gateway"}, {"envoy_sidecar", "inference_pool_grpc"},
    {"inference_pool", "inference_pool_grpc"}, {"inference_pool", "tls"},
    {"inference_pool_grpc", "tls"})


def test_every_overlay_and_component_is_compared():
    folders = {kind: {each.name for each in (KUBERNETES / kind).iterdir()}
               for kind in ("overlays", "components")}
    assert folders["overlays"] == set(OVERLAYS) | WITHOUT_CHART
    assert folders["components"] == set(SOURCES) | set(COMPONENTS)


def merged(*values):
    """Returns the values of several choices as one, merged by key."""
    result = {}
    for each in values:
        for key, value in copy.deepcopy(each).items():
            if isinstance(value, dict) and isinstance(result.get(key), dict):
                result[key] = merged(result[key], value)
            else:
                result[key] = value
    return result


def kustomized(folder, components, gpu=False):
    """Returns the manifests of the base with components and the resources of an overlay."""
    folder.mkdir()
    (folder / "variant").mkdir()
    # Kustomize accepts only relative paths, but follows links.
    (folder / "kubernetes").symlink_to(KUBERNETES)
    resources = "gpu/device.yaml" if gpu else "cpu/resources.yaml"
    text = {
        "resources": ["../kubernetes/base"],
        "components": [f"../kubernetes/components/{each}" for each in components],
        "images": [{"name": "sluice", "newTag": "0.1.0-cuda" if gpu else "0.1.0"}],
        "replicas": [{"name": "sluice", "count": 2}],
        "patches": [{"patch": (KUBERNETES / "overlays" / resources).read_text()}],
    }
    if gpu:  # The chart's Job runs on the same nodes as the daemon's pods.
        tolerations = yaml.safe_load((KUBERNETES / "overlays" / resources).read_text())[
            "spec"]["template"]["spec"]["tolerations"]
        text["patches"].append({"target": {"kind": "Job"}, "patch": yaml.safe_dump([
            {"op": "add", "path": "/spec/template/spec/tolerations", "value": tolerations}])})
    (folder / "variant" / "kustomization.yaml").write_text(yaml.safe_dump(text))
    return render(folder / "variant")


def comparable(manifests, monitored):
    """Returns {(kind, name): contents} without the parts that chart and Kustomize name differently:
    labels of the release, hashes of configurations, the pull policy, and the order of named lists.

    Kustomize's components envoy and gateway always have a PodMonitor, as their comments explain.
    """
    hashed = re.compile(r"-[2-9bcdfghkmt]{10}$|(?<=-fill)-[0-9a-f]{8}$")

    def walk(value, key=""):
        if isinstance(value, dict):
            return {name: walk(each, name) for name, each in value.items()
                    if name not in ("app.kubernetes.io/instance", "checksum/config",
                                    "imagePullPolicy", "namespace")}
        if isinstance(value, list):
            found = [walk(each) for each in value]
            named = all(isinstance(each, dict) and "name" in each for each in found)
            ordered = key in ("containers", "initContainers", "volumes", "volumeMounts", "env",
                              "ports")
            return sorted(found, key=lambda each: each["name"]) if named and ordered else found
        if isinstance(value, str) and key == "name":
            return hashed.sub("", value)
        return value

    result = {}
    for manifest in manifests:
        if manifest["kind"] == "PodMonitor" and not monitored:
            continue
        name = hashed.sub("", manifest["metadata"]["name"])
        labels = manifest["metadata"].get("labels", {})
        contents = walk({key: value for key, value in manifest.items() if key != "metadata"})
        contents["labels"] = {key: labels[key] for key in ("release", "grafana_dashboard")
                              if key in labels}
        for file, text in contents.get("data", {}).items():
            if file == "sluice.yaml":
                contents["data"][file] = yaml.safe_load(text)
        assert (manifest["kind"], name) not in result
        result[manifest["kind"], name] = contents
    return result


def assert_same_objects(values, others):
    # The namespace of the overlays keda and example.
    rendered = chart(values=values, namespace="inference")
    monitored = values.get("podMonitor", {}).get("enabled", False)
    mine, theirs = comparable(rendered, monitored), comparable(others, monitored)
    assert sorted(mine) == sorted(theirs)
    for key, contents in mine.items():
        assert contents == theirs[key], key
    return rendered


@pytest.mark.parametrize("name", OVERLAYS)
def test_chart_equals_the_overlay(name):
    for manifest in assert_same_objects(OVERLAYS[name], overlay(name)):
        schemas.validate(manifest)


@pytest.mark.parametrize("name", [*SOURCES, *COMPONENTS])
def test_chart_equals_the_component(name, tmp_path):
    names = [*NEEDS.get(name, []), name]
    values = merged(*({**SOURCES, **COMPONENTS}[each] for each in names))
    for manifest in assert_same_objects(values, kustomized(tmp_path / "made", names)):
        schemas.validate(manifest)


def drawn(dice):
    """Returns components of one deployment, in the order that Kustomize needs."""
    while True:
        chosen = [each for each in COMPONENTS if dice.random() < 0.4]
        needed = all(set(NEEDS.get(each, [])) <= set(chosen) for each in chosen)
        # The chart chooses the gateway's parts by the daemon's.
        both = {"tls", "gateway"} <= set(chosen)
        complete = both == ("gateway_tls" in chosen) and not (
            both and "client_ca" in chosen and "gateway_client_tls" not in chosen)
        if needed and complete and not any(pair <= set(chosen) for pair in CONFLICTS):
            source = dice.choice([[], *([*NEEDS.get(each, []), each] for each in SOURCES)])
            return [*source, *chosen]


def test_chart_equals_drawn_combinations(tmp_path):
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for case in range(10):
        components, gpu = drawn(dice), dice.random() < 0.3
        print(f"case {case}: {components} gpu={gpu}")
        values = merged(GPU if gpu else {},
                        *({**SOURCES, **COMPONENTS}[each] for each in components))
        assert_same_objects(values, kustomized(tmp_path / f"case{case}", components, gpu))


def test_the_package_has_all_files_and_fits_into_a_release(tmp_path):
    """Helm stores the chart in a Secret, which holds at most 1 MiB."""
    packed = helm("package", CHART, "--destination", tmp_path)
    assert packed.returncode == 0, packed.stderr
    package, = tmp_path.glob("*.tgz")
    assert package.stat().st_size < 1 << 19
    settings = ["envoy.enabled=true", "gateway.enabled=true", "inferencePool.enabled=true",
                "dashboards.enabled=true", "prometheusRule.enabled=true"]
    options = [part for each in settings for part in ("--set", each)]
    result = helm("template", "sluice", package, *options)
    assert result.returncode == 0, result.stderr
    assert "symbolic link" not in result.stderr  # The package has no links, unlike the checkout.
    assert [each for each in yaml.safe_load_all(result.stdout) if each] == chart(*settings)


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("gpus=1", "tls.secretName=x", "autoscaling.enabled=true"),
        ("envoy.enabled=true", "gateway.enabled=true", "inferencePool.enabled=true"),
    ],
)
def test_the_chart_passes_the_linter(settings):
    options = [part for each in settings for part in ("--set", each)]
    result = helm("lint", "--strict", CHART, *options)
    assert result.returncode == 0, result.stdout


# A value of each setting for clusters, and where the pods of the daemon must have it.
POD_VALUES = {
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"pool": "inference"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "rack",
                                   "whenUnsatisfiable": "DoNotSchedule"}],
    "priorityClassName": "high",
    "runtimeClassName": "nvidia",
    "schedulerName": "other",
    "hostUsers": True,
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
    "initContainers": [{"name": "first", "image": "busybox:1"}],
}
CONTAINER_VALUES = {
    "extraEnv": ("env", [{"name": "A", "value": "b"}]),
    "extraEnvFrom": ("envFrom", [{"secretRef": {"name": "s"}}]),
    "extraVolumeMounts": ("volumeMounts", [{"name": "scratch", "mountPath": "/scratch"}]),
    "extraArgs": ("args", ["--engine.kv.memory-bytes=1GiB"]),
}


def test_values_for_clusters_reach_the_pods():
    values = {
        **POD_VALUES,
        **{key: value for key, (_, value) in CONTAINER_VALUES.items()},
        "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
        "extraContainers": [{"name": "next", "image": "busybox:1"}],
        "podAnnotations": {"a.example/b": "c"},
        "podLabels": {"team": "search"},
        "serviceAccount": {"create": True, "annotations": {"role": "reader"}},
        "service": {"type": "LoadBalancer", "annotations": {"lb": "internal"}},
        "networkPolicy": {"anyClient": True},
    }
    manifests = chart(values=values)
    for manifest in manifests:
        schemas.validate(manifest)
    template = the("Deployment", manifests)["spec"]["template"]
    pod = template["spec"]
    for key, value in POD_VALUES.items():
        assert pod[key] == value, key
    daemon, other = pod["containers"]
    for key, (field, value) in CONTAINER_VALUES.items():
        assert value[0] in daemon[field], key
    assert "config" in [each["name"] for each in daemon["volumeMounts"]]
    assert values["extraVolumes"][0] in pod["volumes"] and other["name"] == "next"
    assert template["metadata"]["annotations"]["a.example/b"] == "c"
    assert template["metadata"]["labels"]["team"] == "search"
    account = the("ServiceAccount", manifests)["metadata"]
    assert account["annotations"] == {"role": "reader"}
    assert account["name"] == pod["serviceAccountName"]
    service = the("Service", manifests, "sluice")
    assert service["spec"]["type"] == "LoadBalancer"
    assert service["metadata"]["annotations"] == {"lb": "internal"}
    assert "type" not in the("Service", manifests, "sluice-headless")["spec"]


def test_all_pods_have_the_pull_secrets_and_take_further_fields():
    secrets = POD_VALUES["imagePullSecrets"]
    spec = {"nodeSelector": POD_VALUES["nodeSelector"], "tolerations": POD_VALUES["tolerations"]}
    mount = {"name": "chats", "mountPath": "/chats"}
    gateway = {**spec, "volumes": [{"name": "chats", "configMap": {"name": "chats"}}],
               "containers": [{"name": "gateway", "volumeMounts": [mount]}]}
    manifests = chart(values={
        "imagePullSecrets": secrets, **{key: spec[key] for key in spec},
        "envoy": {"enabled": True, "podSpec": spec},
        "gateway": {"enabled": True, "podSpec": gateway, "extraArgs": ["--chat=m=/chats/m"]},
        "inferencePool": {"enabled": True, "pickerPodSpec": spec},
    })
    pods = {}
    for manifest in manifests:
        schemas.validate(manifest)
        if manifest["kind"] == "Deployment":
            pod = pods[manifest["metadata"]["name"]] = manifest["spec"]["template"]["spec"]
            assert pod["imagePullSecrets"] == secrets
            assert spec.items() <= pod.items()
    assert len(pods) == 4
    container, = pods["sluice-gateway"]["containers"]
    assert container["volumeMounts"] == [mount] and container["args"][-1] == "--chat=m=/chats/m"
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_fields_of_the_daemons_pods_are_merged_into_the_charts():
    """As OpenShift needs them: other ids, and null where the cluster chooses."""
    spec = {"securityContext": {"runAsUser": 1000680000, "runAsGroup": None,
                                "fsGroup": 1000680000},
            "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
            "containers": [{"name": "sluiced", "workingDir": "/models"}]}
    manifests = chart(values={"podSpec": spec, **merged(CLAIM, SOURCES["model_fill"])})
    for manifest in manifests:
        schemas.validate(manifest)
    pod = the("Deployment", manifests)["spec"]["template"]["spec"]
    assert pod["dnsConfig"] == spec["dnsConfig"]
    daemon, = pod["containers"]
    assert daemon["workingDir"] == "/models" and daemon["image"] == "sluice:0.1.0"
    assert pod["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 1000680000, "fsGroup": 1000680000,
        "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"}}
    # The Job writes the files that the daemon reads.
    job = the("Job", manifests)["spec"]["template"]["spec"]
    assert job["securityContext"] == pod["securityContext"]


def test_the_documented_values_for_openshift_give_all_pods_its_ids(tmp_path):
    text = (DEPLOY / "README.md").read_text().split("**OpenShift**", 1)[1]
    file = tmp_path / "values.yaml"
    file.write_text(text.split("```yaml\n", 1)[1].split("```", 1)[0])
    parts = merged(CLAIM, SOURCES["model_fill"], ENVOY, COMPONENTS["gateway"],
                   COMPONENTS["inference_pool"])
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(parts))
    result = helm("template", "sluice", CHART, "--values", file, "--values", other)
    assert result.returncode == 0, result.stderr
    contexts = [each["spec"]["template"]["spec"]["securityContext"]
                for each in yaml.safe_load_all(result.stdout)
                if each and each["kind"] in ("Deployment", "Job")]
    assert len(contexts) == 5
    for context in contexts:
        assert {context[key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {1000680000}


def test_the_job_runs_where_the_daemons_run():
    near = POD_VALUES["affinity"]
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "sluice"}}}]}}
    values = {key: POD_VALUES[key] for key in (
        "imagePullSecrets", "nodeSelector", "tolerations", "priorityClassName", "schedulerName")}
    manifests = chart(values={
        **merged(CLAIM, SOURCES["model_fill"]), **values, "gpus": 1, "affinity": {**near, **apart},
        "serviceAccount": {"create": True, "name": "reader"}})
    for manifest in manifests:
        schemas.validate(manifest)
    daemon, job = (the(kind, manifests)["spec"]["template"]["spec"]
                   for kind in ("Deployment", "Job"))
    for key in (*values, "serviceAccountName"):
        assert job[key] == daemon[key], key
    # A rule that keeps daemons apart would keep the Job from their nodes.
    assert job["affinity"] == near and daemon["affinity"] == {**near, **apart}


def test_containers_that_copy_models_have_limits_for_a_quota():
    manifests = [*chart(values=merged(CLAIM, SOURCES["model_fill"])),
                 *chart(values=SOURCES["model_init"])]
    job = the("Job", manifests)["spec"]["template"]["spec"]["containers"]
    init = [each for manifest in manifests if manifest["kind"] == "Deployment"
            for each in manifest["spec"]["template"]["spec"].get("initContainers", [])]
    assert len(job) == len(init) == 1
    for container in (*job, *init):
        for kind in ("requests", "limits"):
            assert sorted(container["resources"][kind]) == ["cpu", "memory"]


def test_the_copy_of_models_has_the_size_of_its_value():
    def size(**more):
        models = {**SOURCES["model_init"]["models"], **more}
        pod = the("Deployment", chart(values={**BASE, "models": models}))["spec"]["template"]
        volume, = [each for each in pod["spec"]["volumes"] if each["name"] == "models"]
        return volume["emptyDir"]

    assert size() == {"sizeLimit": "10Gi"}
    assert size(initSize="40Gi") == {"sizeLimit": "40Gi"}


@pytest.mark.parametrize("name, values", [
    ("config", {}), ("models", SOURCES["model_init"]), ("tls", COMPONENTS["tls"]),
    ("envoy-tls", COMPONENTS["envoy_sidecar"])])
def test_an_extra_volume_with_a_name_of_the_chart_is_refused(name, values, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({**values, "extraVolumes": [{"name": name, "emptyDir": {}}]}))
    result = helm("template", "sluice", CHART, "--values", file)
    assert result.returncode != 0
    assert f'extraVolumes has the name "{name}", which a volume of the chart has' in result.stderr
    if values:
        assert chart(values={"extraVolumes": [{"name": name, "emptyDir": {}}]})


@pytest.mark.parametrize("part, kind", [("grpcRoute", "GRPCRoute"), ("inferencePool", "HTTPRoute")])
def test_a_route_names_a_gateway_of_any_namespace(part, kind):
    for given, parent in (("mine", {"name": "mine"}),
                          ({"name": "mine", "namespace": "infra", "sectionName": "grpc"},) * 2):
        route = the(kind, chart(values={part: {"enabled": True, "gateway": given}}))
        schemas.validate(route)
        assert route["spec"]["parentRefs"] == [parent]
    for wrong in ("infra/mine", "Mine", "", {"namespace": "infra"}, {"name": "mine", "port": 1},
                  {"name": "mine", "namespace": "a.b"}, {"name": "mine", "sectionName": "a/b"}):
        result = helm("template", "sluice", CHART, "--set-json",
                      json.dumps({part: {"enabled": True, "gateway": wrong}}))
        assert result.returncode != 0 and f"/{part}/gateway" in result.stderr, wrong


def test_keda_takes_its_credentials_for_prometheus_from_an_object():
    scaled = {"enabled": True, "kind": "keda"}
    reference = {"name": "thanos", "kind": "ClusterTriggerAuthentication"}
    given = {**scaled, "authenticationRef": reference, "authModes": "bearer"}
    for values, expected in ((scaled, (None, None)), (given, (reference, "bearer"))):
        found = the("ScaledObject", chart(values={"autoscaling": values}))
        schemas.validate(found)
        assert [(each.get("authenticationRef"), each["metadata"].get("authModes"))
                for each in found["spec"]["triggers"]] == [expected] * 2


def test_extra_values_keep_the_tolerations_of_gpus_and_the_selectors():
    manifests = chart(values={"gpus": 1, "tolerations": POD_VALUES["tolerations"],
                              "podLabels": {"app.kubernetes.io/name": "mine"}})
    deployment = the("Deployment", manifests)["spec"]
    keys = [each["key"] for each in deployment["template"]["spec"]["tolerations"]]
    assert keys == ["nvidia.com/gpu", "dedicated"]
    assert deployment["selector"]["matchLabels"].items() \
        <= deployment["template"]["metadata"]["labels"].items()


def test_the_default_serves_the_demo_model_without_a_claim():
    manifests = chart()
    assert not [each for each in manifests if each["kind"] == "PersistentVolumeClaim"]
    pod = the("Deployment", manifests)["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["volumes"]] == ["config"]
    config = yaml.safe_load(the("ConfigMap", manifests)["data"]["sluice.yaml"])
    assert [each["path"] for each in config["models"]] == ["/models/demo"]
    # The image has the model at this path.
    assert '"$tree/models/demo"' in (DEPLOY / "image_tree.sh").read_text()


def test_the_notes_name_every_source_of_models():
    notes = (CHART / "templates" / "NOTES.txt").read_text()
    sources = yaml.safe_load((CHART / "values.yaml").read_text())["models"]
    assert not [name for name in sources if f"models.{name}" not in notes]


def old_values(tmp_path, reused):
    """Returns the old chart's values as a file; if `reused`, new values are missing."""
    values = yaml.safe_load(OLD_VALUES.read_text())
    if reused:  # As with `helm upgrade --reuse-values`.
        new = yaml.safe_load((CHART / "values.yaml").read_text())
        for key, value in new.items():
            if key not in values:
                values[key] = None
            elif isinstance(value, dict) and key != "config":
                values[key] |= {each: None for each in value if each not in values[key]}
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize("reused", [False, True])
def test_upgrade_with_the_values_of_the_first_chart_changes_no_pod(reused, tmp_path):
    result = helm("template", "sluice", CHART, "--values", old_values(tmp_path, reused))
    assert result.returncode == 0, result.stderr
    manifests = [each for each in yaml.safe_load_all(result.stdout) if each]
    mine = comparable(manifests, False)
    theirs = comparable(overlay("cpu"), False)
    assert sorted(mine) == sorted(
        key for key in theirs
        if key[0] not in ("PersistentVolumeClaim", "PrometheusRule")
        and key[1] != "sluice-dashboards")
    assert all(contents == theirs[key] for key, contents in mine.items())


def test_models_without_a_source_are_refused_and_name_the_changed_default():
    values = {"config.models": [{"name": "mine", "path": "/models/mine"}]}
    options = [part for key, value in values.items()
               for part in ("--set-json", f"{key}={json.dumps(value)}")]
    result = helm("template", "sluice", CHART, *options)
    assert result.returncode != 0
    assert "models.claim (its default was sluice-models)" in result.stderr
    chart("models.claim=sluice-models", values=values)


@pytest.mark.parametrize("source", [
    {"models": {"claim": "c"}}, {"models": {"image": "i"}}, {"models": {"initImage": "i"}},
    {"extraVolumeMounts": [{"name": "m", "mountPath": "/models/"}]}])
@pytest.mark.parametrize("config, models", [
    ({"model_repository": "/models"}, []),
    ({"models": [{"name": "mine", "path": "/models/mine"}]}, ["mine"]),
])
def test_a_source_of_models_replaces_the_demo_model(source, config, models, tmp_path):
    text = the("ConfigMap", chart(values={**source, "config": config}))["data"]["sluice.yaml"]
    rendered = yaml.safe_load(text)
    assert [each["name"] for each in rendered["models"]] == models
    assert rendered.get("model_repository") == config.get("model_repository")
    file = tmp_path / "sluice.yaml"  # The daemon accepts it, with the demo model at this path.
    for each in rendered["models"]:
        each["path"] = str(DEMO)
    if "model_repository" in rendered:
        rendered["model_repository"] = str(DEMO.parent)
    file.write_text(yaml.safe_dump(rendered))
    check = subprocess.run([SLUICED, "--config", file, "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize("settings, named", [
    (["models.claim=c"], "models.claim is set"),
    (["models.initImage=i"], "models.initImage is set"),
    (["extraVolumeMounts[0].mountPath=/models,extraVolumeMounts[0].name=m"], "extraVolumeMounts"),
])
def test_a_source_without_models_is_refused_with_what_to_set(settings, named):
    result = helm("template", "sluice", CHART, *[p for each in settings for p in ("--set", each)])
    assert result.returncode != 0
    assert "config.models is empty, and " + named in result.stderr
    assert "{name: MODEL, path: /models/MODEL}" in result.stderr
    assert "config.model_repository=/models" in result.stderr


def test_the_job_fills_the_claim_that_the_pods_mount():
    values = {**CLAIM, "imagePullSecrets": [{"name": "registry"}]}
    values["models"] = {"claim": "mine", "storage": "20Gi", "storageClass": "fast",
                        "accessModes": ["ReadWriteOnce"], "fillImage": "mine:1"}
    manifests = chart(values=values)
    for manifest in manifests:
        schemas.validate(manifest)
    claim = the("PersistentVolumeClaim", manifests)
    assert claim["metadata"]["name"] == "mine"
    assert claim["spec"] == {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                             "resources": {"requests": {"storage": "20Gi"}}}
    for kind in ("Job", "Deployment"):
        pod = the(kind, manifests)["spec"]["template"]["spec"]
        assert [each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"]
                if "persistentVolumeClaim" in each] == ["mine"]
        assert pod["imagePullSecrets"] == [{"name": "registry"}]


def test_another_image_of_models_gives_another_job():
    """A Job of the same name with another image would fail, because a Job cannot be changed."""
    def job(image):
        values = merged(CLAIM, {"models": {"fillImage": image}})
        found = the("Job", chart(values=values, release="r" * 53))["metadata"]["name"]
        assert len(found) <= 63
        return found

    assert job("models:1") == job("models:1") != job("models:2")


def notes(*settings, release="sluice", namespace="inference"):
    """Returns the notes that `helm install` prints, without its line breaks."""
    options = [part for each in settings for part in ("--set", each)]
    result = helm("install", release, CHART, "--dry-run=client", "--namespace", namespace, *options)
    assert result.returncode == 0, result.stderr
    return " ".join(result.stdout.split("\nNOTES:\n", 1)[1].split())


def test_the_notes_name_the_claim_and_what_fills_it():
    chosen = ["models.claim=mine", "config.model_repository=/models"]
    empty = notes(*chosen, "models.storage=1Gi")
    assert "a directory of the claim mine, which the chart creates empty" in empty
    assert "models.fillImage=IMAGE" in empty
    assert "which the chart creates" not in notes(*chosen)
    filled = notes("models.claim=mine", "config.models[0].name=m,config.models[0].path=/models/m",
                   "models.fillImage=pictures:1")
    assert "directories below /models of pictures:1 that the claim mine lacks" in filled
    assert "wait --for=condition=complete" in filled and "serves the demo model" not in filled
    assert "serves the demo model" in notes()


def printed_command(*settings):
    """Returns the words of the command of `sluice` in the notes, and the notes."""
    text = notes(*settings)
    return re.search(r"(sluice --server localhost:8001.*? models)\b", text)[1].split()[1:], text


@pytest.mark.parametrize("settings, flags, named", [
    ([], [], []),
    (["tls.secretName=shown"], ["--ca", "ca.crt", "--server-name", "sluice-headless"], ["shown"]),
    (["tls.secretName=shown", "tls.clientCaSecretName=trusted"],
     ["--ca", "ca.crt", "--server-name", "sluice-headless", "--cert", "client.crt", "--key",
      "client.key"], ["shown", "trusted"]),
    (["callers.secretName=known"], [], ["export SLUICE_TOKEN=TOKEN", "Secret known"]),
])
def test_the_command_of_the_notes_has_the_flags_of_tls_and_callers(settings, flags, named):
    command, text = printed_command(*settings)
    assert command == ["--server", "localhost:8001", *flags, "models"]
    assert all(each in text for each in named)
    assert ("SLUICE_TOKEN" in text) == any("callers" in each for each in settings)
    # The program takes these flags; the missing daemon or file is its only problem.
    run = subprocess.run([SLUICE, "--server", "localhost:1", *command[2:]], capture_output=True,
                         text=True)
    assert run.returncode == (2 if flags else 3), run.stderr
    assert not flags or "ca.crt" in run.stderr, run.stderr


def test_the_notes_ask_for_an_image_with_a_registry():
    hint = "push it, and set image.repository=REGISTRY/sluice"
    targets = set(re.findall(r"^FROM .* AS (\S+)", (ROOT / "Dockerfile").read_text(), re.M))
    for settings, image, target in (([], "sluice:0.1.0", "cpu"),
                                    (["gpus=1"], "sluice:0.1.0-cuda", "cuda")):
        text = notes(*settings)
        assert hint in text and f"The image {image} has no registry" in text
        assert re.search(r"docker build --target (\S+)", text)[1] == target and target in targets
    assert hint not in notes("image.repository=registry.example/sluice")


def test_the_notes_say_from_where_the_daemon_can_be_called():
    assert "and must be in the namespace inference. For other namespaces" in notes()
    assert "that networkPolicy.namespaceSelector selects" in notes(
        "networkPolicy.namespaceSelector.team=search")
    assert "podSelector selects need no label. Clients" in notes(
        "networkPolicy.podSelector.matchLabels.app=edge")
    assert "Any client may call it." in notes("networkPolicy.anyClient=true")
    assert "No NetworkPolicy limits" in notes("networkPolicy.enabled=false")
    for part in ("gateway", "envoy"):
        assert "-client: \"true\", in any namespace." in notes(f"{part}.enabled=true")
    gateway = "gateway.networkPolicy"
    for setting, expected in (
            (f"{gateway}.namespaceSelector.team=search", f"that {gateway}.namespaceSelector"),
            (f"{gateway}.anyClient=true", "http://sluice-gateway for any client."),
            ("gateway.ingress.enabled=true", f"set {gateway}.podSelector to labels"),
            ("gateway.ingress.enabled=true", "cluster it is at sluice.example.com, if the pods")):
        assert expected in notes("gateway.enabled=true", setting)


def test_the_notes_say_how_a_gateway_of_another_namespace_may_call():
    infra = ("grpcRoute.enabled=true", "grpcRoute.gateway.name=gw",
             "grpcRoute.gateway.namespace=infra")
    text = notes(*infra)
    assert "through the Gateway gw of the namespace infra (grpcRoute)" in text
    hint = "--set-json 'networkPolicy.namespaceSelector=(.*?)'"
    selector = json.loads(re.search(hint, text)[1])
    assert selector == {"matchLabels": {"kubernetes.io/metadata.name": "infra"}}
    assert chart(values={"networkPolicy.namespaceSelector": selector})
    for policy in ("anyClient=true", "enabled=false"):
        assert "namespaceSelector=" not in notes(*infra, f"networkPolicy.{policy}")
    pool = ("inferencePool.enabled=true", "inferencePool.gateway=gw")
    assert 'label sluice.io/http-client: "true", in any namespace' in notes(*pool)
    assert re.search(hint, notes(*pool, "inferencePool.grpc=true"))
    assert "(grpcRoute)" not in notes()


@pytest.mark.parametrize("name, prefix, label, default", [
    ("sluice", "", "sluice.io/client", {}),
    ("sluice-gateway", "gateway.", "sluice.io/http-client", {"namespaceSelector": {}}),
])
def test_policies_follow_the_choice_of_callers(name, prefix, label, default):
    def callers(**values):
        values = {f"{prefix}networkPolicy.{key}": value for key, value in values.items()}
        policy = the("NetworkPolicy", chart("gateway.enabled=true", values=values), name)
        calls, scrapes = policy["spec"]["ingress"]
        assert list(scrapes["from"][0]) == ["namespaceSelector"]
        return calls.get("from")

    pods = {"podSelector": {"matchLabels": {label: "true"}}}
    assert callers() == [{**pods, **default}]
    assert callers(anyClient=True) is None
    for selector in ({}, {"matchLabels": {"team": "search"}}):
        own = [] if prefix else [pods]  # The gateway of the release calls from its namespace.
        assert callers(namespaceSelector=selector) == [
            *own, {**pods, "namespaceSelector": selector}]
    # An ingress controller without the label.
    other = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "ingress-nginx"}}}
    assert callers(podSelector=other["podSelector"]) == [{**pods, **default}, {**other, **default}]
    there = {"namespaceSelector": {"matchLabels": {"team": "search"}}}
    assert callers(**other, **there) == [
        *([] if prefix else [pods]), {**pods, **there}, {**other, **there}]


def test_no_policy_is_rendered_if_policies_are_off():
    every = ("envoy.enabled=true", "gateway.enabled=true", "inferencePool.enabled=true")
    kinds = [each["kind"] for each in chart(*every, "networkPolicy.enabled=false")]
    assert "NetworkPolicy" not in kinds and "Deployment" in kinds
    assert [each["kind"] for each in chart(*every)].count("NetworkPolicy") == 3


def test_ingress_of_the_gateway_follows_its_values():
    tls = [{"secretName": "a-tls", "hosts": ["a.example"]}]
    values = {"gateway": {"enabled": True, "extraArgs": ["--chat=m=/m"], "ingress": {
        "enabled": True, "className": "nginx", "hosts": ["a.example", "b.example"], "tls": tls,
        "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "8m"}}}}
    manifests = chart(values=values, release="embedder")
    ingress = the("Ingress", manifests)
    schemas.validate(ingress)
    schemas.assert_finds(ingress, ("spec", "ingressClass"), "nginx")
    assert ingress["metadata"]["annotations"] == values["gateway"]["ingress"]["annotations"]
    assert ingress["spec"]["ingressClassName"] == "nginx" and ingress["spec"]["tls"] == tls
    assert [each["host"] for each in ingress["spec"]["rules"]] == ["a.example", "b.example"]
    service = the("Service", manifests, "sluice-embedder-gateway")
    for rule in ingress["spec"]["rules"]:
        path, = rule["http"]["paths"]
        port, = service["spec"]["ports"]
        assert path["backend"]["service"] == {
            "name": service["metadata"]["name"], "port": {"name": port["name"]}}
    pod = the("Deployment", manifests, "sluice-embedder-gateway")["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"][-3:] == [
        "--host=a.example", "--host=b.example", "--chat=m=/m"]
    for setting, named in (
            ("gateway.enabled=false", "gateway.ingress.enabled needs gateway.enabled"),
            ("gateway.ingress.hosts=null", "gateway.ingress.hosts is empty"),
            ("gateway.ingress.hosts[0]=*.example", "/gateway/ingress/hosts/0"),
            ("gateway.ingress.class=nginx", "class")):
        result = helm("template", "sluice", CHART, "--set", "gateway.enabled=true",
                      "--set", "gateway.ingress.enabled=true", "--set", setting)
        assert result.returncode != 0 and named in result.stderr, (setting, result.stderr)


@pytest.mark.parametrize("service", ["LoadBalancer", "NodePort"])
def test_a_service_for_outside_callers_needs_a_policy_that_admits_them(service):
    result = helm("template", "sluice", CHART, "--set", f"service.type={service}")
    assert result.returncode != 0
    assert f"service.type is {service} for callers outside the cluster" in result.stderr
    assert "networkPolicy.anyClient" in result.stderr
    for policy in ("anyClient=true", "enabled=false"):
        assert chart(f"service.type={service}", f"networkPolicy.{policy}")


def test_another_name_is_the_name_of_all_objects():
    parts = [COMPONENTS[each] for each in ("envoy", "gateway", "inference_pool", "monitoring")]
    values = merged(CLAIM, *parts, {"autoscaling": {"enabled": True},
                                    "models": {"fillImage": "models:1"}})
    def names(**more):
        return sorted(re.sub("-[0-9a-f]{8}$", "", each["metadata"]["name"])
                      for each in chart(release="r", values=values, **more)
                      if each["metadata"]["name"] != "sluice-models")

    values["fullnameOverride"] = "mine"
    mine = names()
    del values["fullnameOverride"]
    assert mine == [re.sub("^sluice-r", "mine", each) for each in names()]


def test_the_gateway_calls_a_daemon_with_tls_by_tls():
    values = {"tls": {"secretName": "mine", "clientCaSecretName": "authorities"},
              "gateway": {"enabled": True, "clientTlsSecretName": "shown",
                          "extraArgs": ["--daemon-name=other"]}}
    pod = the("Deployment", chart(values=values), "sluice-gateway")["spec"]["template"]["spec"]
    container, = pod["containers"]
    volumes = {each["name"]: each["secret"] for each in pod["volumes"]}
    files = {}
    for mount in container["volumeMounts"]:
        secret = volumes[mount["name"]]
        for key in [each["key"] for each in secret.get("items", [])] or ["tls.crt", "tls.key"]:
            files[f"{mount['mountPath']}/{key}"] = (secret["secretName"], key)
    given = json.dumps(container["args"])
    read = subprocess.run(
        [sys.executable, "-c", "from sluice_client.gateway import __main__ as gateway\n"
         f"given = gateway.arguments().parse_args({given})\n"
         "print(given.daemon_tls, given.daemon_ca, given.daemon_certificate, given.daemon_key,"
         " given.daemon_name)"],
        capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "clients" / "python")})
    tls, *paths, name = read.stdout.split()
    assert tls == "True" and name == "other"
    assert [files[each] for each in paths] == [
        ("mine", "ca.crt"), ("shown", "tls.crt"), ("shown", "tls.key")]
    assert "mine" not in [secret for secret, key in files.values() if key == "tls.key"]


@pytest.mark.parametrize("settings, named", [
    (["tls.clientCaSecretName=c"], ["tls.clientCaSecretName needs tls.secretName"]),
    (["gateway.enabled=true", "tls.secretName=s", "tls.clientCaSecretName=c"],
     ["gateway.clientTlsSecretName"]),
    (["gateway.enabled=true", "gateway.clientTlsSecretName=s"], ["needs tls.secretName"]),
    (["inferencePool.enabled=true", "tls.secretName=s"], ["Unset tls.secretName"]),
    (["terminationGracePeriodSeconds=45"], ["terminationGracePeriodSeconds is 45", "take 45 s"]),
    (["config.server.lifecycle.drain_timeout=70s"], ["terminationGracePeriodSeconds", "85 s"]),
    (["config.server.lifecycle.drain_timeout=1min"], ["terminationGracePeriodSeconds", "75 s"]),
    (["config.server.lifecycle.drain_delay=25000ms"], ["terminationGracePeriodSeconds", "60 s"]),
    (["config.server.grpc.address=0.0.0.0:9001"], ["config.server.grpc.address", "port 8001"]),
    (["config.server.grpc.address=127.0.0.1:8001"], ["config.server.grpc.address", "0.0.0.0:8001"]),
    (["config.server.metrics.address=0.0.0.0:9002"],
     ["config.server.metrics.address", "port 8002"]),
    (["config.server.metrics.address=127.0.0.1:8002"],
     ["config.server.metrics.address", "0.0.0.0:8002"]),
    (["config.server.metrics.address=localhost:8002"], ["config.server.metrics.address"]),
    (["config.server.memory.limit_bytes=4GiB"],
     ["config.server.memory.limit_bytes is 4GiB", "resources.memory is 2Gi"]),
    (["config.server.memory.limit_bytes=2147483649"], ["config.server.memory.limit_bytes"]),
    (["autoscaling.enabled=true", "autoscaling.minReplicas=5", "autoscaling.maxReplicas=2"],
     ["autoscaling.minReplicas is 5", "is 2"]),
    (["config.server.admin.address=0.0.0.0:8003"],
     ["config.server.admin.address", "0.0.0.0:8003", "config.server.admin.secured",
      "config.server.admin.open_to_network"]),
    (["config.server.admin.address=0.0.0.0:8003", "config.server.admin.secured=true"],
     ["config.server.admin.address", "callers.secretName"]),
    (["config.server.auth.anonymous=false"],
     ["config.server.auth.anonymous", "callers.secretName"]),
    (["podSpec.terminationGracePeriodSeconds=45"],
     ["podSpec.terminationGracePeriodSeconds is 45", "take 45 s"]),
    (["podSpec.terminationGracePeriodSeconds=65", "envoy.sidecar=true"],
     ["podSpec.terminationGracePeriodSeconds is 65", "take 65 s"]),
    (["config.engine.history.journal=/var/j"], ["config.engine.history.journal is /var/j"]),
    (["config.engine.ladder.file=ladder.json"], ["config.engine.ladder.file is ladder.json"]),
    (["models.claim=c", "config.model_repository=/models", "config.engine.ladder.file=/models/l"],
     ["config.engine.ladder.file is /models/l", "extraVolumeMounts"]),
    (["config.engine.ladder.file=/state/l", "extraVolumeMounts[0].mountPath=/state",
      "extraVolumeMounts[0].name=s", "extraVolumeMounts[0].readOnly=true"],
     ["config.engine.ladder.file is /state/l"]),
    (["config.engine.ladder.file=/states/l", "extraVolumeMounts[0].mountPath=/state",
      "extraVolumeMounts[0].name=s"], ["config.engine.ladder.file is /states/l"]),
    (["models.claim=c", "config.models[0].name=m", "config.models[0].path=/models/a",
      "config.models[1].name=m", "config.models[1].path=/models/b"],
     ["config.models lists the model m, version 1 twice"]),
    (["models.claim=c", "config.models[0].name=m", "config.models[0].path=/srv/a"],
     ['the path of the model "m" is /srv/a', "extraVolumeMounts"]),
    (["config.models[0].name=m", "config.models[0].path=models/demo"],
     ['the path of the model "m" is models/demo']),
    (["tls.secretName=s", "config.server.tls.certificate_file=/c"],
     ["config.server.tls.certificate_file is /c", "the Secret s"]),
    (["tls.secretName=s", "config.server.tls.key_file=/k"], ["config.server.tls.key_file is /k"]),
    (["tls.secretName=s", "tls.clientCaSecretName=c", "config.server.tls.client_ca_file=/a"],
     ["config.server.tls.client_ca_file is /a", "the Secret c"]),
    (["callers.secretName=s", "config.server.auth.callers_file=/a"],
     ["config.server.auth.callers_file is /a"]),
    (["models.claim=c", "models.image=i"], ["models.claim and models.image"]),
    (["models.image=c", "models.initImage=i"], ["models.image and models.initImage"]),
    (["models.claim=a", "models.initImage=i"], ["models.claim and models.initImage"]),
])
def test_values_that_cannot_work_together_are_refused(settings, named):
    options = [part for each in settings for part in ("--set", each)]
    result = helm("template", "sluice", CHART, *options)
    assert result.returncode != 0, settings
    assert all(each in result.stderr for each in named), result.stderr


@pytest.mark.parametrize("values, message", [
    ({"resources": {"memory": 512}}, "resources.memory is 512; expected a whole number with a unit,"
                                     " Ki, Mi, Gi or Ti, for example 512Mi"),
    ({"resources": {"memory": "512"}}, "resources.memory is 512; expected a whole number with"),
    ({"resources": {"memory": "2G"}}, "resources.memory is 2G; expected a whole number with"),
    ({"resources": {"memory": "2.5Gi"}}, "resources.memory is 2.5Gi; expected a whole number with"),
    ({"models": {"claim": "c", "storage": 20}}, "models.storage is 20; expected a whole number"),
    ({"models": {"initSize": "10G"}}, "models.initSize is 10G; expected a whole number with"),
    ({"resources": {"cpu": 2.5}}, "resources.cpu is 2.5; expected whole cores, for example 2"),
    ({"config": {"engine": {"queue": {"max_wait": 5}}}},
     "config.engine.queue.max_wait is 5; a duration needs a unit, us, ms, s, min or h"),
    ({"config": {"engine": {"queue": {"max_wait": "5"}}}},
     "config.engine.queue.max_wait is 5; a duration needs a unit"),
    ({"config": {"server": {"lifecycle": {"drain_timeout": "30sec"}}}},
     "config.server.lifecycle.drain_timeout is 30sec; a duration needs a unit"),
    ({"config": {"server": {"memory": {"limit_bytes": "1Gi"}}}},
     "config.server.memory.limit_bytes is 1Gi; expected a whole number of bytes, or one with a"
     " unit, B, KiB, MiB, GiB or TiB, for example 512MiB"),
])
def test_a_value_without_its_unit_is_refused_with_the_expected_form(tmp_path, values, message):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    result = helm("template", "sluice", CHART, "--values", file)
    assert result.returncode != 0 and message in result.stderr, result.stderr


@pytest.mark.parametrize("settings", [
    ["resources.memory=512Mi", "models.claim=c", "models.storage=20Gi",
     "config.model_repository=/models"],
    ["config.engine.queue.max_wait=0", "config.engine.ladder.warm_up=250ms"],
    ["terminationGracePeriodSeconds=46"],
    ["podSpec.terminationGracePeriodSeconds=46"],
    ["podSpec.terminationGracePeriodSeconds=66", "envoy.sidecar=true"],
    ["config.engine.ladder.file=/state/l", "config.engine.history.journal=/state/a/j",
     "extraVolumeMounts[0].mountPath=/state/", "extraVolumeMounts[0].name=s"],
    ["models.claim=c", "config.models[0].name=m", "config.models[0].path=/models/a",
     "config.models[1].name=m", "config.models[1].path=/models/b", "config.models[1].version=2"],
    ["config.models[0].name=m", "config.models[0].path=/srv/m",
     "extraVolumeMounts[0].mountPath=/srv/m", "extraVolumeMounts[0].name=m"],
    ["config.server.tls.certificate_file=/c", "config.server.tls.key_file=/k"],
    ["config.server.lifecycle.drain_delay=0", "terminationGracePeriodSeconds=36"],
    ["config.server.lifecycle=null", "terminationGracePeriodSeconds=37"],
    ["config.server.grpc.address=[::]:8001", "config.server.metrics.address=[::]:8002"],
    ["config.server.memory.limit_bytes=2GiB"],
    ["config.server.admin.address=localhost:9003"], ["config.server.admin.address=[::1]:9003"],
    ["config.server.admin.address=0.0.0.0:8003", "config.server.admin.open_to_network=true"],
    ["config.server.admin.address=0.0.0.0:8003", "config.server.admin.secured=true",
     "callers.secretName=s"],
    ["config.server.auth.anonymous=false", "callers.secretName=s"],
    ["config.server.auth.anonymous=false", "extraEnv[0].name=SLUICE_SERVER_AUTH_CALLERS_FILE"],
    ["config.server.auth.anonymous=false", "extraArgs[0]=--server.auth.callers-file=/c"],
    ["config.server.memory.limit_bytes=2147483648"],
    ["config.server.memory.limit_bytes=2097152KiB"],
    ["autoscaling.enabled=true", "autoscaling.minReplicas=2", "autoscaling.maxReplicas=2"],
    ["autoscaling.minReplicas=9", "autoscaling.maxReplicas=2"],
])
def test_values_at_their_limits_are_rendered(settings):
    assert chart(*settings)


@pytest.mark.parametrize("settings, tag", [
    ((), "0.1.0"),
    (("image.tag=v7",), "v7"),
    (("image.tag=v7-cuda", "gpus=1"), "v7"),
    (("image.tag=v7", "gateway.image.tag=v8"), "v8"),
])
def test_the_gateway_has_the_tag_of_the_daemon(settings, tag):
    for part, name in (("gateway", "sluice-gateway"), ("inferencePool", "sluice")):
        manifests = chart(f"{part}.enabled=true", *settings)
        containers = the("Deployment", [each for each in manifests
                                        if each["metadata"]["name"] == name])["spec"]["template"][
                                            "spec"]["containers"]
        image, = [each["image"] for each in containers
                  if each["image"].startswith("sluice-gateway")]
        assert image == f"sluice-gateway:{tag}"


@pytest.mark.parametrize("settings", [
    ("envoy.enabled=true", "envoy.sidecar=true"),
    ("envoy.sidecar=true", "tls.secretName=x"),
    ("envoy.sidecar=true", "gateway.enabled=true"),
    ("envoy.sidecar=true", "inferencePool.enabled=true", "inferencePool.grpc=true"),
    ("inferencePool.enabled=true", "inferencePool.grpc=true", "tls.secretName=x"),
    ("envoy.enabled=true", "tls.secretName=x"),
    ("models.storage=1Gi",),
])
def test_choices_that_exclude_each_other_are_refused(settings):
    options = [part for each in settings for part in ("--set", each)]
    result = helm("template", "sluice", CHART, *options)
    assert result.returncode != 0 and settings[-1].split("=")[0] in result.stderr


def test_the_schema_accepts_every_option_of_the_daemon(tmp_path):
    """The effective configuration has all options, each with its default value."""
    printed = subprocess.run([SLUICED, "--model", f"demo={DEMO}", "--print-config"],
                             capture_output=True, text=True, check=True)
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({
        "config": yaml.safe_load(printed.stdout),
        "extraVolumeMounts": [{"name": "m", "mountPath": str(DEMO.parent)}]}))
    result = helm("template", "sluice", CHART, "--values", file)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("option, named", [
    ("server.grpc.adress=0.0.0.0:1", "adress"),
    ("engine.queue.max_wait_us=1", "max_wait_us"),
    ("engine.queue.max_wait=1", "max_wait"),
    ("engine.queue.max_requests=0", "max_requests"),
    ("engine.ladder.strategy=best", "strategy"),
    ("server.log.level=3", "level"),
    ("models[0].pth=x", "pth"),
])
def test_a_wrong_option_fails_at_render(option, named):
    result = helm("template", "sluice", CHART, "--set", f"config.{option}")
    assert result.returncode != 0 and named in result.stderr


def test_two_releases_share_no_object():
    one, two = chart(), chart(release="embedder")
    names = [{(each["kind"], each["metadata"]["name"]) for each in of} for of in (one, two)]
    assert not names[0] & names[1]
    selectors = [the("Deployment", of)["spec"]["selector"]["matchLabels"] for of in (one, two)]
    pods = [the("Deployment", of)["spec"]["template"]["metadata"]["labels"] for of in (one, two)]
    assert selectors[0].items() <= pods[0].items() and not selectors[0].items() <= pods[1].items()
    for service in ("sluice-embedder", "sluice-embedder-headless"):
        selected = the("Service", two, service)["spec"]["selector"]
        assert selected.items() <= pods[1].items() and not selected.items() <= pods[0].items()


def test_each_release_is_scaled_by_its_own_load(tmp_path):
    """promtool evaluates the queries of KEDA over the pods of several releases."""
    releases = {("sluice", "prod"): 1, ("sluice", "stage"): 10, ("sluice-b", "prod"): 100,
                ("r" * 53, "prod"): 1000}
    series, checks = [], []
    for (release, namespace), load in releases.items():
        manifests = chart("autoscaling.enabled=true", "autoscaling.kind=keda", release=release,
                          namespace=namespace)
        # Kubernetes cuts the name of a ReplicaSet to 58 characters before it adds five for a pod.
        replicas = f"{the('Deployment', manifests)['metadata']['name']}-74c6d9f8b5-"[:58]
        for pod in ("abcde", "x2z9k"):
            labels = f'job="sluice",namespace="{namespace}",pod="{replicas}{pod}",model="m"'
            series += [
                {"series": f"sluice_estimated_drain_seconds{{{labels}}}", "values": f"{load}x60"},
                {"series": f'sluice_stage_duration_seconds_sum{{{labels},stage="replay"}}',
                 "values": f"0+{15 * load}x60"}]
        for trigger in the("ScaledObject", manifests)["spec"]["triggers"]:
            checks.append({"expr": trigger["metadata"]["query"], "eval_time": "10m",
                           "exp_samples": [{"labels": "{}", "value": 2 * load}]})
    case = {"interval": "15s", "input_series": series, "promql_expr_test": checks}
    file = tmp_path / "queries_test.yml"
    file.write_text(yaml.safe_dump({"tests": [case]}))
    result = subprocess.run([tool("promtool"), "test", "rules", file], capture_output=True,
                            text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_names_are_valid_for_the_longest_release():
    """Kubernetes allows 63 characters in names of services and in labels."""
    release = "r" * 53  # Helm allows no more.
    names = set()
    for component in COMPONENTS:
        parts = [COMPONENTS[each] for each in [*NEEDS.get(component, []), component]]
        for each in chart(release=release,
                          values=merged(CLAIM, SOURCES["model_fill"], *parts)):
            names.add(each["metadata"]["name"])
            assert len(each["metadata"]["name"]) <= 63
            labels = each["metadata"].get("labels", {})
            assert all(len(value) <= 63 for value in labels.values())
    assert any(name.endswith("r-endpoint-picker") for name in names)


def test_a_changed_option_restarts_the_pods():
    def annotation(*settings):
        pod = the("Deployment", chart(*settings))["spec"]["template"]
        return pod["metadata"]["annotations"]["checksum/config"]

    assert annotation() == annotation("replicas=3")
    assert annotation() != annotation("config.server.log.format=text")


def test_the_daemon_accepts_the_options_of_the_chart(tmp_path):
    text = the("ConfigMap", chart(f"config.models[0].path={DEMO}", "config.models[0].name=demo",
                                  "extraVolumeMounts[0].name=m",
                                  f"extraVolumeMounts[0].mountPath={DEMO.parent}"))
    file = tmp_path / "sluice.yaml"
    file.write_text(text["data"]["sluice.yaml"])
    check = subprocess.run([SLUICED, "--config", file, "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize(
    "setting, named",
    [
        ("gpus=2", "/gpus"),
        ("replica=3", "replica"),
        ("resources.cpu=500m", "resources.cpu is 500m; expected whole cores, for example 2"),
        ("models.claims=x", "claims"),
        ("config.models[0].name=m", "missing property 'path'"),
        ("config.models[0].path=/models/m", "missing property 'name'"),
        ("models.accessModes[0]=Any", "accessModes"),
        ("models.fillImage=i", "models.fillImage needs models.claim"),
        ("models.claim=c,models.fillImage=i,config.model_repository=/models",
         "models.fillImage and config.model_repository"),
        ("fullnameOverride=" + "n" * 48, "fullnameOverride"),
    ],
)
def test_wrong_value_is_refused_with_its_name(setting, named):
    result = helm("template", "sluice", CHART, "--set", setting)
    assert result.returncode != 0 and named in result.stderr
