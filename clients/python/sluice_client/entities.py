"""Places of tokens in a text, and the entities that labelled tokens form."""

from __future__ import annotations

import codecs
import math
from typing import Any, Iterable, Sequence

from .results import Entity, Token


def entities_of(
    text: bytes, scores: Sequence[Any], labels: Sequence[bytes], offsets: Sequence[Any]
) -> list[Entity]:
    """Joins the labelled tokens of a text into entities.

    Adjacent tokens of one type form one entity. A B- label starts a new entity, except within a
    word.
    """
    found: list[tuple[str, int, int, list[float]]] = []
    open_type = ""  # type of the entity that the next token may continue
    for row, label, (begin, end) in zip(scores, labels, offsets):
        prefix, dash, name = label.decode().partition("-")
        kind = name if dash and prefix in ("B", "I") else label.decode()
        if begin < 0:
            continue
        if kind == "O":
            open_type = ""
        elif kind == open_type and (prefix != "B" or begin == found[-1][2]):
            found[-1] = (kind, found[-1][1], end, [*found[-1][3], max(row)])
        else:
            found.append((kind, begin, end, [max(row)]))
            open_type = kind

    places = _characters(text, (place for _, *both, _ in found for place in both))
    return [
        Entity(kind, math.fsum(each) / len(each), places[begin], places[end],
               text[begin:end].decode(errors="replace"))
        for kind, begin, end, each in found
    ]


def tokens_of(text: bytes, ids: Sequence[int], offsets: Sequence[Any]) -> list[Token]:
    """Returns the tokens of a text with their places in characters."""
    places = _characters(text, (place for both in offsets for place in both if place >= 0))
    places[-1] = -1
    return [Token(each, places[begin], places[end]) for each, (begin, end) in zip(ids, offsets)]


def _characters(text: bytes, places: Iterable[int]) -> dict[int, int]:
    """Returns the number of characters before each of these bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    counts, complete, at = {}, 0, 0
    for place in sorted(set(places)):
        complete += len(decoder.decode(text[at:place]))
        at = place
        counts[place] = complete + len(decoder.getstate()[0].decode(errors="replace"))
    return counts
