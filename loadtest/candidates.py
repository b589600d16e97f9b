#!/usr/bin/env python3
"""Measures urgent calls while other calls score candidates.

Starts one sluiced. Some callers score the maximum number of candidates of a call, one call after
another. At the same time an urgent call with one token is sent at a steady rate. Reports its
latency with and without the other callers. Needs tritonclient (build/venv has it).
"""

import argparse
import json
import pathlib
import statistics
import threading
import time

import numpy as np
import tritonclient.grpc as triton

import reporting
from overload import Daemon

MODEL = "demo"


def int32(name, values):
    tensor = triton.InferInput(name, values.shape, "INT32")
    tensor.set_data_from_numpy(values.astype(np.int32))
    return tensor


def score(address, rows, candidates, vocab, ended, count):
    client = triton.InferenceServerClient(address)
    inputs = [int32("input_ids", np.full((rows, 2), 3)),
              int32("candidate_ids", np.arange(rows * candidates).reshape(rows, -1) % vocab)]
    outputs = [triton.InferRequestedOutput("candidate_scores")]
    while not ended.is_set():
        client.infer(MODEL, inputs, outputs=outputs, priority=3, parameters={"max_tokens": 0})
        count.append(1)


def urgent_ms(address, seconds, every_s):
    client = triton.InferenceServerClient(address)
    inputs = [int32("input_ids", np.full((1, 4), 5))]
    took = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        client.infer(MODEL, inputs, priority=1, parameters={"max_tokens": 1})
        took.append(1000 * (time.monotonic() - began))
        time.sleep(max(began + every_s - time.monotonic(), 0))
    return took


def figures(took):
    took = sorted(took)
    return {"calls": len(took), "p50_ms": statistics.median(took),
            "p99_ms": took[int(0.99 * (len(took) - 1))], "max_ms": took[-1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluiced", type=pathlib.Path, required=True, help="path of the daemon")
    parser.add_argument("--model", type=pathlib.Path, required=True, help="model directory")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--candidates", type=int, default=4096, help="per row")
    parser.add_argument("--callers", type=int, default=2, help="that score")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--every-ms", type=float, default=20, help="between urgent calls")
    parser.add_argument("--out", help="write the JSON report to this file")
    options = parser.parse_args()
    config = json.loads(pathlib.Path(options.model, "config.json").read_text())
    daemon = Daemon(options.sluiced, options.model)
    ended, scored = threading.Event(), []
    try:
        alone = urgent_ms(daemon.grpc, options.seconds, options.every_ms / 1000)
        scorers = [threading.Thread(target=score, args=(
            daemon.grpc, options.rows, options.candidates, config["vocab_size"], ended, scored))
                   for _ in range(options.callers)]
        for scorer in scorers:
            scorer.start()
        time.sleep(1)
        before = len(scored)
        beside = urgent_ms(daemon.grpc, options.seconds, options.every_ms / 1000)
        calls = len(scored) - before
        ended.set()
        for scorer in scorers:
            scorer.join()
    finally:
        ended.set()
        daemon.stop()
    report = {"benchmark": "candidates",
              "options": reporting.options_of(options),
              "alone": figures(alone), "beside_scoring": figures(beside),
              "scored_per_s": calls * options.rows * options.candidates / options.seconds}
    text = json.dumps(report, indent=1)
    if options.out:
        pathlib.Path(options.out).write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
