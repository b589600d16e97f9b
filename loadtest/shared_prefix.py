#!/usr/bin/env python3
"""Measures the scoring of many items that share one prefix.

Starts two sluiced with the same random Llama. In one, the rows of a request share their common
prefix; in the other, each row is computed in full. Both get the same requests in turn, one at a
time. Each request has a new prefix and items of different lengths, and its `candidate_scores` must
have the same bits in both. Reports requests per second of both, the median over the rounds of their
ratio, and the tokens that the daemon computed per request. Needs tritonclient (build/venv has it).
"""

import argparse
import json
import pathlib
import platform
import re
import statistics
import sys
import tempfile
import time
import urllib.request

import numpy as np
import tritonclient.grpc as triton

import reporting
from overload import Daemon

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "peers"))

import checkpoint  # noqa: E402

CANDIDATES = [5, 6]


def tensor(name, values):
    made = triton.InferInput(name, values.shape, "INT32")
    made.set_data_from_numpy(values.astype(np.int32))
    return made


class Arm:
    def __init__(self, sluiced, model, shares):
        self.daemon = Daemon(sluiced, model, prefix_reuse=shares)
        self.client = triton.InferenceServerClient(self.daemon.grpc)
        self.seconds, self.expected = [], []
        self.before = self.computed()

    def computed(self):
        with urllib.request.urlopen(f"http://{self.daemon.http}/metrics") as answer:
            text = answer.read().decode()
        return sum(float(value) for value in re.findall(
            r'^sluice_tokens_total{.*kind="useful".*} (.*)$', text, re.MULTILINE))

    def score(self, rows, lengths):
        began = time.perf_counter()
        answer = self.client.infer(
            "demo", [tensor("input_ids", rows), tensor("input_lengths", lengths[:, None]),
                     tensor("candidate_ids", np.tile(CANDIDATES, (len(rows), 1)))],
            outputs=[triton.InferRequestedOutput("candidate_scores")],
            parameters={"max_tokens": 0})
        self.seconds.append(time.perf_counter() - began)
        return answer.as_numpy("candidate_scores")


def request_of(random, options, vocab):
    """Returns rows and their lengths: a prefix, and items of 0.5 to 1.5 times --item."""
    items = random.integers(options.item // 2, options.item * 3 // 2 + 1, options.items)
    rows = random.integers(10, vocab, (options.items, options.prefix + items.max()))
    rows[:, :options.prefix] = rows[0, :options.prefix]
    return rows, options.prefix + items


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluiced", required=True, help="path of the daemon")
    parser.add_argument("--prefix", type=int, default=500, help="tokens that all rows begin with")
    parser.add_argument("--items", type=int, default=100, help="per request")
    parser.add_argument("--item", type=int, default=20, help="tokens of an item, on average")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", help="write the JSON report to this file")
    options = parser.parse_args()
    shape = checkpoint.Shape(layers=6, hidden=384, intermediate=1024, heads=6, vocab=8000,
                             positions=2 * (options.prefix + 2 * options.item))
    random = np.random.default_rng(1)
    arms = {}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.write(pathlib.Path(folder), shape, seed=1)
        try:
            for name in ("shared", "separate"):
                arms[name] = Arm(options.sluiced, folder, shares=name == "shared")
            for number in range(options.rounds):
                rows, lengths = request_of(random, options, shape.vocab)
                order = list(arms) if number % 2 else list(arms)[::-1]
                scores = {name: arms[name].score(rows, lengths) for name in order}
                if not np.array_equal(scores["shared"], scores["separate"]):
                    sys.exit("shared_prefix.py: the scores differ")
                sizes = {"shared": options.prefix + (lengths - options.prefix).sum(),
                         "separate": lengths.sum()}
                for name, arm in arms.items():
                    arm.expected.append(int(sizes[name]))
            for name, arm in arms.items():
                tokens = arm.computed() - arm.before
                if tokens != sum(arm.expected):
                    sys.exit(f"shared_prefix.py: {name} computed {tokens:.0f} tokens, "
                             f"not {sum(arm.expected)}")
        finally:
            for arm in arms.values():
                arm.daemon.stop()
    ratios = [apart / shared for shared, apart in zip(arms["shared"].seconds,
                                                      arms["separate"].seconds)]
    report = {"benchmark": "shared_prefix", "machine": platform.processor() or platform.machine(),
              "options": reporting.options_of(options, "sluiced"),
              "model": shape.config(),
              "arms": {name: {"requests_per_s": 1 / statistics.median(arm.seconds),
                              "tokens_per_request": statistics.median(arm.expected),
                              "seconds": arm.seconds} for name, arm in arms.items()},
              "ratio": {"median": statistics.median(ratios), "least": min(ratios),
                        "largest": max(ratios)},
              "scores": "the same bits"}
    text = json.dumps(report, indent=1)
    if options.out:
        pathlib.Path(options.out).write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
