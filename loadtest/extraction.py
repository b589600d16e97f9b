#!/usr/bin/env python3
"""Measures the extraction of labelled parts of texts next to the package gliner.

Makes a random checkpoint in the shape of gliner_small-v2.1 (DeBERTa-v3-small, states of 512, an
LSTM, parts of up to 12 words), but with a small vocabulary, and converts it. The daemon and the
package answer the same lists of texts in turn, each on the processors of this process. The package
runs as it is, and with its packing (InferencePackingConfig, as its server uses it). Reports texts
per second, the median over the rounds of the ratios, and the share of texts with the same parts. At
the threshold, a random model finds some parts in each text. Needs torch, gliner 0.2.29 and
tritonclient in the running interpreter.

Lengths of texts are drawn from a lognormal distribution, with a median of --median words and sigma
0.6, between 4 and 300 words.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import tritonclient.grpc as triton
from gliner import GLiNER
from gliner.infer_packing import InferencePackingConfig

import reporting
from overload import Daemon

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "goldens"))

import make_extraction as goldens  # noqa: E402

SMALL = {"model_type": "deberta-v2", "hidden_size": 768, "num_hidden_layers": 6,
         "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
         "relative_attention": True, "position_buckets": 256, "max_relative_positions": -1,
         "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "share_att_key": True,
         "position_biased_input": False, "type_vocab_size": 0}
HEAD = {"hidden_size": 512, "num_rnn_layers": 1, "max_width": 12, "max_len": 384}


def draw_texts(random, options):
    words = (goldens.HERE / "tokenizers" / "corpus.txt").read_text().split()
    sizes = np.exp(random.normal(np.log(options.median), 0.6, options.texts)).clip(4, 300)
    return [" ".join(random.choice(words, int(size))) for size in sizes]


class Sluice:
    def __init__(self, options, folder):
        self.daemon = Daemon(options.sluiced, folder, "--cpu.threads", str(options.threads))
        self.client = triton.InferenceServerClient(self.daemon.grpc)

    def extract(self, texts, labels, threshold):
        tensor = triton.InferInput("text_input", [len(texts), 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[text.encode()] for text in texts], np.object_))
        answer = self.client.infer("demo", [tensor], parameters={
            "labels": json.dumps(labels), "threshold": threshold})
        columns = (answer.as_numpy(f"extracted_{name}") for name in ("spans", "labels", "count"))
        return [[(*map(int, place), labels[label]) for place, label in
                 zip(spans[:count], found[:count])] for spans, found, (count,) in zip(*columns)]


class Package:
    def __init__(self, model, packs, batch):
        self.model, self.batch = model, batch
        self.packing = InferencePackingConfig(max_length=512, streams_per_batch=1)
        self.packing = self.packing if packs else None

    def extract(self, texts, labels, threshold):
        found = self.model.inference(texts, labels, threshold=threshold, batch_size=self.batch,
                                     packing_config=self.packing)
        return [[(each["start"], each["end"], each["label"]) for each in parts] for parts in found]


def make_model(folder):
    goldens.OUT = folder
    base, specials = goldens.MODELS["deberta"]["tokenizer"]
    goldens.make("source", {"tokenizer": (base, specials), "encoder": SMALL, "head": HEAD}, 1)
    model = GLiNER.from_pretrained(str(folder / "source"), local_files_only=True)
    subprocess.run([sys.executable, ROOT / "tools" / "convert", folder / "source",
                    folder / "served"], check=True, stdout=subprocess.DEVNULL)
    return model.eval()


def same(first, second):
    """Returns the share of texts with the same parts."""
    return statistics.mean(a == b for a, b in zip(first, second))


def measure(options, arms, random):
    seconds = {name: [] for name in arms}
    shares = []
    for number in range(-1, options.rounds):  # The first round warms up.
        texts = draw_texts(random, options)
        found = {}
        for name in list(arms) if number % 2 else list(arms)[::-1]:
            began = time.perf_counter()
            found[name] = arms[name].extract(texts, goldens.LABELS[:options.labels],
                                             options.threshold)
            if number >= 0:
                seconds[name].append(time.perf_counter() - began)
        shares.append(same(found["sluice"], found["gliner, batches of 8"]))
        taken = ", ".join(f"{name} {each[-1]:.2f} s" for name, each in seconds.items() if each)
        print(f"round {number}: {taken or 'warm-up'}", file=sys.stderr)
    return seconds, shares


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluiced", required=True, help="path of the daemon")
    parser.add_argument("--texts", type=int, default=32, help="of a request")
    parser.add_argument("--median", type=float, default=40, help="words of a text")
    parser.add_argument("--labels", type=int, default=5)
    parser.add_argument("--threshold", type=float, default=0.85)
    parser.add_argument("--threads", type=int, default=1, help="of the daemon and of torch")
    parser.add_argument("--rounds", type=int, default=5)
    reporting.add_options(parser)
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) != options.threads:
        sys.exit(f"extraction.py: run it with taskset on {options.threads} processors")
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        model = make_model(folder)
        sluice = Sluice(options, folder / "served")
        arms = {"sluice": sluice, "gliner, batches of 8": Package(model, False, 8),
                "gliner, packed": Package(model, True, 8)}
        try:
            seconds, shares = measure(options, arms, np.random.default_rng(1))
        finally:
            sluice.daemon.stop()
    report = reporting.heading("extraction") | {
        "options": reporting.options_of(options, "sluiced"), "seconds": seconds, "same": shares}
    lines = ["| arm | texts/s | sluice is faster by |", "|---|---|---|"]
    for name, of_arm in seconds.items():
        ratio = statistics.median(b / a for a, b in zip(seconds["sluice"], of_arm))
        lines.append(f"| {name} | {options.texts / statistics.median(of_arm):.1f} | {ratio:.2f} |")
    lines.append(f"\nTexts with the same parts: {100 * statistics.mean(shares):.2f} %.\n")
    reporting.write(options, report, "\n".join(lines))


if __name__ == "__main__":
    main()
