"""Zero-shot classification, in the format of Hugging Face's inference API."""

from __future__ import annotations

from typing import Any

from ..zero_shot import TEMPLATE, hypotheses_of
from .call import Answer, HttpCall, Whole
from .hostile import MAX_ROWS, check_texts, cost_of_prompts, parse_object
from .serving import Gateway
from .tei import cut_header

# Bytes of memory for a pair of a text and a hypothesis, and for its scores until the answer has
# been encoded.
_COST_OF_PAIR = 2000


async def zero_shot(gateway: Gateway, call: HttpCall) -> Answer:
    """Answers with the candidate labels of each text and their scores, the highest first."""
    fields = parse_object(call.body, gateway.limits, call.hold)
    name = await gateway.models.named(fields, call.options)
    call.row_field = fields.row_field("inputs")
    value = fields.take("inputs")
    texts = check_texts("inputs", value if isinstance(value, list) else [value])
    parameters = fields.object("parameters")
    labels = parameters.texts("candidate_labels")
    template = parameters.text("hypothesis_template", TEMPLATE)
    multi_label = parameters.flag("multi_label", False)
    parameters.end()
    fields.end()
    if not texts:
        raise fields.refuse("inputs", "is empty")
    rows = len(texts) * len(labels)
    if rows > MAX_ROWS:
        raise parameters.refuse(
            "candidate_labels", f"has {len(labels)} labels for {len(texts)} texts; at most"
            f" {MAX_ROWS} pairs of a text and a label are allowed in a request",
            reason="size")
    call.hold(rows * _COST_OF_PAIR + cost_of_prompts([template], len(labels)))
    try:
        hypotheses_of(labels, template)
    except ValueError as error:
        name, _, why = str(error).partition(" ")
        raise parameters.refuse(name, why) from None
    found = await gateway.client.zero_shot(
        name, texts, labels, hypothesis_template=template, multi_label=multi_label, **call.options)
    answers: list[dict[str, Any]] = [
        {"sequence": text, "labels": each.labels, "scores": each.scores}
        for text, each in zip(texts, found)]
    return Whole(answers if isinstance(value, list) else answers[0], headers=cut_header(found))
