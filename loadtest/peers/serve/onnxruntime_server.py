#!/usr/bin/env python3
"""Serves onnxruntime with the minimal server: prompts in padded batches, and the next token of
each.
"""

import pathlib
from collections.abc import Callable

import numpy as np
import onnxruntime

import oip
from batcher import Answer, Batcher, Waiting, padded
from onnx_model import export


def load(checkpoint: pathlib.Path, threads: int) -> Callable[[list[np.ndarray]], list[np.ndarray]]:
    """Returns a function from prompts to the arrays `token` and `logprob`."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Idle threads that spin would take the processor from the threads that deliver requests.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(export(checkpoint), options,
                                           providers=["CPUExecutionProvider"])

    def next_tokens(prompts: list[np.ndarray]) -> list[np.ndarray]:
        rows, lengths = padded(prompts)
        return session.run(["token", "logprob"], {"input_ids": rows, "lengths": lengths})

    return next_tokens


def main() -> None:
    options = oip.arguments(__doc__).parse_args()
    next_tokens = load(pathlib.Path(options.checkpoint), options.threads)

    def run(batch: list[Waiting]) -> list[Answer]:
        tokens, logprobs = next_tokens([each.prompt for each in batch])
        return [Answer([int(token)], [float(logprob)])
                for token, logprob in zip(tokens, logprobs)]

    batcher = Batcher(run, options.max_rows, options.max_padding)
    oip.serve(batcher.answer, options.address)


if __name__ == "__main__":
    main()
