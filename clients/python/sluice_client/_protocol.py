"""The messages and methods of the Open Inference Protocol, created from their descriptor.

The messages use a separate descriptor pool. Other clients of the protocol, such as tritonclient,
register messages with the same names in Protobuf's default pool, which rejects a second definition.
With a separate pool, one process can import both. Messages created from a descriptor, instead of
generated code, also work with every version of Protobuf since 4.25.
"""

from __future__ import annotations

from typing import Any, Callable

from google.protobuf import descriptor_pool, message_factory

from . import _inference_descriptor

# Message classes are created at run time, so type checkers do not see their fields.
Message = Any

_SERVICE = "inference.GRPCInferenceService"

_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(_inference_descriptor.FILE)


class Method:
    """A method of the service: its path and the classes of its messages."""

    def __init__(self, name: str) -> None:
        method = _pool.FindServiceByName(_SERVICE).methods_by_name[name]
        self.path = f"/{_SERVICE}/{name}"
        self.request: Any = message_factory.GetMessageClass(method.input_type)
        self.response: Any = message_factory.GetMessageClass(method.output_type)

    def on(self, kind: Callable[..., Any]) -> Any:
        """Returns a callable for the method; `kind` is the channel's factory, e.g. unary_unary."""
        return kind(
            self.path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self.response.FromString,
        )


class Readiness:
    """gRPC's health check of the daemon. It needs no credential, unlike the other methods."""

    path = "/grpc.health.v1.Health/Check"
    _SERVICE = b"sluice.readiness"
    request = b"\x0a%c%s" % (len(_SERVICE), _SERVICE)  # HealthCheckRequest: field 1, a string
    _SERVING = b"\x08\x01"  # HealthCheckResponse: field 1, the status SERVING

    def on(self, kind: Callable[..., Any]) -> Any:
        """Returns a callable that returns whether the daemon is ready; see Method.on."""
        return kind(self.path, request_serializer=bytes,
                    response_deserializer=self._SERVING.__eq__)


SERVER_READY = Readiness()
SERVER_METADATA = Method("ServerMetadata")
MODEL_READY = Method("ModelReady")
MODEL_METADATA = Method("ModelMetadata")
MODEL_CONFIG = Method("ModelConfig")
MODEL_INFER = Method("ModelInfer")
MODEL_STREAM_INFER = Method("ModelStreamInfer")
REPOSITORY_INDEX = Method("RepositoryIndex")
REPOSITORY_LOAD = Method("RepositoryModelLoad")
REPOSITORY_UNLOAD = Method("RepositoryModelUnload")

UNARY = (
    SERVER_READY,
    SERVER_METADATA,
    MODEL_READY,
    MODEL_METADATA,
    MODEL_CONFIG,
    MODEL_INFER,
    REPOSITORY_INDEX,
    REPOSITORY_LOAD,
    REPOSITORY_UNLOAD,
)
