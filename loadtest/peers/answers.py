"""Checks that servers give the same answers before they are timed."""

from dataclasses import dataclass

import numpy as np
import tritonclient.grpc as grpcclient

from arms import MODEL

TOLERANCE = 2e-3  # of a log-probability, because the order of f32 sums differs


@dataclass(frozen=True)
class Answer:
    tokens: list[int]
    logprobs: list[float] | None


def prompts(seed: int, lengths: tuple[int, ...], vocabulary: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.integers(3, vocabulary, (1, length), np.int32) for length in lengths]


def ask(client: grpcclient.InferenceServerClient, prompt: np.ndarray, max_tokens: int,
        timeout_s: float = 60) -> Answer:
    tensor = grpcclient.InferInput("input_ids", list(prompt.shape), "INT32")
    tensor.set_data_from_numpy(prompt)
    result = client.infer(MODEL, [tensor], parameters={"max_tokens": max_tokens},
                          client_timeout=timeout_s)
    logprobs = result.as_numpy("logprobs")
    return Answer(result.as_numpy("output_ids")[0].tolist(),
                  None if logprobs is None else logprobs[0].tolist())


def difference(expected: Answer, found: Answer) -> str:
    """Returns a description of the difference, or an empty text."""
    if found.tokens != expected.tokens:
        return f"tokens {found.tokens}, ours {expected.tokens}"
    if found.logprobs is None or expected.logprobs is None:
        return ""
    gap = float(np.abs(np.subtract(expected.logprobs, found.logprobs)).max())
    return f"a log-probability differs by {gap:.1e}" if gap > TOLERANCE else ""


def ask_all(address: str, asked: list[np.ndarray], max_tokens: int) -> list[Answer]:
    with grpcclient.InferenceServerClient(address) as client:
        return [ask(client, prompt, max_tokens) for prompt in asked]


def differences(expected: list[Answer], found: list[Answer]) -> list[str]:
    made = [difference(ours, theirs) for ours, theirs in zip(expected, found, strict=True)]
    return [each for each in made if each]
