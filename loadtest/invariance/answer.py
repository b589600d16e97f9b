#!/usr/bin/env python3
"""Answers the scoreboard's requests with one library in this process, and writes the answers.

Run it with the Python interpreter in which the library is installed. Writes an .npz. It contains
`values`, float32 [companies, requests, values], and `labels`, int32 [companies, requests]; or
`tokens`, int32 [companies, requests, tokens]. It always contains `cpu_s`, the processor time of
this process in seconds.
"""

import argparse
import contextlib
import fcntl
import pathlib
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "peers"), str(HERE.parent / "peers" / "serve"), str(HERE)]

import company  # noqa: E402
from encoder_engines import ENGINES, padded_mask  # noqa: E402

PREFIX_TOKENS = 1024  # in a batch by TEI's rule


@contextlib.contextmanager
def alone_at(checkpoint: pathlib.Path):
    """Prevents other processes from converting the checkpoint at the same time."""
    with (checkpoint / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def encode_all(options, texts, companies) -> dict[str, np.ndarray]:
    with alone_at(options.checkpoint):
        run = ENGINES[options.engine](options.checkpoint, options.precision, options.threads)
    made = []
    for groups in companies:
        values = [None] * len(texts)
        for group in groups:
            answers = np.asarray(run(*padded_mask([texts[each] for each in group])), np.float32)
            if answers.ndim != 2:
                raise ValueError(f"{options.engine} gives answers of {answers.shape}")
            for number, answer in zip(group, answers, strict=True):
                values[number] = answer
        made.append(np.stack(values))
    values = np.stack(made)
    return {"values": values, "labels": values.argmax(axis=2).astype(np.int32)}


def decode_all(options, texts, companies, new_tokens: int) -> dict[str, np.ndarray]:
    from decoder_engines import DECODERS
    with alone_at(options.checkpoint):
        decoder = DECODERS[options.engine](options.checkpoint, options.precision, options.threads)
    run = decoder.score if new_tokens == 1 else lambda some: decoder.generate(some, new_tokens)
    kinds: dict[str, list] = {}
    for groups in companies:
        found: dict[str, list] = {}
        for group in groups:
            for kind, answers in run([texts[each] for each in group]).items():
                of_kind = found.setdefault(kind, [None] * len(texts))
                for number, answer in zip(group, answers, strict=True):
                    of_kind[number] = answer
        for kind, answers in found.items():
            kinds.setdefault(kind, []).append(np.stack(answers))
    return {kind: np.stack(answers) for kind, answers in kinds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=company.TASKS, required=True)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--checkpoint", type=pathlib.Path, required=True)
    parser.add_argument("--vocabulary", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--companies", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prefixes", action="store_true", help="batches by TEI's rule")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    task = company.TASKS[options.task]
    texts = company.requests(options.count, options.vocabulary, options.seed)
    companies = company.companies([len(text) for text in texts], options.companies, options.seed,
                                  PREFIX_TOKENS if options.prefixes else 0)
    if task.model == "decoder":
        answers = decode_all(options, texts, companies, task.new_tokens)
    else:
        answers = encode_all(options, texts, companies)
    np.savez(options.out, cpu_s=time.process_time(), **answers)


if __name__ == "__main__":
    main()
