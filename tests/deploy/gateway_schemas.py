"""Schemas of GRPCRoute, HTTPRoute and InferencePool, because no package provides them.

The tables follow the published CRDs of Gateway API 1.3.0, standard channel, and of the Inference
Extension API v1. They are subsets: a CRD accepts everything that its table accepts.
"""


def object_schema(required=(), **properties):
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = rf"{_LABEL}(\.{_LABEL})*"


def _text(most, pattern=None, least=1):
    return {"type": "string", "minLength": least, "maxLength": most} | (
        {"pattern": pattern} if pattern else {}
    )


_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_REFERENCE = {
    "group": _text(253, rf"^$|^{_DOMAIN}$", least=0),
    "kind": _text(63, r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"),
    "name": _text(253),
    "namespace": _text(63, rf"^{_LABEL}$"),
    "port": _PORT,
}

_PARENTS = {
    "type": "array",
    "maxItems": 32,
    "items": object_schema(("name",), **_REFERENCE, sectionName=_text(253, rf"^{_DOMAIN}$")),
}
_HOSTNAMES = {"type": "array", "maxItems": 16, "items": _text(253, rf"^(\*\.)?{_DOMAIN}$")}
_BACKENDS = {
    "type": "array",
    "maxItems": 16,
    "items": object_schema(
        ("name",), **_REFERENCE, weight={"type": "integer", "minimum": 0, "maximum": 1000000}
    ),
}


def _route(kind, matches, **of_a_rule):
    rule = object_schema(
        matches={"type": "array", "maxItems": 64, "items": matches},
        backendRefs=_BACKENDS,
        **of_a_rule,
    )
    return object_schema(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": "gateway.networking.k8s.io/v1"},
        kind={"const": kind},
        metadata={"type": "object"},
        spec=object_schema(
            parentRefs=_PARENTS,
            hostnames=_HOSTNAMES,
            rules={"type": "array", "maxItems": 16, "items": rule},
        ),
    )


# The type of a match is Exact, the default.
_METHOD = object_schema(
    service=_text(1024, r"^\.?[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*)*$"),
    method=_text(1024, r"^[A-Za-z_][A-Za-z_0-9]*$"),
) | {"minProperties": 1}
_PATH = object_schema(type={"enum": ["Exact", "PathPrefix"]}, value=_text(1024, r"^/"))
_DURATION = _text(10, r"^([0-9]{1,5}(h|m|s|ms)){1,4}$")

_INFERENCE_POOL = object_schema(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "inference.networking.k8s.io/v1"},
    kind={"const": "InferencePool"},
    metadata={"type": "object"},
    spec=object_schema(
        ("selector", "targetPorts", "endpointPickerRef"),
        selector=object_schema(
            ("matchLabels",),
            matchLabels={"type": "object", "additionalProperties": _text(63, least=0)},
        ),
        targetPorts={
            "type": "array",
            "minItems": 1,
            "maxItems": 8,
            "items": object_schema(("number",), number=_PORT),
        },
        appProtocol={"enum": ["http", "kubernetes.io/h2c"]},
        endpointPickerRef=object_schema(
            ("name",),
            group=_REFERENCE["group"],
            kind=_REFERENCE["kind"],
            name=_REFERENCE["name"],
            port=object_schema(("number",), number=_PORT),
            failureMode={"enum": ["FailOpen", "FailClose"]},
        ),
    ),
)

SCHEMAS = {
    "GRPCRoute": _route("GRPCRoute", object_schema(method=_METHOD)),
    "HTTPRoute": _route(
        "HTTPRoute",
        object_schema(path=_PATH),
        timeouts=object_schema(request=_DURATION, backendRequest=_DURATION),
    ),
    "InferencePool": _INFERENCE_POOL,
}
