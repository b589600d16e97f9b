"""Sluice's own path /v1/extract: the parts of texts that have one of the labels of a request."""

from __future__ import annotations

from typing import get_args

from ..options import SpanOverlap
from .call import Answer, HttpCall, Whole
from .hostile import check_texts, cost_of_prompts, parse_object
from .openai import prompt_options, usage_of
from .serving import Gateway

# Bytes of memory until the answer has been encoded: for a text and for a part of it.
_COST_OF_TEXT = 2000
_COST_OF_PART = 1200


async def extract(gateway: Gateway, call: HttpCall) -> Answer:
    fields = parse_object(call.body, gateway.limits, call.hold)
    name = await gateway.models.named(fields, call.options)
    call.row_field = fields.row_field("input")
    value = fields.take("input")
    texts = check_texts(fields.path("input"), value if isinstance(value, list) else [value])
    if not texts:
        raise fields.refuse("input", "is empty")
    labels = fields.texts("labels")
    options = {
        "threshold": fields.number("threshold", None),
        "overlap": fields.word("overlap", get_args(SpanOverlap), None),
        "multi_label": fields.flag("multi_label", None),
        **prompt_options(fields),
    }
    fields.end()
    call.hold(len(texts) * _COST_OF_TEXT + cost_of_prompts(texts, 1))
    found = await gateway.client.extract(name, texts, labels, **options, **call.options)
    call.hold(sum(map(len, found)) * _COST_OF_PART)
    data = [{"object": "extraction", "index": i,
             "entities": [{"label": each.type, "score": each.score, "start": each.begin,
                           "end": each.end, "text": each.text} for each in parts]}
            for i, parts in enumerate(found)]
    return Whole({"object": "list", "model": name, "data": data, "usage": usage_of(found)})
