"""The flags and the configuration of the endpoint picker, llm-d-router 0.10.0.

The tables follow the source of the tag v0.10.0: the flags in pkg/epp/server/options.go, the types
in apix/config/v1alpha1, and the parameters of the plugins in pkg/epp/framework/plugins. The picker
decodes its configuration strictly. The tables have only the plugins that the manifests use.
"""

from gateway_schemas import object_schema

FLAGS = {
    "allow-experimental-plugins", "cert-path", "config-file", "config-text",
    "disable-endpoint-subset-filter", "drain-timeout", "emit-endpoint-scores",
    "enable-cert-reload", "enable-grpc-stream-metrics", "enable-pprof", "endpoint-selector",
    "endpoint-target-ports", "grpc-health-port", "grpc-max-recv-msg-size",
    "grpc-max-send-msg-size", "grpc-port", "ha-enable-leader-election", "health-checking",
    "metrics-cert-dir", "metrics-client-ca-file", "metrics-endpoint-auth", "metrics-port",
    "metrics-staleness-threshold", "pool-group", "pool-name", "pool-namespace",
    "refresh-metrics-interval", "refresh-prometheus-metrics-interval", "secure-serving",
    "tls-cipher-suites", "tls-min-version", "tracing", "v",
}
# Flags that end the picker with an error.
REFUSED_FLAGS = {
    "total-queued-requests-metric", "total-running-requests-metric",
    "kv-cache-usage-percentage-metric", "lora-info-metric", "cache-info-metric",
}

_TEXT = {"type": "string", "minLength": 1}
_NUMBER = {"type": "number"}
_REFERENCE = object_schema(("pluginRef",), pluginRef=_TEXT)
# A metric with labels, as in name{label="value"}.
_METRIC = {"type": "string", "pattern": r'^([A-Za-z_:][\w:]*(\{\w+="[^"]*"(,\w+="[^"]*")*\})?)?$'}
_ENGINE = object_schema(
    ("name",), name=_TEXT, queuedRequestsSpec=_METRIC, runningRequestsSpec=_METRIC,
    kvUsageSpec=_METRIC, loraSpec=_METRIC, cacheInfoSpec=_METRIC)
_PARAMETERS = {
    "metrics-data-source": object_schema(
        scheme={"enum": ["http", "https"]}, path=_TEXT,
        port={"type": "integer", "minimum": 1, "maximum": 65535},
        insecureSkipVerify={"type": "boolean"}, interval=_TEXT),
    "core-metrics-extractor": object_schema(
        engineLabelKey=_TEXT, defaultEngine=_TEXT,
        engineConfigs={"type": "array", "items": _ENGINE}),
    "passthrough-parser": object_schema(),
    "queue-scorer": object_schema(),
    "lora-affinity-scorer": object_schema(),
    "prefix-cache-scorer": object_schema(
        matchLengthWeight=_NUMBER, matchLengthScaleTokens={"type": "integer"},
        prefixMatchInfoProducerName=_TEXT),
    "max-score-picker": object_schema(maxNumOfEndpoints={"type": "integer"}),
}
CONFIG = object_schema(
    ("apiVersion", "kind", "plugins", "schedulingProfiles"),
    apiVersion={"const": "llm-d.ai/v1alpha1"},
    kind={"const": "EndpointPickerConfig"},
    plugins={"type": "array", "items": {"oneOf": [
        object_schema(("type",), name=_TEXT, type={"const": kind}, parameters=parameters)
        for kind, parameters in _PARAMETERS.items()]}},
    requestHandler=object_schema(parsers={"type": "array", "items": _REFERENCE}),
    schedulingProfiles={"type": "array", "minItems": 1, "items": object_schema(
        ("name", "plugins"), name=_TEXT,
        plugins={"type": "array", "items": object_schema(
            ("pluginRef",), pluginRef=_TEXT, weight=_NUMBER)})},
)
