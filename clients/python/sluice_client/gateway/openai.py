"""The OpenAI API: /v1/models, /v1/embeddings and errors. `completions` has the other routes.

The gateway refuses fields for features that the daemon does not have, such as tools or response
formats, and names the field. It also accepts the fields of docs/api.md, such as `top_k`.
"""

from __future__ import annotations

import base64
from typing import Any, Mapping

from ..options import POOLINGS, Prompt
from .hostile import Fields, check_rows, cost_of_padding, check_text, check_token_ids, parse_object
from .serving import Answer, Failure, Gateway, HttpCall, Whole

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def error(failure: Failure) -> Mapping[str, Any]:
    kind = _TYPES.get(
        failure.status, "server_error" if failure.status >= 500 else "invalid_request_error"
    )
    code = "model_not_found" if failure.reason == "not_found" else failure.reason or None
    return {
        "error": {
            "message": failure.message, "type": kind, "param": failure.field, "code": code
        }
    }


async def models(gateway: Gateway, call: HttpCall) -> Answer:
    entries = await gateway.client.models(ready=True, **call.options)
    names = sorted({each.name for each in entries})
    return Whole({"object": "list", "data": [_model(gateway, name) for name in names]})


async def model(gateway: Gateway, call: HttpCall) -> Answer:
    info = await gateway.client.metadata(call.path["model"], **call.options)
    return Whole(_model(gateway, info.name))


def _model(gateway: Gateway, name: str) -> Mapping[str, Any]:
    return {"id": name, "object": "model", "created": gateway.started, "owned_by": "sluice"}


async def embeddings(gateway: Gateway, call: HttpCall) -> Answer:
    fields = parse_object(call.body, gateway.limits, call.hold)
    name = fields.text("model", most=256)
    inputs = prompts_of(fields, "input")
    form = fields.word("encoding_format", ("float", "base64"), "float")
    options = {
        "pooling": fields.word("pooling", POOLINGS, None),
        "normalize": fields.flag("normalize", None),
        "dimensions": fields.integer("dimensions", None, 1),
        "prompt_name": fields.text("prompt_name", None, most=256),
        **prompt_options(fields),
    }
    fields.ignore("user")
    fields.end()
    if inputs and not isinstance(inputs[0], str):
        call.hold(cost_of_padding(inputs))
    tensor = await gateway.client.embed(name, inputs, **options, **call.options)
    if form == "base64":
        call.hold(2 * len(tensor.raw))
        vectors: Any = (base64.b64encode(tensor.row_bytes(i)).decode() for i in range(len(tensor)))
    else:
        width = tensor.size // max(1, len(tensor))
        vectors = [await call.json_of(tensor, i * width, width) for i in range(len(tensor))]
    data = [
        {"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tensor.prompt_tokens, "total_tokens": tensor.prompt_tokens}
    return Whole({"object": "list", "data": data, "model": name, "usage": usage})


def prompt_options(fields: Fields) -> dict[str, Any]:
    """Returns the options that apply to all prompts of a call."""
    return {
        "truncate": fields.word("truncate", ("error", "left", "right"), None),
        "priority": fields.integer("priority", None, 0, 3),
    }


def prompts_of(fields: Fields, name: str) -> list[Prompt]:
    """Returns a field that is a prompt or a list of prompts: texts, or lists of token ids."""
    value = fields.take(name)
    where = fields.path(name)
    if isinstance(value, str):
        return [check_text(where, value)]
    if not isinstance(value, list) or not value:
        raise fields.refuse(name, "is not a text, a list of token ids, or a list of either")
    if isinstance(value[0], (str, list)):
        check_rows(where, [each for each in value if isinstance(each, (str, list))])
    if isinstance(value[0], str):
        return [check_text(f"{where}[{i}]", each) for i, each in enumerate(value)]
    if isinstance(value[0], list):
        for i, each in enumerate(value):
            if not isinstance(each, list) or not each:
                raise fields.refuse(f"{name}[{i}]", "is not a list of token ids")
        return [check_token_ids(f"{where}[{i}]", each) for i, each in enumerate(value)]
    return [check_token_ids(where, value)]
