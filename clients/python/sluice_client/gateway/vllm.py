"""The paths of vLLM for models that do not generate: /score, /classify and /pooling."""

from __future__ import annotations

import time
from typing import Any, Mapping, Sequence

from ..options import Prompt
from ..results import Classification, Results
from .call import Answer, HttpCall, Whole
from .hostile import Fields, check_texts, parse_object
from .openai import COST_OF_SCORE, prompt_options, texts_or_ids, usage_of
from .serving import Gateway
from .tei import tokens_of

_COST_OF_LABEL = 100  # bytes of memory for a label's score, until it has been encoded


def _options(fields: Fields, call: HttpCall) -> dict[str, Any]:
    """Returns the options that all paths have."""
    options = {**prompt_options(fields), **call.options}
    most = fields.take("truncate_prompt_tokens", None)
    if most is not None:
        if most != -1:
            raise fields.refuse("truncate_prompt_tokens", "is not supported; leave it out, or send"
                                " -1 to cut at the model's limit")
        options["truncate"] = options["truncate"] or "right"
    fields.ignore("user")
    return options


def _activates(fields: Fields) -> bool:
    """Returns whether scores go through an activation. The field has had three names."""
    flags = [fields.flag(name, True) for name in ("use_activation", "activation", "softmax")]
    return all(flags)


def _answer(call: HttpCall, prefix: str, name: str, data: Sequence[Any], result: Any) -> Whole:
    return Whole({
        "id": f"{prefix}-{call.options['request_id']}",
        "object": "list",
        "created": int(time.time()),
        "model": name,
        "data": data,
        "usage": {**usage_of(result), "completion_tokens": 0},
    })


def _texts(call: HttpCall, fields: Fields, names: Sequence[str]) -> list[str]:
    """Returns the text or texts of the first of several names of a field, which has the rows."""
    name = next((each for each in names if fields.has(each)), names[0])
    call.row_field = fields.row_field(name)
    value = fields.take(name)
    return check_texts(fields.path(name), value if isinstance(value, list) else [value])


async def score(gateway: Gateway, call: HttpCall) -> Answer:
    """Scores pairs of texts: a cross-encoder's score, or the cosine of embeddings."""
    fields = parse_object(call.body, gateway.limits, call.hold)
    name = await gateway.models.named(fields, call.options)
    firsts = _texts(call, fields, ("text_1", "queries", "data_1"))
    seconds = _texts(call, fields, ("text_2", "documents", "items", "data_2"))
    options = _options(fields, call)
    if not _activates(fields):
        options["activation"] = "none"
    fields.end()
    if len(firsts) not in (1, len(seconds)) or not seconds:
        raise fields.refuse("text_1", f"has {len(firsts)} texts and text_2 has {len(seconds)}"
                            " texts; expected one text, or one for each text of text_2")
    call.hold(len(seconds) * COST_OF_SCORE)
    scores = await gateway.client.score_pairs(name, firsts, seconds, **options)
    data = [{"index": i, "object": "score", "score": each} for i, each in enumerate(scores)]
    return _answer(call, "score", name, data, scores)


async def _classified(
    gateway: Gateway, call: HttpCall, name: str, prompts: Sequence[Prompt], activates: bool,
    options: Mapping[str, Any],
) -> tuple[list[str], Results[Classification]]:
    """Returns the labels of the model, and their scores for each prompt."""
    labels = await gateway.models.labels(name, call.options)
    call.hold(len(prompts) * (COST_OF_SCORE + len(labels) * _COST_OF_LABEL))
    activation = (
        await gateway.models.probabilities(name, call.options) if activates else "none")
    rows = await gateway.client.classify(name, prompts, activation=activation, **options)
    return labels, rows


async def classify(gateway: Gateway, call: HttpCall) -> Answer:
    fields = parse_object(call.body, gateway.limits, call.hold)
    name = await gateway.models.named(fields, call.options)
    prompts = await texts_or_ids(gateway, call, fields, "input", name)
    options = _options(fields, call)
    activates = _activates(fields)
    fields.end()
    labels, rows = await _classified(gateway, call, name, prompts, activates, options)
    data = [
        {"index": i, "label": labels[each.label], "probs": each.scores,
         "num_classes": len(each.scores)}
        for i, each in enumerate(rows)
    ]
    return _answer(call, "classify", name, data, rows)


async def tokenize(gateway: Gateway, call: HttpCall, fields: Fields) -> Answer:
    name = await gateway.models.named(fields, call.options)
    prompt = fields.text("prompt")
    special = fields.flag("add_special_tokens", True)
    strings = fields.flag("return_token_strs", False)
    fields.end()
    info = await gateway.models.info(name, call.options)
    (row,) = await tokens_of(gateway, call, name, [prompt], special)
    tokens = [each for each, _ in row]
    return Whole({
        "count": len(tokens),
        "max_model_len": int(info.properties["max_positions"]),
        "tokens": [each.id for each in tokens],
        "token_strs": [prompt[max(each.begin, 0) : max(each.end, 0)] for each in tokens]
        if strings else None,
    })


async def pooling(gateway: Gateway, call: HttpCall) -> Answer:
    """Answers with embeddings, the vectors of tokens, or a classifier's scores."""
    fields = parse_object(call.body, gateway.limits, call.hold)
    name = await gateway.models.named(fields, call.options)
    prompts = await texts_or_ids(gateway, call, fields, "input", name)
    info = await gateway.models.info(name, call.options)
    default = "classify" if any(each.name == "scores" for each in info.outputs) else "embed"
    task = fields.word("task", ("embed", "token_embed", "classify"), default)
    options: Mapping[str, Any] = _options(fields, call)
    activates = _activates(fields)
    dimensions = fields.integer("dimensions", None, 1)
    if dimensions is not None and task != "embed":
        raise fields.refuse("dimensions", "applies only to the task embed; leave it out")
    fields.accept("encoding_format", "float")
    fields.end()
    result: Any
    rows: list[Any]
    if task == "classify":
        _, result = await _classified(gateway, call, name, prompts, activates, options)
        rows = [each.scores for each in result]
    elif task == "token_embed":
        await gateway.models.check_embeds(name, call.options)
        result = await gateway.client.embed_tokens(name, prompts, **options)
        rows = [await call.json_rows(each) for each in result]
    else:
        await gateway.models.check_embeds(name, call.options)
        result = await gateway.client.embed(name, prompts, dimensions=dimensions, **options)
        rows = await call.json_rows(result)
    data = [{"index": i, "object": "pooling", "data": each} for i, each in enumerate(rows)]
    return _answer(call, "pool", name, data, result)
