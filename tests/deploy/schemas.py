"""Validates manifests strictly and offline: an unknown field or a wrong type raises Invalid.

| resource | schema |
|---|---|
| Kubernetes' own | kubernetes-validate (PyPI), the OpenAPI schemas of Kubernetes 1.37, strict |
| KServe | the field tables in KServe's own Python models (PyPI, kserve); pods' parts as above |
| KEDA, PodMonitor, PrometheusRule | models generated from their CRDs (PyPI, cloudcoil-models-...) |
| GRPCRoute, HTTPRoute, InferencePool | gateway_schemas.py |
"""

import ast
import copy
import importlib
import pathlib
import re
import sys

import jsonschema
import kubernetes_validate

from gateway_schemas import SCHEMAS

KUBERNETES = "1.37"
_INSTALLED = pathlib.Path(sys.prefix) / "schemas"  # From tools/install_manifest_schemas.sh.
_KSERVE = _INSTALLED / "kserve" / "models"
_GENERATED = {
    "ScaledObject": "cloudcoil.models.keda.v1alpha1",
    "PodMonitor": "cloudcoil.models.prometheus_operator.v1",
    "PrometheusRule": "cloudcoil.models.prometheus_operator.v1",
}


class Invalid(AssertionError):
    """A manifest that violates its schema."""


def validate(manifest):
    assert (
        _INSTALLED.is_dir()
    ), f"schemas are missing: tools/install_manifest_schemas.sh {sys.prefix}"
    try:
        _validate(manifest)
    except (jsonschema.ValidationError, ValueError) as error:  # pydantic raises a ValueError.
        raise Invalid(f"{manifest['kind']} {manifest['metadata'].get('name')}: {error}") from error


def assert_finds(manifest, path, value):
    """Asserts that a valid manifest becomes Invalid if `value` is set at `path` in a copy."""
    validate(manifest)
    planted = place = copy.deepcopy(manifest)
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    try:
        validate(planted)
    except Invalid:
        return
    raise AssertionError(f"{value!r} at {path} is accepted, but must be Invalid")


def _validate(manifest):
    group, _, version = manifest["apiVersion"].rpartition("/")
    kind = manifest["kind"]
    if group == "serving.kserve.io":
        _check_kserve(f"{version.capitalize()}{kind}", manifest, kind)
    elif kind in SCHEMAS:
        jsonschema.validate(manifest, SCHEMAS[kind])
    elif kind in _GENERATED:
        _check_generated(manifest)
    else:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def _check_generated(manifest):
    """Checks that `manifest` survives a round trip; the models drop unknown fields."""
    if str(_INSTALLED) not in sys.path:
        sys.path.append(str(_INSTALLED))
    model = getattr(importlib.import_module(_GENERATED[manifest["kind"]]), manifest["kind"])
    parsed = model.model_validate(manifest)
    again = parsed.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if again != manifest:
        raise Invalid(f"{manifest['kind']}: unknown field: {manifest} became {again}")


_PLAIN = {"str": str, "int": int, "bool": bool, "object": object}


def _kserve_fields(name):
    """Returns {JSON field: type} of a KServe model, or None for a Kubernetes type."""
    path = _KSERVE / (
        re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower() + ".py"
    )
    if not path.exists():
        return None
    tables = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assign)
        and getattr(node.targets[0], "id", "") in ("openapi_types", "attribute_map")
    }
    return {tables["attribute_map"][name]: kind for name, kind in tables["openapi_types"].items()}


def _check_kserve(kind, value, where):
    """Checks `value` against the type `kind`, in the notation of KServe: list[V1Container]."""
    if match := re.fullmatch(r"list\[(.*)\]", kind):
        _require(list, value, where)
        for index, item in enumerate(value):
            _check_kserve(match[1], item, f"{where}[{index}]")
    elif match := re.fullmatch(r"dict\(str, (.*)\)", kind):
        _require(dict, value, where)
        for key, item in value.items():
            _check_kserve(match[1], item, f"{where}.{key}")
    elif kind in _PLAIN:
        _require(_PLAIN[kind], value, where)
    elif fields := _kserve_fields(kind):
        _require(dict, value, where)
        for key, item in value.items():
            if key not in fields:
                raise Invalid(f"{where}.{key} is unknown")
            _check_kserve(fields[key], item, f"{where}.{key}")
    else:
        assert kind in _PARTS, f"{where}: no schema for {kind}"
        kubernetes_validate.validate(_PARTS[kind](value), KUBERNETES, strict=True)


def _require(kind, value, where):
    if not isinstance(value, kind):
        raise Invalid(f"{where} is not of type {kind.__name__}")


# For each part of a pod that KServe uses, a Kubernetes manifest that contains the part.
_PARTS = {
    "V1Container": lambda value: {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [value]},
    },
    "V1EnvVar": lambda value: {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"containers": [{"name": "a", "image": "a", "env": [value]}]},
    },
    "V1ObjectMeta": lambda value: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": value},
}
