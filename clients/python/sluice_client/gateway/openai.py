"""The OpenAI API: /v1/models, /v1/embeddings and errors. `completions` has the other routes.

The gateway refuses fields for features that the daemon does not have, such as tools or response
formats, and names the field. It accepts the values of these fields that change nothing, and the
fields of docs/api.md, such as `top_k`.
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any, Mapping, Optional, Protocol, Sequence

from ..options import POOLINGS, Prompt
from ..tensors import Tensor
from .call import Answer, Failure, HttpCall, Whole, not_finite
from .daemon import not_ready
from .hostile import (
    Fields,
    check_rows,
    check_text,
    check_texts,
    check_token_ids,
    cost_of_padding,
    parse_object,
)
from .models import is_served
from .serving import Gateway

_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

# A part of each text by which the daemon refuses a row that is too long. Its reason `input` is also
# the reason of other faults.
_TOO_LONG = re.compile("cut longer rows|for each of the model's max_positions|shorten the row"
                       "|the model's max_positions is")


def error(failure: Failure) -> Mapping[str, Any]:
    kind = _TYPES.get(
        failure.status, "server_error" if failure.status >= 500 else "invalid_request_error"
    )
    code = failure.reason or None
    if failure.reason == "not_found":
        code = "model_not_found"
    elif failure.reason in ("input", "parameter") and _TOO_LONG.search(failure.message):
        code = "context_length_exceeded"
    return {
        "error": {
            "message": failure.message, "type": kind, "param": failure.field, "code": code
        }
    }


async def models(gateway: Gateway, call: HttpCall) -> Answer:
    entries = await gateway.client.models(ready=True, **call.options)
    if not await gateway.readiness.of_daemon():
        raise not_ready()
    served = {each.name for each in entries}
    aliases = gateway.connections.aliases
    names = served | {alias for alias in aliases if is_served(aliases[alias], served)}
    return Whole({"object": "list", "data": [_model(gateway, name) for name in sorted(names)]})


async def model(gateway: Gateway, call: HttpCall) -> Answer:
    name = call.path["model"]
    await gateway.client.metadata(name, **call.options)
    return Whole(_model(gateway, name))


def _model(gateway: Gateway, name: str) -> Mapping[str, Any]:
    return {"id": name, "object": "model", "created": gateway.started, "owned_by": "sluice"}


async def embeddings(gateway: Gateway, call: HttpCall) -> Answer:
    fields = parse_object(call.body, gateway.limits, call.hold)
    name = fields.text("model", most=256)
    inputs = await texts_or_ids(gateway, call, fields, "input", name)
    form = fields.word("encoding_format", ("float", "base64"), "float")
    dtype = fields.word("output_dtype", ("float", *INTEGER_DTYPES), "float")
    model, prompt = await input_task(gateway, call, fields, name)
    options = {
        "pooling": fields.word("pooling", POOLINGS, None),
        "normalize": fields.flag("normalize", True),
        "dimensions": fields.integer("dimensions", None, 1),
        "prompt_name": prompt,
        **prompt_options(fields),
    }
    fields.ignore("user")
    fields.end()
    await gateway.models.check_embeds(model, call.options)
    tensor = await gateway.client.embed(model, inputs, **options, **call.options)
    vectors = await encoded(call, tensor, dtype, form)
    data = [
        {"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)
    ]
    usage = usage_of(tensor)
    return Whole({"object": "list", "data": data, "model": name, "usage": usage})


# The words of other APIs for the prompt before a text, and the names of prompts in folders.
_INPUT_TYPES = {
    "query": "query", "search_query": "query", "passage": "document", "document": "document",
    "search_document": "document", "classification": "classification", "clustering": "clustering",
}
_JINA_TASKS = {
    "retrieval.query": "query", "retrieval.passage": "document", "text-matching": "text-matching",
    "classification": "classification", "separation": "clustering",
}


async def input_task(
    gateway: Gateway, call: HttpCall, fields: Fields, name: str
) -> tuple[str, Optional[str]]:
    """Returns the model and the prompt that `prompt_name`, `input_type` or `task` select for a
    request that names the model `name`; the prompt is None if the daemon chooses it.

    If the checkpoint has adapters for tasks, `input_type` and `task` select one of them.
    """
    given = [each for each in ("prompt_name", "input_type", "task") if fields.has(each)]
    if len(given) > 1:
        raise fields.refuse(given[1], f"and {given[0]} are both given; send only one")
    if not given or given[0] == "prompt_name":
        return name, fields.text("prompt_name", None, most=256)
    field = given[0]
    kinds = _INPUT_TYPES if field == "input_type" else _JINA_TASKS
    tasks = await gateway.models.task_adapters(name, call.options)
    word = fields.word(field, tasks if tasks and field == "task" else tuple(kinds), None)
    if word is None:
        return name, None
    kind = kinds.get(word, word)
    of_kind = next((each for each in tasks if _JINA_TASKS.get(each) == kind), None)
    task = word if word in tasks else of_kind
    model, _, adapter = name.partition(":")
    if task is not None and adapter in ("", task):
        return f"{model}:{task}", None
    if task is not None and adapter in tasks:
        raise fields.refuse(field, f"selects the adapter {task}, and model names {adapter}; send"
                            " only one")
    return name, await gateway.models.prompt_name(name, kind, call.options)


COST_OF_SCORE = 600  # bytes of memory for the score of a row, until it has been encoded

INTEGER_DTYPES = ("int8", "uint8", "binary", "ubinary")
_COST_OF_INTEGER = 40  # bytes of memory until it has been encoded


async def encoded(call: HttpCall, vectors: Tensor, dtype: str, form: str = "float") -> list[Any]:
    """Returns embeddings as lists of numbers, or as base64 of their bytes."""
    if dtype == "base64" or (dtype == "float" and form == "base64"):
        call.hold(2 * len(vectors.raw))
        return [base64.b64encode(vectors.row_bytes(i)).decode() for i in range(len(vectors))]
    if dtype == "float":
        return list(await call.json_rows(vectors))
    call.hold(vectors.size * _COST_OF_INTEGER)
    rows = []
    async for row in call.rows(vectors):
        if not all(map(math.isfinite, row)):
            raise not_finite(vectors)
        rows.append(integers(row, dtype))
    if form == "float":
        return rows
    return [base64.b64encode(bytes(each & 255 for each in row)).decode() for row in rows]


def integers(row: Sequence[float], dtype: str) -> list[int]:
    """Returns a vector in one of INTEGER_DTYPES.

    int8 is the vector scaled so that its largest value is 127, rounded; uint8 is that plus 128.
    ubinary has one bit for each value, 1 if it is positive, the first in the highest bit; binary is
    that minus 128.
    """
    if dtype.endswith("binary"):
        bits = "".join("1" if each > 0 else "0" for each in row)
        packed = [int(bits[i : i + 8].ljust(8, "0"), 2) for i in range(0, len(bits), 8)]
    else:
        largest = max(map(abs, row)) or 1.0
        packed = [round(127 * each / largest) for each in row]
    shift = {"int8": 0, "uint8": 128, "binary": -128, "ubinary": 0}[dtype]
    return [each + shift for each in packed]


class _Counted(Protocol):
    """A result with numbers of tokens."""

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def truncated_tokens(self) -> int: ...


def usage_of(result: _Counted) -> dict[str, int]:
    """Returns the numbers of tokens of a result that has no generated tokens."""
    usage = {"prompt_tokens": result.prompt_tokens, "total_tokens": result.prompt_tokens}
    if result.truncated_tokens:
        usage["truncated_tokens"] = result.truncated_tokens
    return usage


def prompt_options(fields: Fields) -> dict[str, Any]:
    """Returns the options that apply to all prompts of a call."""
    return {
        "truncate": truncation_of(fields),
        "priority": fields.integer("priority", None, 0, 3),
    }


# The words of other APIs name the end of the text that is cut.
_TRUNCATIONS = {"error": "error", "left": "left", "right": "right",
                "NONE": "error", "START": "left", "END": "right"}


def truncation_of(fields: Fields) -> Any:
    """Returns the parameter `truncate` that the field of this name means, or None without it."""
    cuts = fields.flag("truncation", None)  # the name of Voyage's and Jina's APIs
    if cuts is not None and fields.has("truncate"):
        raise fields.refuse("truncation", "and truncate are both given; send only one")
    value = fields.take("truncate", cuts)
    if isinstance(value, bool):
        return "right" if value else "error"
    if value is not None and (not isinstance(value, str) or value not in _TRUNCATIONS):
        raise fields.refuse("truncate", f"is not true, false or one of {', '.join(_TRUNCATIONS)}")
    return None if value is None else _TRUNCATIONS[value]


async def texts_or_ids(
    gateway: Gateway, call: HttpCall, fields: Fields, field: str, model_name: str
) -> list[Prompt]:
    """Returns the prompts of a request that are computed together, in rows of one length."""
    call.row_field = fields.row_field(field)
    prompts = prompts_of(fields, field)
    await gateway.models.check_token_ids(model_name, prompts, field, call.options)
    if not isinstance(prompts[0], str):
        call.hold(cost_of_padding(prompts))
    return prompts


def prompts_of(fields: Fields, name: str) -> list[Prompt]:
    """Returns a field that is a prompt or a list of prompts: texts, or lists of token ids."""
    value = fields.take(name)
    where = fields.path(name)
    if isinstance(value, str):
        return [check_text(where, value)]
    if value == []:
        raise fields.refuse(name, "is an empty list; pass at least one text")
    if not isinstance(value, list):
        raise fields.refuse(name, "is not a text, a list of token ids, or a list of either")
    if isinstance(value[0], str):
        return list(check_texts(where, value))
    if isinstance(value[0], list):
        check_rows(where, value)
        for i, each in enumerate(value):
            if not isinstance(each, list) or not each:
                raise fields.refuse(f"{name}[{i}]", "is not a list of token ids")
        return [check_token_ids(f"{where}[{i}]", each) for i, each in enumerate(value)]
    if not isinstance(value[0], (int, float)):
        raise fields.refuse(f"{name}[0]", "is not a text, a token id, or a list of token ids")
    return [check_token_ids(where, value)]
