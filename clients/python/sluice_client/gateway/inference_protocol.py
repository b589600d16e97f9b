"""The Open Inference Protocol over HTTP: /v2, with the binary tensor extension."""

from __future__ import annotations

import math
import sys
from typing import Any, Mapping, Optional

from ..results import TensorInfo
from ..tensors import DATATYPES, Tensor, element_bytes
from .call import Answer, Failure, HttpCall, Whole, to_json
from .hostile import Fields, Refused, check_texts, parse_object
from .serving import Gateway

_MOST_DIMENSIONS = 8
# Bytes of a text of an answer and its JSON for each of its bytes; a text has at least four.
_COST_OF_TEXTS = 20


def error(failure: Failure) -> Mapping[str, Any]:
    return {"error": failure.message}


async def server(gateway: Gateway, call: HttpCall) -> Answer:
    info = await gateway.client.server_info(**call.options)
    extensions = [*info.extensions, "binary_tensor_data"]
    return Whole({"name": info.name, "version": info.version, "extensions": extensions})


async def live(gateway: Gateway, call: HttpCall) -> Answer:
    return Whole({"live": True})


async def ready(gateway: Gateway, call: HttpCall) -> Answer:
    is_ready = await gateway.readiness.ready()
    return Whole({"ready": is_ready}, 200 if is_ready else 503)


async def model(gateway: Gateway, call: HttpCall) -> Answer:
    info = await gateway.client.metadata(call.path["model"], **_versioned(call))
    return Whole(
        {
            "name": info.name,
            "versions": info.versions,
            "platform": info.platform,
            "inputs": [_described(each) for each in info.inputs],
            "outputs": [_described(each) for each in info.outputs],
        }
    )


async def model_ready(gateway: Gateway, call: HttpCall) -> Answer:
    name = call.path["model"]
    is_ready = await gateway.client.model_ready(name, **_versioned(call))
    return Whole({"name": name, "ready": is_ready}, 200 if is_ready else 503)


async def infer(gateway: Gateway, call: HttpCall) -> Answer:
    head, binary = _parts(call)
    fields = parse_object(head, gateway.limits, call.hold)
    given = fields.text("id", "", most=256)
    if given:
        call.rename(given)
    request_id = given or call.options["request_id"]
    parameters = fields.object("parameters", None)
    binary_outputs = bool(parameters and parameters.flag("binary_data_output", False))
    inputs = []
    for each in fields.objects("inputs"):
        tensor, binary = _input(each, binary)
        inputs.append(tensor)
    if binary:
        raise Refused(400, f"{len(binary)} bytes remain after the binary data of the last input")
    outputs = {}
    for each in fields.objects("outputs", []):
        name, is_binary = _output(each)
        outputs[name] = binary_outputs if is_binary is None else is_binary
    fields.end()
    answer = await gateway.client.infer(
        call.path["model"],
        inputs,
        outputs=outputs,
        parameters=parameters.scalars() if parameters else {},
        **{**_versioned(call), "request_id": request_id},
    )
    body: dict[str, Any] = {"model_name": answer.model_name, "model_version": answer.model_version}
    if given or call.headers.get("x-request-id"):
        body["id"] = answer.request_id
    if answer.parameters:
        body["parameters"] = answer.parameters
    written, raw = [], []
    for tensor in answer.outputs.values():
        described: dict[str, Any] = {
            "name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)
        }
        if outputs.get(tensor.name, binary_outputs):
            described["parameters"] = {"binary_data_size": len(tensor.raw)}
            raw.append(tensor.raw)
        else:
            described["data"] = await _json_values(tensor, call)
        written.append(described)
    body["outputs"] = written
    if not raw:
        return Whole(body)
    encoded = to_json(body)
    return Whole(
        b"".join([encoded, *raw]),
        headers={
            "content-type": "application/octet-stream",
            "inference-header-content-length": str(len(encoded)),
        },
    )


def _versioned(call: HttpCall) -> dict[str, Any]:
    return {**call.options, "model_version": call.path.get("version", "")}


def _described(info: TensorInfo) -> Mapping[str, Any]:
    return {"name": info.name, "datatype": info.datatype, "shape": list(info.shape)}


def _parts(call: HttpCall) -> tuple[bytes, bytes]:
    """Returns the JSON of a request, and the binary tensors after it."""
    length = call.headers.get("inference-header-content-length")
    if length is None:
        return call.body, b""
    if not (length.isascii() and length.isdecimal()) or len(length) > 12 or int(length) > len(
        call.body
    ):
        raise Refused(400, "inference-header-content-length is not an integer of at most the"
                      " body's length")
    return call.body[: int(length)], call.body[int(length) :]


def _input(fields: Fields, binary: bytes) -> tuple[Tensor, bytes]:
    """Returns an input, and the binary data that follows it."""
    name = fields.text("name", most=256)
    datatype = fields.word("datatype", DATATYPES)
    shape = _shape(fields)
    parameters = fields.object("parameters", None)
    size: Optional[int] = None
    if parameters:
        size = parameters.integer("binary_data_size", None, 0, len(binary))
        parameters.end()
    if size is not None:
        if fields.has("data"):
            raise fields.refuse("data", "and binary_data_size are both given; send only one")
        fields.end()
        element = element_bytes(datatype)
        if element and size != element * math.prod(shape):
            raise fields.refuse("parameters.binary_data_size", f"is {size}; the shape requires"
                                f" {element * math.prod(shape)} bytes")
        return Tensor(name, datatype, shape, binary[:size]), binary[size:]
    values = _flat(fields)
    fields.end()
    return _tensor(fields, name, datatype, shape, values), binary


def _shape(fields: Fields) -> tuple[int, ...]:
    shape = fields.items("shape", most=_MOST_DIMENSIONS)
    for each in shape:
        if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each < 2**31:
            raise fields.refuse("shape", "has a value that is not an integer in [0, 2147483647]")
    return tuple(shape)


def _flat(fields: Fields) -> list[Any]:
    """Returns the values of a tensor, flattened if they are nested lists."""
    level: list[Any] = fields.items("data")
    while level and isinstance(level[0], list):
        if not all(isinstance(each, list) for each in level):
            raise fields.refuse("data", "mixes lists and values")
        level = [value for each in level for value in each]
    return level


_KINDS: Mapping[str, tuple[type, ...]] = {
    "BYTES": (str,),
    "BOOL": (bool,),
    "FP16": (int, float),
    "BF16": (int, float),
    "FP32": (int, float),
    "FP64": (int, float),
}


def _tensor(
    fields: Fields, name: str, datatype: str, shape: tuple[int, ...], values: list[Any]
) -> Tensor:
    kinds = _KINDS.get(datatype, (int,))
    if not set(map(type, values)) <= set(kinds):
        raise fields.refuse("data", f"has a value that is not a valid {datatype}")
    if float in kinds and not all(abs(each) <= sys.float_info.max for each in values):
        raise fields.refuse("data", "has a number that is too large")
    if datatype == "BYTES":
        check_texts(fields.path("data"), values)
    try:
        return Tensor.of(name, datatype, shape, values)
    except ValueError as wrong:
        raise fields.refuse("data", str(wrong)) from None


def _output(fields: Fields) -> tuple[str, Optional[bool]]:
    name = fields.text("name", most=256)
    parameters = fields.object("parameters", None)
    binary = parameters.flag("binary_data", None) if parameters else None
    if parameters:
        parameters.end()
    fields.end()
    return name, binary


async def _json_values(tensor: Tensor, call: HttpCall) -> Any:
    if tensor.datatype == "BYTES":
        call.hold(_COST_OF_TEXTS * len(tensor.raw))
        values: list[Any] = tensor.values()
        return [each.decode(errors="replace") for each in values]
    return await call.json_of(tensor, 0, tensor.size)
