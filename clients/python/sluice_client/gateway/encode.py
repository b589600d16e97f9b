"""Sluice's own path /v1/encode: several outputs of each input from one pass of the model.

A request names the outputs: `dense`, `sparse`, `vectors` and `spans`. Each object of `data` has the
requested ones.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence, get_args

from ..options import POOLINGS, EncodeOutput, TaskName
from ..results import Encoding
from ..tensors import Tensor
from .call import Answer, HttpCall, Whole
from .hostile import Fields, parse_object
from .openai import prompt_options, texts_or_ids, usage_of
from .serving import Gateway

_OUTPUTS = get_args(EncodeOutput)
_UNITS = ("characters", "bytes", "tokens")
# Bytes of memory until the answer has been encoded: for an input, and for a term and its weight.
_COST_OF_ROW = 2048
_COST_OF_TERM = 120


async def encode(gateway: Gateway, call: HttpCall) -> Answer:
    fields = parse_object(call.body, gateway.limits, call.hold)
    name = await gateway.models.named(fields, call.options)
    inputs = await texts_or_ids(gateway, call, fields, "input", name)
    outputs = _outputs(fields)
    options = {
        "task": fields.word("task", get_args(TaskName), None),
        "prompt_name": fields.text("prompt_name", None, most=256),
        "pooling": fields.word("pooling", POOLINGS, None),
        "normalize": fields.flag("normalize", None),
        "dimensions": fields.integer("dimensions", None, 1),
        "max_active_dims": fields.integer("max_active_dims", None, 1),
        "spans": _spans(fields, len(inputs)),
        "span_unit": fields.word("span_unit", _UNITS, None),
        **prompt_options(fields),
    }
    fields.end()
    found = await gateway.client.encode(name, inputs, outputs, **options, **call.options)
    call.hold(len(found) * _COST_OF_ROW)
    data = [{"object": "encoding", "index": i, **await _shown(call, each)}
            for i, each in enumerate(found)]
    return Whole({"object": "list", "model": name, "data": data, "usage": usage_of(found)})


def _outputs(fields: Fields) -> Sequence[Any]:
    outputs = fields.items("outputs", ["dense"], most=len(_OUTPUTS))
    if not outputs or not all(each in _OUTPUTS for each in outputs):
        raise fields.refuse("outputs", f"is not a list of some of {', '.join(_OUTPUTS)}")
    return list(dict.fromkeys(outputs))


def _spans(fields: Fields, rows: int) -> Optional[list[Any]]:
    """Returns the spans of each input. The daemon checks them; here they are lists of integers."""
    spans: Optional[list[Any]] = fields.items("spans", None)
    if spans is None:
        return None
    if len(spans) != rows:
        raise fields.refuse("spans", f"has {len(spans)} lists; expected one for each of {rows}"
                            " inputs")
    for i, row in enumerate(spans):
        if not isinstance(row, list) or not all(map(_is_span, row)):
            raise fields.refuse(f"spans[{i}]", "is not a list of [begin, end]")
    return spans


def _is_span(span: Any) -> bool:
    return isinstance(span, list) and len(span) == 2 and all(
        isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 2**31
        for each in span)


async def _shown(call: HttpCall, encoding: Encoding) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if encoding.dense is not None:
        one = encoding.dense
        whole = Tensor(one.name, one.datatype, (1, *one.shape), one.raw)
        (shown["dense"],) = await call.json_rows(whole)
    if encoding.sparse is not None:
        call.hold(len(encoding.sparse) * _COST_OF_TERM)
        shown["sparse"] = {"indices": [*encoding.sparse], "values": [*encoding.sparse.values()]}
    if encoding.vectors is not None:
        shown["vectors"] = await call.json_rows(encoding.vectors)
    if encoding.spans is not None:
        shown["spans"] = await call.json_rows(encoding.spans)
    return shown
