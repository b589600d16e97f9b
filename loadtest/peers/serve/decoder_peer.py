#!/usr/bin/env python3
"""Runs the Llama of checkpoint.py with a library in process, and reports tokens per second.

Reads JSON lines. {"work": "decode", "streams": N, "seconds": S, "seed": K} repeatedly computes N
prompts of PROMPT tokens together and generates NEW tokens for each; it reports the generated tokens
per second. {"work": "score", "lengths": [LEAST, MOST], ...} computes the next token of prompts of
these lengths, in random order, in batches of similar lengths; it reports the prompts' tokens per
second. The first line of the output has the next tokens of a fixed prompt and their
log-probability, to compare with the other contenders.
"""

import argparse
import json
import pathlib
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from batcher import partition  # noqa: E402
from checkpoint import read  # noqa: E402
from decode_work import BATCH, FIXED, MOST_PADDING, NEW, PROMPT  # noqa: E402
from decoder_engines import DECODERS  # noqa: E402


def prompts(random: np.random.Generator, lengths: list[int], vocabulary: int) -> list[np.ndarray]:
    return [random.integers(3, vocabulary, length).astype(np.int32) for length in lengths]


def decode(decoder, asked: dict, vocabulary: int) -> float:
    random = np.random.default_rng(asked["seed"])
    begun, made = time.monotonic(), 0
    while time.monotonic() - begun < asked["seconds"]:
        decoder.generate(prompts(random, [PROMPT] * asked["streams"], vocabulary), NEW)
        made += asked["streams"] * NEW
    return made / (time.monotonic() - begun)


def score(decoder, asked: dict, vocabulary: int) -> float:
    random = np.random.default_rng(asked["seed"])
    least, most = asked["lengths"]
    texts = prompts(random, random.integers(least, most + 1, 64).tolist(), vocabulary)
    batches = partition([len(text) for text in texts], BATCH, MOST_PADDING)
    random.shuffle(batches)
    begun, made, number = time.monotonic(), 0, 0
    while time.monotonic() - begun < asked["seconds"]:
        batch = [texts[each] for each in batches[number % len(batches)]]
        decoder.score(batch)
        made += sum(map(len, batch))
        number += 1
    return made / (time.monotonic() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=DECODERS, required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--checkpoint", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print other text to stdout
    decoder = DECODERS[options.engine](options.checkpoint, options.precision, options.threads)
    vocabulary = read(options.checkpoint)[0].vocab
    found = decoder.score([np.array(FIXED, np.int32)])
    print(json.dumps({"token": int(found["labels"][0]), "logprob": float(found["values"][0][0]),
                      "decodes": hasattr(decoder, "generate")}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        rate = (decode if asked["work"] == "decode" else score)(decoder, asked, vocabulary)
        print(rate, file=answers, flush=True)


if __name__ == "__main__":
    main()
