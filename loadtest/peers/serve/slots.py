"""Calls an engine that batches by itself. Each call blocks its own thread until it is answered."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from batcher import Answer

# Takes the prompt, the number of tokens to generate, and an event that is set if the client gives
# up.
Generate = Callable[[np.ndarray, int, threading.Event], Answer]


class Slots:
    def __init__(self, generate: Generate, count: int):
        self._generate = generate
        self._threads = ThreadPoolExecutor(count)
        self._free = asyncio.Semaphore(count)

    async def answer(self, prompt: np.ndarray, max_tokens: int) -> Answer:
        given_up = threading.Event()
        async with self._free:
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._generate, prompt, max_tokens, given_up)
            finally:
                given_up.set()
