#!/usr/bin/env python3
"""Serves CTranslate2 with the minimal server: static batches. A row is removed from its batch when
it is done.
"""

import asyncio
import pathlib
from collections.abc import Callable

import ctranslate2

import oip
from batcher import Answer, Batcher, Waiting
from ctranslate2_model import export, token


class Generation:
    """The generation of one batch. Callers get their answers when their own rows are done."""

    def __init__(self, batch: list[Waiting], loop: asyncio.AbstractEventLoop):
        self._batch, self._loop = batch, loop
        self._tokens: list[list[int]] = [[] for _ in batch]

    def on_step(self, step: ctranslate2.GenerationStepResult) -> bool:
        """Handles one token of a row. Returns True to end the row."""
        tokens, waiting = self._tokens[step.batch_id], self._batch[step.batch_id]
        tokens.append(step.token_id)
        if len(tokens) < waiting.max_tokens:
            return False
        self._loop.call_soon_threadsafe(self._deliver, waiting, Answer(tokens, []))
        return True

    @staticmethod
    def _deliver(waiting: Waiting, answer: Answer) -> None:
        if not waiting.answered.done():
            waiting.answered.set_result(answer)

    def answers(self) -> list[Answer]:
        return [Answer(tokens, []) for tokens in self._tokens]


def runner(generator: ctranslate2.Generator) -> Callable[[list[Waiting]], list[Answer]]:
    def run(batch: list[Waiting]) -> list[Answer]:
        generation = Generation(batch, batch[0].answered.get_loop())
        generator.generate_batch(
            [[token(each) for each in waiting.prompt] for waiting in batch],
            max_length=max(waiting.max_tokens for waiting in batch),
            sampling_topk=1, include_prompt_in_result=False, callback=generation.on_step)
        return generation.answers()

    return run


def main() -> None:
    options = oip.arguments(__doc__).parse_args()
    folder = export(pathlib.Path(options.checkpoint))
    generator = ctranslate2.Generator(str(folder), device="cpu", compute_type="float32",
                                      inter_threads=1, intra_threads=options.threads)
    batcher = Batcher(runner(generator), options.max_rows, options.max_padding)
    oip.serve(batcher.answer, options.address)


if __name__ == "__main__":
    main()
