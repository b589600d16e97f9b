#!/usr/bin/env python3
"""Measures a DeBERTa-v3-small classifier next to onnxruntime and PyTorch, on the same processors.

Makes a random checkpoint in the shape of DeBERTa-v3-small (6 layers, states of 768, 12 heads, 256
buckets) with a small vocabulary and three labels, and exports it to ONNX. The arms answer the same
lists of texts in turn: the daemon in f32 and in int8, onnxruntime with the exported model in f32
and in int8 (dynamic quantization), and transformers with PyTorch in f32. The peers sort the texts
of a list by length and pad batches of --batch texts, and each batch size in --batch is an arm of
its own, so that each peer's best one can be taken. Reports texts per second, the median over the
rounds of the ratios to the daemon's arm of the same precision, and the largest difference of the
logits from PyTorch's. Needs torch, transformers 5.16.1, onnx, onnxscript, onnxruntime and
tritonclient in the running interpreter.

Lengths of texts are drawn from a lognormal distribution, with a median of --median tokens and sigma
0.7, between 4 and 512 tokens.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

import numpy as np
import onnxruntime
import torch
import tritonclient.grpc as triton
from onnxruntime.quantization import QuantType, quantize_dynamic
from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

import reporting
from overload import Daemon

SHAPE = {"hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12,
         "intermediate_size": 3072, "max_position_embeddings": 512, "relative_attention": True,
         "position_buckets": 256, "max_relative_positions": -1, "pos_att_type": ["p2c", "c2p"],
         "norm_rel_ebd": "layer_norm", "share_att_key": True, "position_biased_input": False,
         "type_vocab_size": 0, "vocab_size": 1000, "num_labels": 3}
OPSET = 18


def draw_lists(random, options):
    sizes = np.exp(random.normal(np.log(options.median), 0.7, options.texts)).clip(4, 512)
    return [random.integers(4, SHAPE["vocab_size"], int(size)) for size in sizes]


class Sluice:
    def __init__(self, options, folder):
        self.daemon = Daemon(options.sluiced, folder, "--cpu.threads", str(options.threads))
        self.client = triton.InferenceServerClient(self.daemon.grpc)

    def score(self, rows):
        ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
        for row, tokens in zip(ids, rows):
            row[:len(tokens)] = tokens
        lengths = np.array([[len(tokens)] for tokens in rows], np.int32)
        tensors = []
        for name, values in (("input_ids", ids), ("input_lengths", lengths)):
            tensors.append(triton.InferInput(name, values.shape, "INT32"))
            tensors[-1].set_data_from_numpy(values)
        answer = self.client.infer("demo", tensors, outputs=[triton.InferRequestedOutput("scores")])
        return answer.as_numpy("scores")


class Padded:
    """Calls run(ids, mask) for padded batches of rows of similar lengths."""

    def __init__(self, run, batch):
        self.run, self.batch = run, batch

    def score(self, rows):
        order = np.argsort([len(tokens) for tokens in rows])
        scores = np.empty((len(rows), SHAPE["num_labels"]), np.float32)
        for first in range(0, len(rows), self.batch):
            chosen = order[first:first + self.batch]
            ids = np.zeros((len(chosen), max(len(rows[i]) for i in chosen)), np.int64)
            mask = np.zeros_like(ids)
            for row, i in enumerate(chosen):
                ids[row, :len(rows[i])] = rows[i]
                mask[row, :len(rows[i])] = 1
            scores[chosen] = self.run(ids, mask)
        return scores


def of_torch(model):
    def run(ids, mask):
        with torch.inference_mode():
            return model(input_ids=torch.from_numpy(ids),
                         attention_mask=torch.from_numpy(mask)).logits.numpy()
    return run


def of_onnx(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])

    def run(ids, mask):
        return session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
    return run


def export(model, path):
    """Writes the model as ONNX with free sizes of batch and length."""
    ids = torch.full((2, 9), 5)
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    torch.onnx.export(model, (), str(path), dynamo=True, opset_version=OPSET, external_data=False,
                      kwargs={"input_ids": ids, "attention_mask": torch.ones_like(ids)},
                      dynamic_shapes={"input_ids": sizes, "attention_mask": sizes})


def quantized(folder):
    """Returns a copy of the folder whose projections are computed in int8."""
    copy = folder.with_name("int8")
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"sluice": {"quantization": "int8"}}))
    return copy


def make_arms(options, folder):
    torch.manual_seed(1)
    model = DebertaV2ForSequenceClassification(DebertaV2Config(**SHAPE)).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data *= 3  # The initial weights barely tell texts apart.
    model.save_pretrained(folder / "model")
    export(model, folder / "f32.onnx")
    quantize_dynamic(folder / "f32.onnx", folder / "int8.onnx", weight_type=QuantType.QInt8)
    arms = {"sluice f32": Sluice(options, folder / "model"),
            "sluice int8": Sluice(options, quantized(folder / "model"))}
    for batch in options.batch:
        arms[f"torch f32, batches of {batch}"] = Padded(of_torch(model), batch)
        for precision in ("f32", "int8"):
            run = of_onnx(folder / f"{precision}.onnx", options.threads)
            arms[f"onnxruntime {precision}, batches of {batch}"] = Padded(run, batch)
    return arms


def measure(options, arms, random):
    seconds = {name: [] for name in arms}
    differences = {name: 0.0 for name in arms}
    for number in range(-1, options.rounds):  # The first round warms up.
        rows = draw_lists(random, options)
        scores = {}
        for name in list(arms) if number % 2 else list(arms)[::-1]:
            began = time.perf_counter()
            scores[name] = arms[name].score(rows)
            if number >= 0:
                seconds[name].append(time.perf_counter() - began)
        exact = scores[f"torch f32, batches of {options.batch[0]}"]
        for name, values in scores.items():
            differences[name] = max(differences[name], float(np.abs(values - exact).max()))
        print(f"round {number}", file=sys.stderr)
    return seconds, differences


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sluiced", required=True, help="path of the daemon")
    parser.add_argument("--texts", type=int, default=64, help="of a request")
    parser.add_argument("--median", type=float, default=60, help="tokens of a text")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32], help="of the peers")
    parser.add_argument("--threads", type=int, default=1, help="of all arms")
    parser.add_argument("--rounds", type=int, default=5)
    reporting.add_options(parser)
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) != options.threads:
        sys.exit(f"deberta.py: run it with taskset on {options.threads} processors")
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as made:
        arms = make_arms(options, pathlib.Path(made))
        try:
            seconds, differences = measure(options, arms, np.random.default_rng(1))
        finally:
            for arm in arms.values():
                if isinstance(arm, Sluice):
                    arm.daemon.stop()
    report = reporting.heading("deberta") | {
        "options": reporting.options_of(options, "sluiced"), "seconds": seconds,
        "differences": differences}
    lines = ["| arm | texts/s | sluice is faster by | largest difference |", "|---|---|---|---|"]
    for name, of_arm in seconds.items():
        own = seconds["sluice int8" if "int8" in name else "sluice f32"]
        ratio = statistics.median(b / a for a, b in zip(own, of_arm))
        lines.append(f"| {name} | {options.texts / statistics.median(of_arm):.1f} | {ratio:.2f} |"
                     f" {differences[name]:.1e} |")
    reporting.write(options, report, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
