"""Schemas of GRPCRoute, HTTPRoute and InferencePool, because no package provides them.

The tables follow the published CRDs of Gateway API 1.3.0, standard channel, and of the Inference
Extension API v1. They are subsets: a CRD accepts everything that its table accepts.
"""


def _object(required=(), **properties):
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
    "items": _object(("name",), **_REFERENCE, sectionName=_text(253, rf"^{_DOMAIN}$")),
}
_HOSTNAMES = {"type": "array", "maxItems": 16, "items": _text(253, rf"^(\*\.)?{_DOMAIN}$")}
_BACKENDS = {
    "type": "array",
    "maxItems": 16,
    "items": _object(
        ("name",), **_REFERENCE, weight={"type": "integer", "minimum": 0, "maximum": 1000000}
    ),
}


def _route(kind, matches, **of_a_rule):
    rule = _object(
        matches={"type": "array", "maxItems": 64, "items": matches},
        backendRefs=_BACKENDS,
        **of_a_rule,
    )
    return _object(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": "gateway.networking.k8s.io/v1"},
        kind={"const": kind},
        metadata={"type": "object"},
        spec=_object(
            parentRefs=_PARENTS,
            hostnames=_HOSTNAMES,
            rules={"type": "array", "maxItems": 16, "items": rule},
        ),
    )


# The type of a match is Exact, the default.
_METHOD = _object(
    service=_text(1024, r"^\.?[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*)*$"),
    method=_text(1024, r"^[A-Za-z_][A-Za-z_0-9]*$"),
) | {"minProperties": 1}
_PATH = _object(type={"enum": ["Exact", "PathPrefix"]}, value=_text(1024, r"^/"))
_DURATION = _text(10, r"^([0-9]{1,5}(h|m|s|ms)){1,4}$")

_INFERENCE_POOL = _object(
    ("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "inference.networking.k8s.io/v1"},
    kind={"const": "InferencePool"},
    metadata={"type": "object"},
    spec=_object(
        ("selector", "targetPorts", "endpointPickerRef"),
        selector=_object(
            ("matchLabels",),
            matchLabels={"type": "object", "additionalProperties": _text(63, least=0)},
        ),
        targetPorts={
            "type": "array",
            "minItems": 1,
            "maxItems": 8,
            "items": _object(("number",), number=_PORT),
        },
        endpointPickerRef=_object(
            ("name",),
            group=_REFERENCE["group"],
            kind=_REFERENCE["kind"],
            name=_REFERENCE["name"],
            port=_object(("number",), number=_PORT),
            failureMode={"enum": ["FailOpen", "FailClose"]},
        ),
    ),
)

SCHEMAS = {
    "GRPCRoute": _route("GRPCRoute", _object(method=_METHOD)),
    "HTTPRoute": _route(
        "HTTPRoute",
        _object(path=_PATH),
        timeouts=_object(request=_DURATION, backendRequest=_DURATION),
    ),
    "InferencePool": _INFERENCE_POOL,
}
