#!/usr/bin/env python3
"""Runs an encoder with a library in process, and reports its throughput and latency.

Reads JSON lines. {"seconds": S, "seed": N} is a closed loop. It uses the batch size that was
fastest at start and sorts each window of 64 texts by length; Sluice also has 64 in flight. A window
is always completed, because its last batches are the longest. With "rate" and "objective_ms" it is
an open loop: texts arrive at exponential intervals in real time, without a network. Whenever the
library is free it takes a batch from the queue. A text is dropped when it has waited for twice the
objective. With --rule prefix, the batches follow TEI's rule: the longest prefix of the queue with
at most PREFIX_TOKENS padded tokens. The first line of the output has the embedding of a fixed text,
to compare with the other contenders.
"""

import argparse
import json
import pathlib
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from batcher import choose  # noqa: E402
from encoder import shape_of  # noqa: E402
from encoder_engines import ENGINES, padded_mask  # noqa: E402
from encoder_traffic import TRAFFIC, percentile, prefix  # noqa: E402

BATCHES = (1, 4, 8, 16, 32)
WINDOW = 64
PREFIX_TOKENS = 1024
MOST_PADDING = 0.25
FIXED = [101, 7, 2003, 30521, 1, 999, 5000, 102]


class Meter:
    """Counts the tokens of batches, with and without padding, and the process's time."""

    def __init__(self, pads: bool):
        self._pads = pads
        self._begun, self._cpu = time.monotonic(), time.process_time()
        self._useful = self._computed = 0
        self.texts = 0

    def add(self, batch: list[np.ndarray]) -> None:
        self.texts += len(batch)
        self._useful += sum(map(len, batch))
        self._computed += (len(batch) * max(map(len, batch)) if self._pads
                           else sum(map(len, batch)))

    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def figures(self) -> dict:
        texts = max(self.texts, 1)
        return {"per_s": self.texts / self.seconds(),
                "cpu_s_per_1000": 1000 * (time.process_time() - self._cpu) / texts,
                "executed_efficiency": self._useful / max(self._computed, 1)}


class Worker:
    def __init__(self, run, rule: str, pads: bool, lengths, vocabulary: int):
        self._run, self._rule, self._pads = run, rule, pads
        self._lengths, self._vocabulary = lengths, vocabulary
        self.batch = 0

    def calibrate(self) -> None:
        if self._rule == "prefix":
            return
        rates = {}
        for self.batch in BATCHES:
            rates[self.batch] = self.closed(0.5, 1)["per_s"]
        self.batch = max(rates, key=rates.get)

    def _texts(self, count: int, seed: int) -> list[np.ndarray]:
        random = np.random.default_rng(seed)
        return [random.integers(0, self._vocabulary, n) for n in self._lengths(count, seed)]

    def _batches(self, texts: list[np.ndarray]) -> list[list[np.ndarray]]:
        if self._rule == "prefix":
            batches = []
            while texts:
                count = prefix([len(text) for text in texts], PREFIX_TOKENS)
                batches.append(texts[:count])
                texts = texts[count:]
            return batches
        texts = sorted(texts, key=len)
        return [texts[first:first + self.batch] for first in range(0, len(texts), self.batch)]

    def closed(self, seconds: float, seed: int) -> dict:
        windows = [self._batches(self._texts(WINDOW, seed + i)) for i in range(8)]
        meter, number = Meter(self._pads), 0
        while meter.seconds() < seconds:
            for batch in windows[number % len(windows)]:
                self._run(*padded_mask(batch))
                meter.add(batch)
            number += 1
        return meter.figures()

    def _take(self, waiting: list[int], texts: list[np.ndarray]) -> list[int]:
        """Returns the texts of the next batch."""
        lengths = [len(texts[number]) for number in waiting]
        if self._rule == "prefix":
            return waiting[:prefix(lengths, PREFIX_TOKENS)]
        return [waiting[place] for place in choose(lengths, max(self.batch, 1), MOST_PADDING)]

    def open(self, seconds: float, seed: int, rate: float, objective_s: float) -> dict:
        random = np.random.default_rng(seed + 1)
        due = np.cumsum(random.exponential(1 / rate, int(2 * seconds * rate) + 16))
        due = due[due < seconds]
        texts = self._texts(len(due), seed)
        latencies, waiting, next_text = [], [], 0
        meter = Meter(self._pads)
        while next_text < len(due) or waiting:
            now = meter.seconds()
            while next_text < len(due) and due[next_text] <= now:
                waiting.append(next_text)
                next_text += 1
            waiting = [each for each in waiting if now - due[each] <= 2 * objective_s]
            if not waiting:
                if next_text < len(due):
                    time.sleep(max(0.0, due[next_text] - meter.seconds()))
                continue
            taken = self._take(waiting, texts)
            batch = [texts[each] for each in taken]
            self._run(*padded_mask(batch))
            meter.add(batch)
            end = meter.seconds()
            latencies += [end - due[each] for each in taken]
            waiting = [each for each in waiting if each not in set(taken)]
        good = sum(each <= objective_s for each in latencies)
        return meter.figures() | {
            "goodput_per_s": good / seconds, "within": good / max(len(due), 1),
            "p50_ms": 1e3 * percentile(latencies, 0.5), "p99_ms": 1e3 * percentile(latencies, 0.99)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--checkpoint", type=pathlib.Path, required=True)
    parser.add_argument("--rule", choices=("similar", "prefix"), default="similar")
    parser.add_argument("--traffic", choices=TRAFFIC, default="embedding")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print other text to stdout
    run = ENGINES[options.engine](options.checkpoint, options.precision, options.threads)
    fixed = np.array([FIXED])
    embedding = np.asarray(run(fixed, np.ones_like(fixed)))[0].tolist()
    worker = Worker(run, options.rule, options.engine != "llama_cpp",
                    TRAFFIC[options.traffic].lengths, shape_of(options.checkpoint).vocab)
    worker.calibrate()
    print(json.dumps({"embedding": embedding, "batch": worker.batch}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if "rate" in asked:
            made = worker.open(asked["seconds"], asked["seed"], asked["rate"],
                               1e-3 * asked["objective_ms"])
        else:
            made = worker.closed(asked["seconds"], asked["seed"])
        print(json.dumps(made), file=answers, flush=True)


if __name__ == "__main__":
    main()
