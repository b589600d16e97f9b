"""The API of text-embeddings-inference (TEI), over the same tasks as the other APIs.

TEI serves one model, so its requests name none. The field `model` names one of several;
`--default-model` sets the model of requests without it.
"""

from __future__ import annotations

from contextlib import aclosing
from operator import mul
from typing import Any, Mapping, Optional, Sequence, get_args

import msgspec

from ..errors import InvalidArgument, naming_items
from ..options import Activation
from ..results import Token
from .call import Answer, Failure, HttpCall, Whole, to_json
from .hostile import MAX_ROWS, Fields, Refused, check_rows, check_text, check_texts, parse_object
from .openai import COST_OF_SCORE, texts_or_ids
from .serving import Gateway

# Bytes of memory until the answer has been encoded: for a label's score, a term and its weight, a
# token, and a token of padding. Sorting a label takes as long as reading _TIME_OF_LABEL bytes.
_COST_OF_LABEL = 400
_TIME_OF_LABEL = 24
_COST_OF_VECTORS = 1024  # of a text, without their bytes
_COST_OF_TERM = 120
_COST_OF_TOKEN = 700
_COST_OF_PADDING = 150
_SPECIAL_TOKENS = 8  # of a text, at most
_PROBE = "a"  # a text with tokens in each vocabulary

_KINDS = {413: "validation", 422: "validation", 424: "backend", 429: "overloaded",
          503: "unhealthy"}


def error(failure: Failure) -> Mapping[str, Any]:
    kind = _KINDS.get(failure.status, "validation" if failure.status < 500 else "backend")
    return {"error": failure.message, "error_type": kind}


def cut_header(result: Any) -> dict[str, str]:
    """Returns a header with the number of tokens cut, for answers that are lists."""
    cut = result.truncated_tokens
    return {"x-truncated-tokens": str(cut)} if cut else {}


async def _begin(
    gateway: Gateway, call: HttpCall, fields: Optional[Fields]
) -> tuple[Fields, str, dict[str, Any]]:
    """Returns the fields of a request, its model, and the options that all paths have.

    A path of several tasks has read the body, and passes its fields.
    """
    fields = fields or parse_object(call.body, gateway.limits, call.hold)
    name = await gateway.models.named(fields, call.options)
    return fields, name, {**call.options, "truncate": _truncation(fields)}


def _truncation(fields: Fields) -> Any:
    """TEI cuts only if `truncate` is true; without the field, the model's files decide."""
    cuts = fields.flag("truncate", None)
    side = fields.word("truncation_direction", ("Left", "Right", "left", "right"), "Right")
    return None if cuts is None else side.lower() if cuts else "error"


async def embed(gateway: Gateway, call: HttpCall, fields: Optional[Fields] = None) -> Answer:
    fields, name, options = await _begin(gateway, call, fields)
    prompts = await texts_or_ids(gateway, call, fields, "inputs", name)
    options |= {
        "normalize": fields.flag("normalize", True),
        "prompt_name": fields.text("prompt_name", None, most=256),
        "dimensions": fields.integer("dimensions", None, 1),
    }
    fields.accept("encoding_format", "float")
    fields.end()
    await gateway.models.check_embeds(name, call.options)
    vectors = await gateway.client.embed(name, prompts, **options)
    return Whole(await call.json_rows(vectors), headers=cut_header(vectors))


async def embed_all(gateway: Gateway, call: HttpCall) -> Answer:
    """Answers with the vector of each token."""
    fields, name, options = await _begin(gateway, call, None)
    prompts = await texts_or_ids(gateway, call, fields, "inputs", name)
    options["prompt_name"] = fields.text("prompt_name", None, most=256)
    fields.end()
    await gateway.models.check_embeds(name, call.options)
    vectors = await gateway.client.embed_tokens(name, prompts, **options)
    call.hold(len(vectors) * _COST_OF_VECTORS)
    return Whole([await call.json_rows(each) for each in vectors], headers=cut_header(vectors))


async def embed_sparse(gateway: Gateway, call: HttpCall) -> Answer:
    fields, name, options = await _begin(gateway, call, None)
    prompts = await texts_or_ids(gateway, call, fields, "inputs", name)
    options["prompt_name"] = fields.text("prompt_name", None, most=256)
    fields.end()
    found = await gateway.client.sparse(name, prompts, options)
    rows = []
    for ids, weights in zip(found.tensors("sparse_ids"), found.tensors("sparse_weights")):
        async with aclosing(call.rows(ids)) as indices, aclosing(call.rows(weights)) as values:
            async for row in indices:
                pairs = zip(row, await values.__anext__())
                terms = [{"index": index, "value": value} for index, value in pairs if index >= 0]
                call.hold(len(terms) * _COST_OF_TERM)
                rows.append(msgspec.Raw(to_json(terms)))
    return Whole(rows, headers=cut_header(found))


async def predict(
    gateway: Gateway, call: HttpCall, fields: Optional[Fields] = None
) -> Answer:
    """Classifies a text, a pair of texts, or a batch of both."""
    fields, name, options = await _begin(gateway, call, fields)
    value = fields.take("inputs")
    # huggingface_hub's InferenceClient sends its settings in an object.
    parameters = fields.object("parameters", Fields({}, "parameters"))
    top = parameters.integer("top_k", None, 1)
    activation: Optional[Activation] = parameters.word(
        "function_to_apply", get_args(Activation), None)
    parameters.end()
    if fields.flag("raw_scores", False):
        activation = "none"
    fields.end()
    is_batch = isinstance(value, list) and bool(value) and isinstance(value[0], list)
    given = value if is_batch else [value]
    check_rows("inputs", given)
    if is_batch and not all(isinstance(each, list) for each in value):
        raise fields.refuse("inputs", "mixes texts and lists; a batch is a list of lists of one or"
                            " two texts")
    rows = [_sequence(f"inputs[{i}]" if is_batch else "inputs", each)
            for i, each in enumerate(given)]
    classified = await _classify(gateway, call, name, rows, is_batch, activation, options)
    answers = [each[:top] for each in classified]
    return Whole(answers if is_batch else answers[0])


def _sequence(where: str, value: Any) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    if not 1 <= len(texts) <= 2:
        raise Refused(400, f"{where} has {len(texts)} texts; expected a text or a pair", where)
    return tuple(check_text(where, each) for each in texts)


async def _classify(
    gateway: Gateway, call: HttpCall, name: str, rows: Sequence[tuple[str, ...]], is_batch: bool,
    activation: Optional[Activation], options: Mapping[str, Any],
) -> list[list[Mapping[str, Any]]]:
    """Returns the labels of each row with their scores, the highest first. Without an activation,
    the scores are probabilities."""
    labels = await gateway.models.labels(name, call.options)
    call.hold(len(rows) * len(labels) * _COST_OF_LABEL)
    activation = activation or await gateway.models.probabilities(name, call.options)
    made: list[Any] = [None] * len(rows)
    for size in (1, 2):  # A request has texts or pairs.
        places = [i for i, row in enumerate(rows) if len(row) == size]
        if not places:
            continue
        inputs: Any = [rows[i] if size == 2 else rows[i][0] for i in places]
        call.row_field = "inputs[{}]" if is_batch else "inputs"
        with naming_items(lambda name, row: places[row]):
            answers = await gateway.client.classify(name, inputs, activation=activation, **options)
        for i, each in zip(places, answers):
            await call.turn(len(labels) * _TIME_OF_LABEL)
            found = sorted(zip(each.scores, labels), key=lambda one: -one[0])
            made[i] = [{"score": score, "label": label} for score, label in found]
    return made


async def rerank(gateway: Gateway, call: HttpCall, fields: Optional[Fields] = None) -> Answer:
    fields, name, options = await _begin(gateway, call, fields)
    query = fields.text("query")
    call.row_field = fields.row_field("texts")
    texts = fields.texts("texts")
    options["instruction"] = fields.text("instruction", None)
    call.hold(len(texts) * COST_OF_SCORE)
    options["activation"] = "none" if fields.flag("raw_scores", False) else "sigmoid"
    return_text = fields.flag("return_text", False)
    # TEI has no such field, but clients that serve several APIs send it.
    top_n = fields.integer("top_n", None, 0) or None
    fields.end()
    ranked = await gateway.client.rerank(name, query, texts, top_n=top_n, **options)
    shown: list[dict[str, Any]] = [
        {"index": each.document, "score": each.score} for each in ranked]
    if return_text:
        for one in shown:
            one["text"] = texts[one["index"]]
    return Whole(shown, headers=cut_header(ranked))


async def similarity(
    gateway: Gateway, call: HttpCall, fields: Optional[Fields] = None
) -> Answer:
    """Answers with the cosine of each sentence and the source sentence."""
    fields = fields or parse_object(call.body, gateway.limits, call.hold)
    name = await gateway.models.named(fields, call.options)
    parameters = fields.object("parameters", Fields({}, "parameters"))
    options = {
        **call.options, "truncate": _truncation(parameters), "normalize": True,
        "prompt_name": parameters.text("prompt_name", None, most=256),
    }
    parameters.end()
    inputs = fields.object("inputs")
    source = inputs.text("source_sentence")
    sentences = inputs.texts("sentences")
    inputs.end()
    fields.end()
    await gateway.models.check_embeds(name, call.options)
    call.row_field = "inputs.sentences[{}]"
    with naming_items(lambda name, row: row - 1 if row else None):  # The first is the source.
        embedded = await gateway.client.embed(name, [source, *sentences], **options)
    rows = call.rows(embedded)
    source_row = await rows.__anext__()
    cosines = [sum(map(mul, source_row, row)) async for row in rows]
    return Whole(cosines, headers=cut_header(embedded))


async def tokens_of(
    gateway: Gateway, call: HttpCall, name: str, texts: Sequence[str], special: bool,
    prompt_name: Optional[str] = None,
) -> list[list[tuple[Token, bool]]]:
    """Returns the tokens of each text, each with whether the tokenizer's template adds it.

    Tokens of the template are left out unless `special`.
    """
    info = await gateway.models.info(name, call.options)
    most = int(info.properties["max_positions"])
    # A token has a byte of the text, or is special. The rows are padded to the longest.
    sizes = [min(len(each.encode()) + _SPECIAL_TOKENS, most) for each in (*texts, _PROBE)]
    call.hold(sum(sizes) * _COST_OF_TOKEN + len(sizes) * max(sizes) * _COST_OF_PADDING)
    options = {**call.options, "truncate": "error", "prompt_name": prompt_name}

    async def encode(texts: Sequence[str], special: bool) -> Sequence[Sequence[Token]]:
        return await gateway.client.tokenize(name, texts, add_special_tokens=special, **options)

    refused: Optional[InvalidArgument] = None
    if not special:
        try:
            return [[(token, False) for token in row] for row in await encode(texts, False)]
        except InvalidArgument as error:
            # The daemon refuses a text without tokens, such as " ", unless the template adds some.
            refused = error
    try:
        *rows, probe = await encode([*texts, _PROBE], True)
    except InvalidArgument as error:
        raise refused or error from None
    (bare,) = await encode([_PROBE], False)
    before = _index(probe, bare)
    after = len(probe) - before - len(bare)
    marked = [[(token, not before <= i < len(row) - after) for i, token in enumerate(row)]
              for row in rows]
    return marked if special else [[each for each in row if not each[1]] for row in marked]


def _index(row: Sequence[Token], part: Sequence[Token]) -> int:
    """Returns where the tokens of `part` begin in `row`."""
    ids, text = [each.id for each in row], [each.id for each in part]
    return next((i for i in range(len(ids)) if ids[i : i + len(text)] == text), 0)


async def tokenize(gateway: Gateway, call: HttpCall, fields: Fields) -> Answer:
    name = await gateway.models.named(fields, call.options)
    call.row_field = fields.row_field("inputs")
    value = fields.take("inputs")
    texts = check_texts("inputs", value if isinstance(value, list) else [value])
    if not texts:
        raise fields.refuse("inputs", "is empty")
    special = fields.flag("add_special_tokens", True)
    prompt_name = fields.text("prompt_name", None, most=256)
    fields.end()
    rows = await tokens_of(gateway, call, name, texts, special, prompt_name)
    return Whole([
        [{"id": each.id, "text": text[each.begin : each.end] if each.begin >= 0 else "",
          "special": added, "start": None if each.begin < 0 else each.begin,
          "stop": None if each.begin < 0 else each.end}
         for each, added in row]
        for text, row in zip(texts, rows)
    ])


async def root(gateway: Gateway, call: HttpCall) -> Answer:
    """The path /: TEI's task of the model, as its clients for one model call it."""
    fields = parse_object(call.body, gateway.limits, call.hold)
    if fields.has("query"):
        return await rerank(gateway, call, fields)
    seen = fields.copy()
    if isinstance(seen.take("inputs"), dict):
        return await similarity(gateway, call, fields)
    name = await gateway.models.named(seen, call.options)
    info = await gateway.models.info(name, call.options)
    classifies = any(each.name == "scores" for each in info.outputs)
    return await (predict if classifies else embed)(gateway, call, fields)


async def info(gateway: Gateway, call: HttpCall) -> Answer:
    name = await gateway.models.name_of(None, call.options)
    served = await gateway.models.info(name, call.options)
    daemon = await gateway.client.server_info(**call.options)
    outputs = {each.name: each for each in served.outputs}
    if "scores" in outputs:
        labels = await gateway.models.labels(name, call.options)
        names = {str(i): label for i, label in enumerate(labels)}
        kind = "reranker" if outputs["scores"].shape[-1] == 1 else "classifier"
        model_type: dict[str, Any] = {
            kind: {"id2label": names, "label2id": {label: int(i) for i, label in names.items()}}}
    else:
        model_type = {"embedding": {"pooling": "model"}}
    return Whole({
        "model_id": served.name, "model_sha": None, "model_type": model_type,
        "max_input_length": int(served.properties["max_positions"]),
        "max_client_batch_size": MAX_ROWS,
        "max_concurrent_requests": gateway.limits.max_in_flight,
        "version": daemon.version,
    })
