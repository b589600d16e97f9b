"""Zero-shot classification by a model of natural language inference, without network calls.

The model decides whether a text entails a hypothesis about each label, such as "This example is
sport.". The scores are those of transformers' pipeline.
"""

from __future__ import annotations

import json
import math
from typing import Any, Iterator, NamedTuple, Sequence

from .errors import NotServed
from .messages import is_text
from .results import ModelInfo, ZeroShot

TEMPLATE = "This example is {}."

# The bytes of the texts of a request with several texts, which has a text for each label again.
_MOST_BYTES = 1 << 20


class Places(NamedTuple):
    """The places of two labels in the scores of a model of natural language inference."""

    entailment: int
    contradiction: int


def places_of(info: ModelInfo) -> Places:
    """Returns the places of a model's labels, or raises NotServed for another model.

    The contradiction is the first label, or the last if the entailment is the first.
    """
    names: list[str] = json.loads(info.properties.get("labels", "[]"))
    found = [i for i, name in enumerate(names) if name.lower().startswith("entail")]
    pairs = any(each.name == "text_pair_input" for each in info.inputs)
    if not found or len(names) < 2 or not pairs:
        raise NotServed(
            f"the model {info.name} is not a model of natural language inference: it needs a"
            " classifier of pairs of texts with a label whose name begins with \"entail\", and has"
            f" the labels {', '.join(names)[:200] or 'without names'}; set id2label in its"
            " config.json, or use another model",
            "UNIMPLEMENTED",
        )
    return Places(found[0], len(names) - 1 if found[0] == 0 else 0)


def hypotheses_of(labels: Sequence[Any], template: str) -> list[str]:
    """Returns the hypothesis of each label."""
    if isinstance(labels, (str, bytes)) or not all(isinstance(each, str) for each in labels):
        raise TypeError("candidate_labels must be a list of texts")
    if not labels or len({*labels}) < len(labels) or not all(labels):
        raise ValueError("candidate_labels must be one or more different texts that are not empty")
    if template.count("{}") != 1:
        raise ValueError(f"hypothesis_template is {template[:100]!r}; expected a text with {{}}"
                         " once, in place of the label")
    return [template.replace("{}", each) for each in labels]


def check_texts(texts: Sequence[Any]) -> None:
    if not all(map(is_text, texts)):
        raise TypeError("zero-shot classification takes texts, not token ids")


def groups_of(texts: Sequence[Any], labels: int) -> Iterator[list[Any]]:
    """Yields the texts of each request. A long text has a request of its own."""
    group: list[Any] = []
    size = 0
    for text in texts:
        size += len(text) * labels
        if group and size > _MOST_BYTES:
            yield group
            group, size = [], len(text) * labels
        group.append(text)
    if group:
        yield group


def _softmax(logits: Sequence[float]) -> list[float]:
    most = max(logits)
    weights = [math.exp(each - most) for each in logits]
    total = math.fsum(weights)
    return [each / total for each in weights]


def ranked(
    labels: Sequence[str], logits: Sequence[Sequence[float]], places: Places, multi_label: bool
) -> ZeroShot:
    """Returns the labels of a text, the highest score first.

    `logits` has the model's scores of each hypothesis. Several labels share a probability of 1,
    unless `multi_label`: each label then has its probability against the contradiction.
    """
    if multi_label or len(labels) == 1:
        scores = [_softmax([row[places.contradiction], row[places.entailment]])[1]
                  for row in logits]
    else:
        scores = _softmax([row[places.entailment] for row in logits])
    order = sorted(range(len(labels)), key=lambda i: -scores[i])
    return ZeroShot([labels[i] for i in order], [scores[i] for i in order])
