"""Draws the requests of the scoreboard and the groupings ("companies") to answer them in.

A company is a list of groups of request numbers that holds each request once. In the first company
each request is a group by itself. The others have all requests in a random order, in groups of
random sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from encoder_traffic import prefix

LARGEST_GROUP = 32
MEDIAN_TOKENS, SIGMA, MOST_TOKENS = 12, 0.8, 200


@dataclass(frozen=True)
class Task:
    name: str
    title: str
    model: str  # encoder, classifier or decoder
    new_tokens: int = 0


TASKS = {task.name: task for task in (
    Task("embedding", "Embeddings", "encoder"),
    Task("classification", "Classification", "classifier"),
    Task("score", "Scores: the next token and its log-probability", "decoder", 1),
    Task("text", "Greedy text", "decoder", 24),
)}


def requests(count: int, vocabulary: int, seed: int) -> list[np.ndarray]:
    """Returns token ids with log-normal lengths. Ids below 3 are left out, because some servers
    treat them specially.
    """
    random = np.random.default_rng(seed)
    lengths = np.clip(np.round(random.lognormal(np.log(MEDIAN_TOKENS), SIGMA, count)), 1,
                      MOST_TOKENS).astype(int)
    return [random.integers(3, vocabulary, length).astype(np.int32) for length in lengths]


def parts(order: list[int], random: np.random.Generator) -> list[list[int]]:
    """Divides `order` into parts whose sizes are log-uniform between 1 and LARGEST_GROUP."""
    made = []
    while order:
        size = int(np.exp(random.uniform(0, np.log(LARGEST_GROUP + 1))))
        made.append(order[:size])
        order = order[size:]
    return made


def prefixes(order: Sequence[int], lengths: Sequence[int], most_tokens: int) -> list[list[int]]:
    """Returns the groups that TEI's rule makes of a queue. Each is the longest prefix with at most
    `most_tokens` padded tokens (rows times the longest row).
    """
    groups, left = [], list(order)
    while left:
        rows = prefix([lengths[number] for number in left], most_tokens)
        groups.append(left[:rows])
        left = left[rows:]
    return groups


def companies(lengths: Sequence[int], count: int, seed: int,
              prefix_tokens: int = 0) -> list[list[list[int]]]:
    """Returns `count` companies. With `prefix_tokens`, TEI's rule makes their groups, on random
    orders.
    """
    made = [[[number] for number in range(len(lengths))]]
    for turn in range(1, count):
        random = np.random.default_rng([seed, turn])
        if prefix_tokens:
            made.append(prefixes(random.permutation(len(lengths)).tolist(), lengths,
                                 prefix_tokens))
        else:
            made.append(parts(random.permutation(len(lengths)).tolist(), random))
    return made
