"""Lints and renders the Helm chart, and compares it with the manifests of deploy/kubernetes."""

import subprocess

import pytest
import yaml

import schemas
from manifests import config_map, overlay, the, with_components
from processes import DEMO, DEPLOY, SLUICED, tool

CHART = DEPLOY / "helm" / "sluice"
MONITORED = ["podMonitor.enabled=true"]


def helm(*arguments):
    return subprocess.run([tool("helm"), *arguments], capture_output=True, text=True)


def chart(*settings, release="sluice"):
    """Returns the chart's manifests with the given settings, each NAME=VALUE."""
    options = [part for each in settings for part in ("--set", each)]
    result = helm("template", release, CHART, *options)
    assert result.returncode == 0, result.stderr
    return [each for each in yaml.safe_load_all(result.stdout) if each]


def plain(manifest):
    """Returns a manifest's spec without the parts that differ between chart and kustomization.

    These are the release label, the hash of the options, and the image pull policy."""
    spec = yaml.safe_load(yaml.safe_dump(manifest["spec"]))

    def walk(value):
        if isinstance(value, dict):
            value.pop("app.kubernetes.io/instance", None)
            value.pop("checksum/config", None)
            value.pop("imagePullPolicy", None)
            # The order of volumes does not matter.
            for key in ("volumes", "volumeMounts"):
                if key in value:
                    value[key].sort(key=lambda each: each["name"])
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(spec)
    for volume in spec.get("template", {}).get("spec", {}).get("volumes", []):
        if volume["name"] == "config":
            volume["configMap"]["name"] = "sluice"
    return spec


@pytest.mark.parametrize(
    "settings", [(), ("gpus=1", "tls.secretName=x", "autoscaling.enabled=true")]
)
def test_the_chart_passes_the_linter(settings):
    options = [part for each in settings for part in ("--set", each)]
    result = helm("lint", "--strict", CHART, *options)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "settings, expected",
    [
        ((), "cpu"),
        (("autoscaling.enabled=true",), "hpa"),
        (("gpus=1", "resources.memory=16Gi"), "gpu"),
    ],
)
def test_chart_equals_the_overlay(settings, expected):
    manifests, others = chart(*MONITORED, *settings), overlay(expected)
    compared = 0
    for manifest in manifests:
        schemas.validate(manifest)
        if manifest["kind"] == "ConfigMap":
            options = yaml.safe_load(manifest["data"]["sluice.yaml"])
            assert options == yaml.safe_load(config_map(others, "sluice")["sluice.yaml"])
            continue
        name = manifest["metadata"]["name"]
        assert plain(manifest) == plain(the(manifest["kind"], others, name)), manifest["kind"]
        compared += 1
    left = {each["kind"] for each in others} - {each["kind"] for each in manifests}
    assert left == {"PersistentVolumeClaim", "PrometheusRule"}
    assert compared >= 6


@pytest.mark.parametrize(
    "settings, components",
    [
        (("tls.secretName=sluice-tls",), ("model_claim", "tls")),
        (("models.image=registry.example/sluice-models:1",), ("model_image",)),
    ],
)
def test_chart_equals_the_components(settings, components, tmp_path):
    """The base sets no replica count and no resources, and its image has no tag."""
    rendered, others = chart(*settings), with_components(tmp_path / "made", *components)
    for name in ("sluice", "sluice-headless"):
        assert plain(the("Service", rendered, name)) == plain(the("Service", others, name))
    mine, base = (plain(the("Deployment", each)) for each in (rendered, others))
    del mine["replicas"]
    container = mine["template"]["spec"]["containers"][0]
    del container["resources"]
    container["image"] = "sluice"
    assert mine == base


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


def test_a_changed_option_restarts_the_pods():
    def annotation(*settings):
        pod = the("Deployment", chart(*settings))["spec"]["template"]
        return pod["metadata"]["annotations"]["checksum/config"]

    assert annotation() == annotation("replicas=3")
    assert annotation() != annotation("config.server.log.format=text")


def test_the_daemon_accepts_the_options_of_the_chart(tmp_path):
    text = the("ConfigMap", chart(f"config.models[0].path={DEMO}", "config.models[0].name=demo"))
    file = tmp_path / "sluice.yaml"
    file.write_text(text["data"]["sluice.yaml"])
    check = subprocess.run([SLUICED, "--config", file, "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


@pytest.mark.parametrize(
    "setting, named",
    [
        ("gpus=2", "/gpus"),
        ("replica=3", "replica"),
        ("resources.cpu=500m", "/resources/cpu"),
        ("models.claims=x", "claims"),
        ("config.models=null", "models"),
    ],
)
def test_wrong_value_is_refused_with_its_name(setting, named):
    result = helm("template", "sluice", CHART, "--set", setting)
    assert result.returncode != 0 and named in result.stderr
