"""The rerank APIs of Cohere (/v1/rerank, /v2/rerank), Jina and vLLM, and Cohere's embeddings."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from ..options import POOLINGS
from . import tei, vllm
from .call import Answer, Failure, HttpCall, Whole
from .hostile import Fields, check_rows, check_text, parse_object
from .openai import COST_OF_SCORE, encoded, input_task, prompt_options, truncation_of, usage_of
from .serving import Gateway


def error(failure: Failure) -> Mapping[str, Any]:
    return {"message": failure.message}


def either_error(failure: Failure) -> Mapping[str, Any]:
    """The errors of /rerank and /tokenize, paths of several APIs."""
    return {**error(failure), **tei.error(failure)}


async def rerank(gateway: Gateway, call: HttpCall, fields: Optional[Fields] = None) -> Answer:
    fields = fields or parse_object(call.body, gateway.limits, call.hold)
    name = fields.text("model", most=256)
    query = fields.text("query")
    call.row_field = fields.row_field("documents")
    documents = _documents(fields)
    top_n = fields.integer("top_n", None, 0) or None  # vLLM: 0 means all.
    return_documents = fields.flag("return_documents", False)
    options = {
        "pooling": fields.word("pooling", POOLINGS, None),
        "instruction": fields.text("instruction", None),
        **prompt_options(fields),
    }
    if fields.integer("max_tokens_per_doc", None, 1) is not None:
        # Cohere cuts documents at this length. The daemon cuts at the model's length.
        options["truncate"] = options["truncate"] or "right"
    fields.accept("max_chunks_per_doc", 1)
    fields.accept("rank_fields", ["text"])
    fields.ignore("user", "client_name")
    fields.end()
    call.hold(len(documents) * COST_OF_SCORE)
    ranked = await gateway.client.rerank(
        name, query, documents, top_n=top_n, **options, **call.options
    )
    results = []
    for each in ranked:
        result: dict[str, Any] = {"index": each.document, "relevance_score": each.score}
        if return_documents:
            result["document"] = {"text": documents[each.document]}
        results.append(result)
    return Whole({
        "id": call.options["request_id"], "object": "list", "model": name, "results": results,
        "meta": {"api_version": {"version": "2"}}, "usage": usage_of(ranked),
    })


async def rerank_of_either(gateway: Gateway, call: HttpCall) -> Answer:
    """The path /rerank: TEI's requests have the field `texts`, other APIs' have `documents`."""
    fields = parse_object(call.body, gateway.limits, call.hold)
    return await (tei.rerank if fields.has("texts") else rerank)(gateway, call, fields)


async def tokenize_of_either(gateway: Gateway, call: HttpCall) -> Answer:
    """The path /tokenize: TEI's requests have the field `inputs`, vLLM's have `prompt`."""
    fields = parse_object(call.body, gateway.limits, call.hold)
    return await (tei.tokenize if fields.has("inputs") else vllm.tokenize)(gateway, call, fields)


def _documents(fields: Fields) -> list[str]:
    """Returns the documents, each a text or an object with a text."""
    values = fields.items("documents")
    if not values:
        raise fields.refuse("documents", "is empty")
    check_rows("documents", values)
    texts = []
    for i, value in enumerate(values):
        where = f"documents[{i}]"
        if isinstance(value, dict):
            inner = Fields(value, where)
            value = inner.text("text")
            inner.end()
        texts.append(check_text(where, value))
    return texts


_TYPES = ("float", "int8", "uint8", "binary", "ubinary", "base64")


async def embed_v1(gateway: Gateway, call: HttpCall) -> Answer:
    """Cohere's /v1/embed, whose answer is a list unless the request names types."""
    fields = parse_object(call.body, gateway.limits, call.hold)
    by_type = fields.has("embedding_types")
    answer = await embed(gateway, call, fields)
    answer.content["meta"]["api_version"]["version"] = "1"
    if not by_type:
        answer.content["embeddings"] = answer.content["embeddings"]["float"]
        answer.content["response_type"] = "embeddings_floats"
    return answer


async def embed(gateway: Gateway, call: HttpCall, fields: Optional[Fields] = None) -> Whole:
    """Cohere's /v2/embed."""
    fields = fields or parse_object(call.body, gateway.limits, call.hold)
    name = fields.text("model", most=256)
    call.row_field = fields.row_field("texts")
    texts = fields.texts("texts")
    types = fields.items("embedding_types", ["float"])
    if not types or not all(each in _TYPES for each in types):
        raise fields.refuse("embedding_types", f"is not a list of some of {', '.join(_TYPES)}")
    model, prompt = await input_task(gateway, call, fields, name)
    options = {
        "prompt_name": prompt,
        "dimensions": fields.integer("output_dimension", None, 1),
        "truncate": truncation_of(fields) or "right",  # Cohere's default is END.
        "priority": fields.integer("priority", None, 0, 3),
    }
    fields.end()
    await gateway.models.check_embeds(model, call.options)
    vectors = await gateway.client.embed(model, texts, **options, **call.options)
    usage = usage_of(vectors)
    return Whole({
        "id": call.options["request_id"],
        "embeddings": {each: await encoded(call, vectors, each) for each in dict.fromkeys(types)},
        "texts": texts,
        "response_type": "embeddings_by_type",
        "meta": {"api_version": {"version": "2"},
                 "billed_units": {"input_tokens": usage["prompt_tokens"]},
                 "tokens": {"input_tokens": usage["prompt_tokens"]},
                 **{key: value for key, value in usage.items() if key == "truncated_tokens"}},
    })
