#!/usr/bin/env python3
"""Compares the embeddings of an encoder of MiniLM's size with those of other libraries.

    build/venv/bin/python loadtest/peers/embeddings.py --python PYTHON --out FILE --table FILE

Sluice serves through gRPC, in a closed loop of sluice-load on the last processor; the libraries run
in process, at their best batches. Each has one processor, the same one, and is suspended while
another is measured. Rounds are interleaved and their order rotates. PYTHON has the packages of
requirements-encoders.txt. Every contender first embeds a fixed text: one whose embedding is not
near the f32 one of Sluice is left out.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import signal
import statistics
import subprocess
import tempfile

import numpy as np
import servers
import tritonclient.grpc as grpcclient
from phases import interleaved

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FIXED = [101, 7, 2003, 30521, 1, 999, 5000, 102]  # as in serve/encoder_peer.py
LEAST_COSINE = 0.98
NAME = "encoder"
SLUICE = {"f32": ("f32", "none"), "bf16": ("auto", "none"), "int8": ("auto", "int8")}
PEERS = {"onnxruntime": ("f32", "int8"), "openvino": ("f32", "bf16", "int8_weights", "int8"),
         "ctranslate2": ("f32", "int8")}


class Sluice:
    def __init__(self, options, precision: str, scratch: pathlib.Path, stack):
        self._options, self._out = options, scratch / "phase.json"
        profile, quantization = SLUICE[precision]
        config = scratch / f"{precision}.yaml"
        config.write_text(f"models:\n  - name: {NAME}\n    path: {options.checkpoint}\n"
                          f"    quantization: {quantization}\n")
        address = servers.free_address()
        command = [str(options.build / "server" / "sluiced"), "--config", str(config),
                   "--server.grpc.address", address, "--server.metrics.address",
                   servers.free_address(), "--server.admin.address=", "--cpu.threads=1",
                   f"--cpu.profile={profile}", "--engine.batch.max-batch-tokens=1024"]
        self._server = servers.Server(command, address, options.processors[:1], 1,
                                      scratch / f"{precision}.log", NAME)
        stack.callback(self._server.stop)
        self._server.wait_ready(120)

    def embedding(self) -> np.ndarray:
        with grpcclient.InferenceServerClient(self._server.address) as client:
            tensor = grpcclient.InferInput("input_ids", [1, len(FIXED)], "INT32")
            tensor.set_data_from_numpy(np.array([FIXED], np.int32))
            wanted = [grpcclient.InferRequestedOutput("embedding")]
            return client.infer(NAME, [tensor], outputs=wanted).as_numpy("embedding")[0]

    def rate(self, seconds: float, seed: int) -> float:
        command = ["taskset", "-c", str(self._options.processors[-1]),
                   self._options.build / "loadtest" / "load" / "sluice-load", "run", "--server",
                   self._server.address, "--model", NAME, "--outputs", "embedding", "--lengths",
                   "lognormal:24:0.8", "--cap", 256, "--vocab", 30522, "--variants", 1 << 12,
                   "--concurrency", 64, "--seed", seed, "--warm-up", 0.5, "--duration", seconds,
                   "--min-duration", seconds - 0.1, "--min-calls", 1, "--quiet", "--out", self._out]
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if ended.returncode > 1:
            raise RuntimeError(ended.stderr)
        return json.loads(self._out.read_text())["phases"][0]["answered_per_s"]

    def suspend(self) -> None:
        self._server.suspend()

    def resume(self) -> None:
        self._server.resume()


class Library:
    def __init__(self, options, engine: str, precision: str, scratch: pathlib.Path, stack):
        log = stack.enter_context((scratch / f"{engine}-{precision}.log").open("w"))
        self._process = subprocess.Popen(
            [options.python, HERE / "serve" / "encoder_peer.py", "--engine", engine, "--precision",
             precision, "--checkpoint", options.checkpoint], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, options.processors[:1]))
        stack.callback(self._process.kill)
        first = self._process.stdout.readline()
        if not first:
            raise servers.NotStarted(pathlib.Path(log.name).read_text()[-300:])
        told = json.loads(first)
        self.batch, self._embedding = told["batch"], np.array(told["embedding"])

    def embedding(self) -> np.ndarray:
        return self._embedding

    def rate(self, seconds: float, seed: int) -> float:
        self._process.stdin.write(f"{seconds} {seed}\n")
        return float(self._process.stdout.readline())

    def suspend(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def start_all(options, scratch: pathlib.Path, stack) -> tuple[dict, dict, dict]:
    """Returns the contenders by name, what is told of each, and those left out."""
    started, told, left_out = {}, {}, {}
    makers = {f"sluice {each}": (Sluice, (each,)) for each in SLUICE} | {
        f"{engine} {each}": (Library, (engine, each))
        for engine, precisions in PEERS.items() for each in precisions}
    reference = None
    for name, (kind, arguments) in makers.items():
        try:
            contender = kind(options, *arguments, scratch, stack)
        except (servers.NotStarted, OSError) as error:
            left_out[name] = str(error)
            continue
        embedding = contender.embedding()
        reference = embedding if reference is None else reference
        told[name] = {"cosine": cosine(reference, embedding),
                      "batch": getattr(contender, "batch", None)}
        contender.suspend()
        if told[name]["cosine"] < LEAST_COSINE:
            left_out[name] = f"its embedding has a cosine of {told[name]['cosine']:.4f} to f32"
            continue
        started[name] = contender
        print(name, told[name], flush=True)
    return started, told, left_out


def measure(options) -> dict:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        started, told, left_out = start_all(options, pathlib.Path(folder), stack)
        rates = {name: [] for name in started}
        for turn, order in enumerate(interleaved(list(started), options.rounds)):
            for name in order:
                started[name].resume()
                rates[name].append(started[name].rate(options.seconds, turn + 1))
                started[name].suspend()
        for contender in started.values():
            contender.resume()
    processor = next(line.split(":")[1].strip() for line in
                     pathlib.Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line)
    return {"benchmark": "embeddings", "date": f"{datetime.date.today()}", "processor": processor,
            "rounds": options.rounds, "seconds": options.seconds, "rates": rates, "told": told,
            "left_out": left_out}


def table(made: dict) -> str:
    ours = [name for name in made["rates"] if name.startswith("sluice")]
    lines = [
        "# Embeddings of an encoder of MiniLM's size",
        "",
        f"{made['date']}, {made['processor']}, one processor each. {made['rounds']} interleaved",
        f"rounds of {made['seconds']:g} s: median, least and largest texts a second, and Sluice's",
        "rate over it, the median of the rounds' ratios. Sluice serves through gRPC; the libraries",
        "run in process with the given batch. Cosine: of one text's embedding to Sluice's in f32.",
        "",
        "| contender | batch | texts/s | cosine | " + " | ".join(
            f"{each} over it" for each in ours) + " |",
        "|---|---|---|---|" + "---|" * len(ours),
    ]
    for name, rates in made["rates"].items():
        over = [statistics.median(a / b for a, b in zip(made["rates"][each], rates, strict=True))
                for each in ours]
        told = made["told"][name]
        lines.append(f"| {name} | {told['batch'] or ''} | {statistics.median(rates):.0f} "
                     f"({min(rates):.0f} to {max(rates):.0f}) | {told['cosine']:.5f} | "
                     + " | ".join(f"{each:.2f}" for each in over) + " |")
    lines += [f"\n{name} is left out: {why}" for name, why in made["left_out"].items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    path = pathlib.Path
    parser.add_argument("--python", type=path, required=True)
    parser.add_argument("--build", type=path, default=ROOT / "build" / "release")
    parser.add_argument("--checkpoint", type=path, default=ROOT / "build" / "peers" / "encoder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--out", type=path)
    parser.add_argument("--table", type=path)
    options = parser.parse_args()
    options.processors = sorted(os.sched_getaffinity(0))
    options.checkpoint = options.checkpoint.resolve()
    if not (options.checkpoint / "config.json").exists():
        subprocess.run([options.python, HERE / "encoder.py", options.checkpoint], check=True)
    made = measure(options)
    if options.out:
        options.out.write_text(json.dumps(made, indent=1) + "\n")
    text = table(made)
    if options.table:
        options.table.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
