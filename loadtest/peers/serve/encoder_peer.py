#!/usr/bin/env python3
"""Embeds texts with a library, in process, and tells how many a second.

Reads lines "SECONDS SEED" and answers each with the rate. The first line of its output is the
embedding of a fixed text, as JSON, to compare with that of others. Texts are sorted by length
within each 256 of them, and computed in the batches of the size that was quickest at start.
"""

import argparse
import json
import pathlib
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from encoder import Encoder, lengths  # noqa: E402

BATCHES = (1, 4, 8, 16, 32)
WINDOW = 256
FIXED = [101, 7, 2003, 30521, 1, 999, 5000, 102]


def onnxruntime_of(checkpoint: pathlib.Path, precision: str, threads: int):
    import onnxruntime
    from encoder_onnx import export
    path = export(checkpoint, fused=True)
    if precision == "int8":
        # The library's tools import a module of theirs by the name of one in this folder.
        sys.path.remove(str(pathlib.Path(__file__).resolve().parent))
        from onnxruntime.quantization import QuantType, quantize_dynamic
        quantized = checkpoint / "fused_int8.onnx"
        if not quantized.exists():
            quantize_dynamic(path, quantized, weight_type=QuantType.QInt8, per_channel=True,
                             extra_options={"DefaultTensorType": 1})  # FLOAT
        path = quantized
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda ids, mask: session.run(None, {"ids": ids, "mask": mask})[0]


def openvino_of(checkpoint: pathlib.Path, precision: str, threads: int):
    import openvino
    from encoder_onnx import export
    core = openvino.Core()
    model = core.read_model(export(checkpoint, fused=False))
    if precision == "int8":
        import nncf
        random = np.random.default_rng(5)
        texts = [random.integers(0, Encoder().vocab, (1, n)) for n in lengths(64, 5)]
        data = nncf.Dataset([{"ids": ids, "mask": np.ones_like(ids)} for ids in texts])
        model = nncf.quantize(model, data, model_type=nncf.ModelType.TRANSFORMER,
                              subset_size=len(texts))
    elif precision == "int8_weights":
        import nncf
        model = nncf.compress_weights(model)
    hint = "bf16" if precision == "bf16" else "f32"
    compiled = core.compile_model(model, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": hint,
        "PERFORMANCE_HINT": "THROUGHPUT"})
    return lambda ids, mask: compiled({"ids": ids, "mask": mask})[0]


def ctranslate2_of(checkpoint: pathlib.Path, precision: str, threads: int):
    import ctranslate2
    from encoder_ctranslate2 import export
    encoder = ctranslate2.Encoder(str(export(checkpoint)), intra_threads=threads,
                                  compute_type={"f32": "float32"}.get(precision, precision))

    def run(ids, mask):
        counts = mask.sum(axis=1)
        made = encoder.forward_batch([row[:n].tolist() for row, n in zip(ids, counts, strict=True)])
        states = np.asarray(made.last_hidden_state)
        return (states * mask[:, :, None]).sum(axis=1) / counts[:, None]

    return run


ENGINES = {"onnxruntime": onnxruntime_of, "openvino": openvino_of, "ctranslate2": ctranslate2_of}


def embed_window(run, texts: list[np.ndarray], batch: int) -> None:
    texts = sorted(texts, key=len)
    for first in range(0, len(texts), batch):
        some = texts[first:first + batch]
        ids = np.zeros((len(some), len(some[-1])), np.int64)
        mask = np.zeros_like(ids)
        for row, text in enumerate(some):
            ids[row, :len(text)], mask[row, :len(text)] = text, 1
        run(ids, mask)


def rate(run, seconds: float, seed: int, batch: int) -> float:
    random = np.random.default_rng(seed)
    windows = [[random.integers(0, Encoder().vocab, n) for n in lengths(WINDOW, seed + i)]
               for i in range(8)]
    begun, done = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        embed_window(run, windows[done % len(windows)], batch)
        done += 1
    return done * WINDOW / (time.monotonic() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--checkpoint", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print what is no answer
    run = ENGINES[options.engine](options.checkpoint, options.precision, options.threads)
    fixed = np.array([FIXED])
    embedding = np.asarray(run(fixed, np.ones_like(fixed)))[0].tolist()
    rates = {batch: rate(run, 0.5, 1, batch) for batch in BATCHES}
    best = max(rates, key=rates.get)
    print(json.dumps({"embedding": embedding, "batch": best}), file=answers,
          flush=True)
    for line in sys.stdin:
        seconds, seed = line.split()
        print(rate(run, float(seconds), int(seed), best), file=answers, flush=True)


if __name__ == "__main__":
    main()
