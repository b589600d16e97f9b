"""/v1/rerank, with the fields that the APIs of Cohere and Jina have in common."""

from __future__ import annotations

from typing import Any, Mapping

from ..options import POOLINGS
from .hostile import Fields, check_text, parse_object
from .serving import Answer, Failure, Gateway, HttpCall, Whole


def error(failure: Failure) -> Mapping[str, Any]:
    return {"message": failure.message}


async def rerank(gateway: Gateway, call: HttpCall) -> Answer:
    fields = parse_object(call.body, gateway.limits, call.hold)
    name = fields.text("model", most=256)
    query = fields.text("query")
    documents = [_document(fields, i, each) for i, each in enumerate(fields.items("documents"))]
    top_n = fields.integer("top_n", None, 1)
    return_documents = fields.flag("return_documents", False)
    options = {
        "pooling": fields.word("pooling", POOLINGS, None),
        "truncate": fields.word("truncate", ("error", "left", "right"), None),
    }
    fields.end()
    if not documents:
        raise fields.refuse("documents", "is empty")
    ranked = await gateway.client.rerank(
        name, query, documents, top_n=top_n, **options, **call.options
    )
    results = []
    for each in ranked:
        result: dict[str, Any] = {"index": each.document, "relevance_score": each.score}
        if return_documents:
            result["document"] = {"text": documents[each.document]}
        results.append(result)
    return Whole({"model": name, "results": results})


def _document(fields: Fields, index: int, value: Any) -> str:
    where = f"documents[{index}]"
    if isinstance(value, dict):
        inner = Fields(value, where)
        value = inner.text("text")
        inner.end()
    return check_text(where, value)
