"""The lengths of the texts that encoders compute, and statistics of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np


def drawn(median: float, sigma: float, cap: int) -> Callable[[int, int], np.ndarray]:
    """Returns a function from count and seed to log-normal lengths of at most `cap`. It draws one
    length from each of `count` equally likely ranges, in random order, so that the mean of few
    texts is close to the mean of many.
    """
    inverse = NormalDist(math.log(median), sigma).inv_cdf

    def lengths(count: int, seed: int) -> np.ndarray:
        random = np.random.default_rng(seed)
        shares = (random.permutation(count) + random.uniform(0.001, 0.999, count)) / count
        made = np.exp([inverse(share) for share in shares])
        return np.clip(np.round(made), 1, cap).astype(np.int64)

    return lengths


@dataclass(frozen=True)
class Traffic:
    name: str
    title: str
    median: int
    sigma: float
    cap: int

    @property
    def lengths(self) -> Callable[[int, int], np.ndarray]:
        return drawn(self.median, self.sigma, self.cap)

    @property
    def spec(self) -> str:
        """The same distribution for sluice-load's --lengths."""
        return f"lognormal:{self.median}:{self.sigma}"


# Queries and short texts; and pairs of a query and a passage, as for a reranker.
TRAFFIC = {each.name: each for each in (
    Traffic("embedding", "embeddings of texts around 24 tokens", 24, 0.8, 256),
    Traffic("rerank", "pairs of query and passage around 140 tokens", 140, 0.5, 512),
)}


def prefix(lengths: Sequence[int], most_tokens: int) -> int:
    """Returns the rows of the longest prefix with at most `most_tokens` padded tokens (rows times
    the longest row); at least one row.
    """
    longest = 0
    for rows, length in enumerate(lengths, 1):
        longest = max(longest, length)
        if rows > 1 and rows * longest > most_tokens:
            return rows - 1
    return len(lengths)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
