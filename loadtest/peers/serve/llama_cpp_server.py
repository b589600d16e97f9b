#!/usr/bin/env python3
"""Serves llama.cpp's own server, in this process, with the minimal server: continuous batches in
its slots.

Weights, keys and values are F32, and flash attention is off because it rounds to F16. Every prompt
is computed in full: no slot keeps an earlier one.
"""

import pathlib
import threading

import numpy as np
import xllamacpp

import oip
from batcher import Answer
from gguf_model import export, tokens_of
from slots import Slots

POSITIONS_PER_SLOT = 320


def parameters(path: pathlib.Path, threads: int, slots: int) -> xllamacpp.CommonParams:
    made = xllamacpp.CommonParams()
    made.model.path = str(path)
    made.n_parallel = slots
    made.n_ctx = slots * POSITIONS_PER_SLOT
    made.cpuparams.n_threads = made.cpuparams_batch.n_threads = threads
    made.cache_type_k = made.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    made.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    made.cache_prompt = False
    made.cache_ram_mib = 0
    made.n_gpu_layers = 0
    made.port = 0
    made.ui = False
    made.verbosity = -1
    return made


class Completions:
    def __init__(self, server: xllamacpp.Server):
        self._server = server

    def __call__(self, prompt: np.ndarray, max_tokens: int, given_up: threading.Event) -> Answer:
        tokens: list[int] = []
        errors: list[str] = []

        def on_part(part) -> bool:
            """Handles a part of the answer. Returns True to end the generation."""
            for each in part if isinstance(part, list) else [part]:
                if "choices" in each:
                    tokens.extend(tokens_of(each["choices"][0]["text"]))
                else:
                    errors.append(str(each))
            return given_up.is_set()

        self._server.handle_completions(
            {"prompt": prompt.tolist(), "max_tokens": max_tokens, "temperature": 0.0,
             "samplers": ["top_k"], "top_k": 1, "cache_prompt": False, "stream": True}, on_part)
        if errors:
            raise RuntimeError(errors[0])
        return Answer(tokens, [])


def main() -> None:
    options = oip.arguments(__doc__).parse_args()
    path = export(pathlib.Path(options.checkpoint))
    server = xllamacpp.Server(parameters(path, options.threads, options.max_rows))
    slots = Slots(Completions(server), options.max_rows)
    oip.serve(slots.answer, options.address)


if __name__ == "__main__":
    main()
