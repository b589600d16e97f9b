#!/usr/bin/env python3
"""Compares encoders on a CPU with those of other libraries: embeddings, or scores of pairs.

    build/venv/bin/python loadtest/peers/encoders.py --python PYTHON --out FILE --table FILE

Sluice and Triton serve through gRPC to sluice-load on the last processor. The libraries run in
process, at their best batches, without a network. All contenders use the same processor, and each
is suspended while another is measured. A round has a closed loop of each and, unless --no-open, an
open loop (Poisson) at shares of the fastest library's closed-loop rate. Rounds are interleaved and
their order rotates. PYTHON has the packages of requirements-encoders.txt and, for PyTorch's arms,
of requirements-pytorch.txt; --llama-python has those of requirements-llama_native.txt, and
--triton-python has those of requirements-triton.txt. --isa avx2 restricts the contenders to AVX2
(isa.py); llama.cpp must be built for that. Every contender first computes a fixed text. If its
answer is not close to Sluice's in f32, the contender is left out.
"""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

import contest
import encoder_contenders
import isa
import numpy as np
from encoder_table import text_of
from encoder_traffic import TRAFFIC
from phases import interleaved

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent))
import reporting  # noqa: E402

LEAST_COSINE = 0.98


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def start_all(options, scratch: pathlib.Path, stack) -> tuple[dict, dict, dict]:
    """Returns the contenders by name, the reported properties of each, and the reasons why others
    are left out.
    """
    started, told, left_out = contest.start_all(
        encoder_contenders.makers(options, scratch, stack), options.only,
        lambda contender: {"answer": contender.answer(), "batch": contender.batch})
    reference = next(iter(told.values()))["answer"] if told else None
    for name, of in told.items():
        # A single score has no direction, so the cosine of (1, score) measures its difference.
        of["cosine"] = cosine(np.append(reference, 1), np.append(of.pop("answer"), 1))
        print(f"{name}: {of}", flush=True)
        if of["cosine"] < LEAST_COSINE:
            left_out[name] = f"its answer has a cosine of {of['cosine']:.4f} to f32"
            del started[name]
    return started, told, left_out


def measure(options) -> dict:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        started, told, left_out = start_all(options, pathlib.Path(folder), stack)
        rounds = {name: [] for name in started}
        rates: list[float] = []
        for turn, order in enumerate(interleaved(list(started), options.rounds)):
            contest.in_turn(order, started, left_out, lambda name, it: rounds[name].append(
                {"closed": it.closed(options.seconds, turn + 1)}))
            if options.no_open:
                continue
            if not rates:
                best = max((rounds[name][0]["closed"]["per_s"] for name in started
                            if not name.startswith("sluice")), default=0) or max(
                    rounds[name][0]["closed"]["per_s"] for name in started)
                rates = [share * best for share in options.shares]
            contest.in_turn(order, started, left_out, lambda name, it: rounds[name][-1].update(
                {"open": [it.open(options.seconds, turn + 1, rate, options.objective_ms)
                          for rate in rates]}))
            print(f"round {turn + 1} of {options.rounds}", flush=True)
    return reporting.heading("encoders") | {
        "size": options.size, "isa": options.isa, "traffic": options.traffic.name,
        "seconds": options.seconds,
        "objective_ms": options.objective_ms, "rates": rates, "told": told, "left_out": left_out,
        "rounds": {name: rounds[name] for name in started}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    path = pathlib.Path
    parser.add_argument("--python", type=path, required=True)
    parser.add_argument("--llama-python", type=path, help="interpreter with llama-cpp-python")
    parser.add_argument("--triton-python", type=path, help="interpreter with nvidia-pytriton")
    parser.add_argument("--build", type=path, default=ROOT / "build" / "release")
    parser.add_argument("--size", choices=("minilm", "bert_base"), default="minilm")
    parser.add_argument("--traffic", choices=TRAFFIC, default="embedding")
    parser.add_argument("--checkpoints", type=path, default=ROOT / "build" / "peers" / "encoders",
                        help="folder for the random models")
    parser.add_argument("--only", nargs="+", help="contenders whose names contain one of these")
    parser.add_argument("--isa", choices=isa.IN_WORDS, default=isa.BEST,
                        help="instructions of all contenders; those that cannot be restricted are "
                        "left out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="per load and round")
    parser.add_argument("--no-open", action="store_true", help="only the closed loop")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 0.9],
                        help="loads of the open loop / the fastest library's closed-loop rate")
    parser.add_argument("--objective-ms", type=float, default=100)
    reporting.add_options(parser)
    options = parser.parse_args()
    options.processors = sorted(os.sched_getaffinity(0))
    options.traffic = TRAFFIC[options.traffic]
    labels = 1 if options.traffic.name == "rerank" else 0
    options.checkpoint = options.checkpoints.resolve() / f"{options.size}_{options.traffic.name}"
    if not (options.checkpoint / "config.json").exists():
        subprocess.run([options.python, HERE / "encoder.py", options.checkpoint, "--size",
                        options.size, "--labels", str(labels)], check=True)
    made = measure(options)
    reporting.write(options, made, text_of(made))


if __name__ == "__main__":
    main()
