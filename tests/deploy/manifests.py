"""Renders the manifests of deploy/kubernetes with kubectl's Kustomize."""

import copy
import functools
import re
import subprocess

import yaml

from processes import DEPLOY, tool

KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = ["cpu", "gpu", "keda", "hpa", "kserve"]
SCALED = ["cpu", "gpu", "keda", "hpa"]  # The overlays with our Deployment.
POD_LABELS = {"app.kubernetes.io/name": "sluice"}


def default_of(option):
    """Returns the default of an option of the daemon, as docs/options.md shows it."""
    page = (DEPLOY.parent / "docs" / "options.md").read_text()
    return re.search(rf"^\| `{re.escape(option)}` \|.*; default (.*)\. \|", page, re.M)[1]


@functools.cache
def _render(folder):
    result = subprocess.run([tool("kubectl"), "kustomize", folder], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "deprecated" not in result.stderr, result.stderr
    return list(yaml.safe_load_all(result.stdout))


def render(folder):
    """Returns the manifests of a kustomization; each caller gets a new copy."""
    return copy.deepcopy(_render(folder))


def overlay(name):
    return render(KUBERNETES / "overlays" / name)


def with_components(folder, *components, base="base"):
    """Returns the manifests of `base` with some components, rendered in the new `folder`."""
    folder.mkdir()
    made = folder / "variant"
    made.mkdir()
    # Kustomize accepts only relative paths, but follows links.
    (folder / "kubernetes").symlink_to(KUBERNETES)
    text = {
        "resources": [f"../kubernetes/{base}"],
        "components": [f"../kubernetes/components/{each}" for each in components],
    }
    (made / "kustomization.yaml").write_text(yaml.safe_dump(text))
    return render(made)


def the(kind, manifests, name=None):
    found = [
        each
        for each in manifests
        if each["kind"] == kind and name in (None, each["metadata"]["name"])
    ]
    assert len(found) == 1, f"{len(found)} of {kind} {name or ''}"
    return found[0]


def config_map(manifests, name):
    """Returns the data of the ConfigMap `name`; the name may end in a hash of the contents."""
    found = [
        each["data"]
        for each in manifests
        if each["kind"] == "ConfigMap"
        and re.fullmatch(rf"{name}-[2-9bcdfghkmt]{{10}}", each["metadata"]["name"])
    ]
    assert len(found) == 1, f"{len(found)} of ConfigMap {name}"
    return found[0]


def container(deployment, name):
    pod = deployment["spec"]["template"]["spec"]
    return next(each for each in pod["containers"] if each["name"] == name)
