"""Places of tokens in a text, and the entities that labelled tokens form."""

from __future__ import annotations

import math
from typing import Any, Sequence

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

    def place(byte: int) -> int:
        return _characters(text, byte)

    return [
        Entity(kind, math.fsum(each) / len(each), place(begin), place(end),
               text[begin:end].decode(errors="replace"))
        for kind, begin, end, each in found
    ]


def tokens_of(text: bytes, ids: Sequence[int], offsets: Sequence[Any]) -> list[Token]:
    """Returns the tokens of a text with their places in characters."""
    return [
        Token(each, _characters(text, begin), _characters(text, end)) if begin >= 0
        else Token(each, -1, -1)
        for each, (begin, end) in zip(ids, offsets)
    ]


def _characters(text: bytes, byte: int) -> int:
    return len(text[:byte].decode(errors="replace"))
