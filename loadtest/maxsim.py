#!/usr/bin/env python3
"""Measures reranking by MaxSim next to PyLate, on the same processors.

Makes a random checkpoint in the shape of answerai-colbert-small-v1 (12 layers, states of 384, 12
heads, vectors of 96) with a small vocabulary, in PyLate's format. For each query, the daemon and
PyLate encode the query and --documents documents and rank the documents by MaxSim, in turn. PyLate
encodes batches of each size in --batch, each an arm of its own. Reports documents per second, the
median over the rounds of the ratios, and the share of queries with the same ranking. Needs torch,
pylate and tritonclient in the running interpreter.

Queries have 4 to 16 words. Lengths of documents are drawn from a lognormal distribution, with a
median of --median words and sigma 0.6, between 4 and 200 words.
"""

import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
import torch
import tritonclient.grpc as triton
from pylate import models, rank
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import reporting
from overload import Daemon

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOKENIZERS = ROOT / "tests" / "goldens" / "tokenizers"
SHAPE = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12,
         "intermediate_size": 1536, "max_position_embeddings": 512}
VECTOR = 96


def draw_words(random, sizes):
    words = (TOKENIZERS / "corpus.txt").read_text().split()
    return [" ".join(random.choice(words, int(size))) for size in sizes]


def draw_query(random, options):
    sizes = np.exp(random.normal(np.log(options.median), 0.6, options.documents)).clip(4, 200)
    return draw_words(random, [random.integers(4, 17)])[0], draw_words(random, sizes)


class Sluice:
    def __init__(self, options, folder):
        self.daemon = Daemon(options.sluiced, folder, "--cpu.threads", str(options.threads))
        self.client = triton.InferenceServerClient(self.daemon.grpc)

    def scores(self, query, documents):
        tensors = []
        for name, texts in (("text_input", [query]), ("text_pair_input", documents)):
            tensors.append(triton.InferInput(name, [len(texts), 1], "BYTES"))
            tensors[-1].set_data_from_numpy(
                np.array([[text.encode()] for text in texts], np.object_))
        outputs = [triton.InferRequestedOutput("maxsim")]
        answer = self.client.infer("demo", tensors, outputs=outputs,
                                   parameters={"truncate": "right"})
        return answer.as_numpy("maxsim").ravel()


class PyLate:
    def __init__(self, model, batch):
        self.model, self.batch = model, batch

    def scores(self, query, documents):
        encode = {"batch_size": self.batch, "show_progress_bar": False}
        queries = self.model.encode([query], is_query=True, **encode)
        vectors = self.model.encode(documents, is_query=False, **encode)
        ranked, = rank.rerank(documents_ids=[list(range(len(documents)))],
                              queries_embeddings=queries, documents_embeddings=[vectors])
        scores = np.empty(len(documents), np.float32)
        for each in ranked:
            scores[each["id"]] = each["score"]
        return scores


def make_model(folder):
    """Writes the model's folder and returns PyLate's model of it."""
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "sep", "pad", "unk", "mask")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZERS / "bert_uncased.json"),
                                        **names)
    torch.manual_seed(1)
    config = BertConfig(**SHAPE, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    BertModel(config).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    model = models.ColBERT(str(folder / "base"), embedding_size=VECTOR, document_length=256,
                           query_length=32, device="cpu")
    model.save_pretrained(str(folder / "model"))
    return models.ColBERT(str(folder / "model"), device="cpu")


def same_order(first, second):
    """Returns whether both rank the documents equally, apart from nearly equal scores."""
    order = np.argsort(-first)
    return bool((np.diff(second[order]) < 1e-4).all())


def measure(options, arms, random):
    seconds = {name: [] for name in arms}
    same = []
    first_peer = [name for name in arms if name != "sluice"][0]
    for number in range(-1, options.rounds):  # The first round warms up.
        query, documents = draw_query(random, options)
        scores = {}
        for name in list(arms) if number % 2 else list(arms)[::-1]:
            began = time.perf_counter()
            scores[name] = arms[name].scores(query, documents)
            if number >= 0:
                seconds[name].append(time.perf_counter() - began)
        same.append(same_order(scores["sluice"], scores[first_peer]))
        print(f"round {number}", file=sys.stderr)
    return seconds, same


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluiced", required=True, help="path of the daemon")
    parser.add_argument("--documents", type=int, default=50, help="of a query")
    parser.add_argument("--median", type=float, default=60, help="words of a document")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32], help="of PyLate")
    parser.add_argument("--threads", type=int, default=1, help="of the daemon and of torch")
    parser.add_argument("--rounds", type=int, default=7)
    reporting.add_options(parser)
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) != options.threads:
        sys.exit(f"maxsim.py: run it with taskset on {options.threads} processors")
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        model = make_model(folder)
        sluice = Sluice(options, folder / "model")
        arms = {"sluice": sluice} | {f"pylate, batches of {batch}": PyLate(model, batch)
                                     for batch in options.batch}
        try:
            seconds, same = measure(options, arms, np.random.default_rng(1))
        finally:
            sluice.daemon.stop()
    report = reporting.heading("maxsim") | {
        "options": reporting.options_of(options, "sluiced"), "seconds": seconds, "same": same}
    lines = ["| arm | documents/s | sluice is faster by |", "|---|---|---|"]
    for name, of_arm in seconds.items():
        ratio = statistics.median(b / a for a, b in zip(seconds["sluice"], of_arm))
        lines.append(f"| {name} | {options.documents / statistics.median(of_arm):.1f} |"
                     f" {ratio:.2f} |")
    lines.append(f"\nQueries with the same ranking: {100 * statistics.mean(same):.0f} %.\n")
    reporting.write(options, report, "\n".join(lines))


if __name__ == "__main__":
    main()
