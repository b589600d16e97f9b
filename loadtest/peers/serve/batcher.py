"""Makes static batches for engines without batching."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Answer:
    tokens: list[int]
    logprobs: list[float]  # of the tokens, or empty if the engine does not report them


@dataclass(eq=False)
class Waiting:
    prompt: np.ndarray
    max_tokens: int
    answered: asyncio.Future


def choose(lengths: Sequence[int], max_rows: int, max_padding: float) -> list[int]:
    """Returns the indices of the next batch. It has the head of the queue and, in order, each
    prompt that keeps the share of padding at or below `max_padding`. The padded size is rows times
    the longest row.
    """
    chosen: list[int] = []
    tokens = longest = 0
    for index, length in enumerate(lengths):
        if len(chosen) == max_rows:
            break
        area = (len(chosen) + 1) * max(longest, length)
        if not chosen or 1 - (tokens + length) / area <= max_padding:
            chosen.append(index)
            tokens, longest = tokens + length, max(longest, length)
    return chosen


def partition(lengths: Sequence[int], max_rows: int, max_padding: float) -> list[list[int]]:
    """Returns all indices in successive batches."""
    left, batches = list(range(len(lengths))), []
    while left:
        chosen = choose([lengths[index] for index in left], max_rows, max_padding)
        batches.append([left[place] for place in chosen])
        left = [index for index in left if index not in batches[-1]]
    return batches


def padded(prompts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the prompts as int64 [rows, longest] with zeros on the right, and their lengths as
    int32 [rows].
    """
    lengths = np.array([len(prompt) for prompt in prompts], np.int32)
    rows = np.zeros((len(prompts), lengths.max()), np.int64)
    for row, prompt in zip(rows, prompts):
        row[: len(prompt)] = prompt
    return rows, lengths


class Batcher:
    """Runs the waiting prompts in its own thread, one batch at a time, whenever the engine is free.
    Skips prompts whose clients have given up.
    """

    def __init__(self, run: Callable[[list[Waiting]], list[Answer]], max_rows: int,
                 max_padding: float):
        self._run, self._max_rows, self._max_padding = run, max_rows, max_padding
        self._queue: list[Waiting] = []
        self._arrived = asyncio.Event()
        self._worker: asyncio.Task | None = None

    async def answer(self, prompt: np.ndarray, max_tokens: int) -> Answer:
        self._worker = self._worker or asyncio.create_task(self._serve())
        waiting = Waiting(prompt, max_tokens, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._arrived.set()
        return await waiting.answered

    async def _serve(self) -> None:
        while True:
            await self._arrived.wait()
            batch = self._take()
            if batch:
                await self._compute(batch)

    def _take(self) -> list[Waiting]:
        self._queue = [each for each in self._queue if not each.answered.done()]
        chosen = choose([len(each.prompt) for each in self._queue], self._max_rows,
                        self._max_padding)
        batch = [self._queue[index] for index in chosen]
        self._queue = [each for each in self._queue if each not in batch]
        if not self._queue:
            self._arrived.clear()
        return batch

    async def _compute(self, batch: list[Waiting]) -> None:
        try:
            answers = await asyncio.to_thread(self._run, batch)
        except Exception as error:  # reported to the callers; the next batch may succeed
            for each in batch:
                if not each.answered.done():
                    each.answered.set_exception(error)
            return
        for each, answer in zip(batch, answers):
            if not each.answered.done():
                each.answered.set_result(answer)
