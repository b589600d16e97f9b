"""Counts by how much the answers to the same requests differ between companies."""

from dataclasses import dataclass

import numpy as np

TOP = 10


@dataclass(frozen=True)
class Count:
    """The differences between the answers to `requests` requests in `companies` companies."""

    requests: int
    companies: int
    mean_patterns: float  # distinct bit patterns of the answers to a request
    most_patterns: int
    changed: int  # requests with more than one pattern
    largest_difference: float | None = None  # of a value, divided by the largest value of all
    flips: int | None = None  # requests whose label differs between companies
    reordered: int | None = None  # requests whose nearest TOP, in order, differ between companies


def patterns(answers: np.ndarray) -> np.ndarray:
    """Returns the number of distinct patterns of each request. `answers` is [companies, requests,
    values]. NaNs and zeros are equal only if their bits are.
    """
    companies, requests = answers.shape[:2]
    as_bytes = np.ascontiguousarray(answers).reshape(companies, requests, -1).view(np.uint8)
    return np.array([len({as_bytes[company, request].tobytes() for company in range(companies)})
                     for request in range(requests)])


def nearest(vectors: np.ndarray, top: int = TOP) -> np.ndarray:
    """Returns for each vector the `top` others with the largest cosine, best first, and the earlier
    one first if two are equal. Computed in double, so that rounding here has no effect.
    """
    unit = vectors.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1, kind="stable")[:, :top]


def differ(answers: np.ndarray) -> int:
    """Returns the number of requests whose answers differ between companies."""
    rest = tuple(range(2, answers.ndim))
    return int((answers != answers[:1]).any(axis=(0, *rest)).sum())


def count_values(values: np.ndarray, labels: np.ndarray | None, ranked: bool) -> Count:
    """Counts answers of floats, [companies, requests, values], and their labels [companies,
    requests]. With `ranked`, compares the order of nearest neighbours too.
    """
    of_request = patterns(values)
    scale = float(np.abs(values).max()) or 1.0
    spread = values.max(axis=0) - values.min(axis=0)
    return Count(values.shape[1], values.shape[0], float(of_request.mean()), int(of_request.max()),
                 int((of_request > 1).sum()), float(spread.max()) / scale,
                 None if labels is None else differ(labels),
                 differ(np.stack([nearest(each) for each in values])) if ranked else None)


def count_texts(tokens: np.ndarray) -> Count:
    """Counts answers of tokens, [companies, requests, tokens]."""
    of_request = patterns(tokens)
    return Count(tokens.shape[1], tokens.shape[0], float(of_request.mean()), int(of_request.max()),
                 int((of_request > 1).sum()))
