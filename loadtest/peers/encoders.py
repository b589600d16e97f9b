#!/usr/bin/env python3
"""Compares encoders on a CPU with those of other libraries: embeddings, or the scores of pairs.

    build/venv/bin/python loadtest/peers/encoders.py --python PYTHON --out FILE --table FILE

Sluice serves through gRPC to sluice-load on the last processor; the libraries run in process, at
their best batches, without a network. Each has one processor, the same one, and is suspended while
another is measured. A round has a closed loop of each and, unless --no-open, an open loop (Poisson)
at shares of what the quickest library bore; rounds are interleaved and their order rotates. PYTHON
has the packages of requirements-encoders.txt and, for those arms, of requirements-pytorch.txt;
--llama-python those of requirements-llama_native.txt. Every contender first computes a fixed text:
one whose answer is not near the f32 one of Sluice is left out.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import signal
import subprocess
import tempfile

import numpy as np
import servers
import tritonclient.grpc as grpcclient
from encoder_table import text_of
from encoder_traffic import TRAFFIC
from phases import interleaved

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FIXED = [101, 7, 2003, 30521, 1, 999, 5000, 102]  # as in serve/encoder_peer.py
LEAST_COSINE = 0.98
NAME = "encoder"
VOCABULARY = 30522
WARM_UP_S = 3.0
SLUICE = {"f32": ("f32", "none"), "bf16": ("bf16", "none"), "int8": ("auto", "int8")}
# Engine, precision and rule of batches.
PEERS = (("onnxruntime", "f32", "similar"), ("onnxruntime", "int8", "similar"),
         ("tei", "f32", "prefix"), ("openvino", "f32", "similar"),
         ("openvino", "bf16", "similar"), ("openvino", "int8", "similar"),
         ("ctranslate2", "f32", "similar"), ("ctranslate2", "int8", "similar"),
         ("pytorch", "f32", "similar"), ("pytorch", "bf16", "similar"),
         ("llama_cpp", "f32", "similar"), ("llama_cpp", "q8_0", "similar"))


class Sluice:
    def __init__(self, options, precision: str, scratch: pathlib.Path, stack):
        self._options, self._out = options, scratch / "phase.json"
        profile, quantization = SLUICE[precision]
        config = scratch / f"{precision}.yaml"
        config.write_text(f"models:\n  - name: {NAME}\n    path: {options.checkpoint}\n"
                          f"    quantization: {quantization}\n")
        address, self._metrics = servers.free_address(), servers.free_address()
        command = [str(options.build / "server" / "sluiced"), "--config", str(config),
                   "--server.grpc.address", address, "--server.metrics.address", self._metrics,
                   "--server.admin.address=", "--cpu.threads=1", f"--cpu.profile={profile}",
                   "--engine.batch.max-batch-tokens=1024"]
        self._server = servers.Server(command, address, options.processors[:1], 1,
                                      scratch / f"{precision}.log", NAME)
        stack.callback(self._server.stop)
        self._server.wait_ready(120)
        self.batch = None
        # As long as the libraries look for their best batch: plans that the warm-up had no time for
        # are prepared beside requests.
        self.closed(WARM_UP_S, 1)

    def answer(self) -> np.ndarray:
        with grpcclient.InferenceServerClient(self._server.address) as client:
            tensor = grpcclient.InferInput("input_ids", [1, len(FIXED)], "INT32")
            tensor.set_data_from_numpy(np.array([FIXED], np.int32))
            wanted = [grpcclient.InferRequestedOutput(self._output)]
            return client.infer(NAME, [tensor], outputs=wanted).as_numpy(self._output)[0]

    @property
    def _output(self) -> str:
        return "scores" if self._options.traffic.name == "rerank" else "embedding"

    def _load(self, seconds: float, seed: int, *load) -> dict:
        traffic, before = self._options.traffic, self._server.cpu_seconds()
        command = ["taskset", "-c", self._options.processors[-1],
                   self._options.build / "loadtest" / "load" / "sluice-load", "run", "--server",
                   self._server.address, "--metrics-url", self._metrics, "--model", NAME,
                   "--outputs", self._output, "--lengths", traffic.spec, "--cap", traffic.cap,
                   "--vocab", VOCABULARY, "--variants", 1 << 12, "--seed", seed, "--duration",
                   seconds, "--min-duration", seconds - 0.1, "--min-calls", 1, "--quiet", "--out",
                   self._out, *load]
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if ended.returncode > 1:
            raise RuntimeError(ended.stderr)
        phase = json.loads(self._out.read_text())["phases"][0]
        # The processor time is that of all answers, also of those after the last second.
        return phase | {"cpu_s_per_1000": 1000 * (self._server.cpu_seconds() - before) /
                        max(phase["outcomes"]["ok"], 1)}

    def closed(self, seconds: float, seed: int) -> dict:
        phase = self._load(seconds, seed, "--warm-up", 0, "--concurrency", 64)
        return {"per_s": phase["answered_per_s"], "cpu_s_per_1000": phase["cpu_s_per_1000"],
                "executed_efficiency": phase["server"]["executed_efficiency"]}

    def open(self, seconds: float, seed: int, rate: float, objective_ms: float) -> dict:
        phase = self._load(seconds, seed, "--warm-up", 0, "--rate", f"{rate:.2f}",
                           "--objective-ms", objective_ms, "--deadline-ms", 2 * objective_ms)
        return {"per_s": phase["answered_per_s"], "goodput_per_s": phase["goodput_per_s"],
                "within": phase["within_objective"], "p50_ms": phase["latency_ms"]["p50"],
                "p99_ms": phase["latency_ms"]["p99"], "cpu_s_per_1000": phase["cpu_s_per_1000"],
                "executed_efficiency": phase["server"]["executed_efficiency"]}

    def suspend(self) -> None:
        self._server.suspend()

    def resume(self) -> None:
        self._server.resume()


class Library:
    def __init__(self, options, engine: str, precision: str, rule: str, scratch: pathlib.Path,
                 stack):
        python = options.llama_python if engine == "llama_cpp" else options.python
        if python is None:
            raise servers.NotStarted("no --llama-python")
        log = stack.enter_context((scratch / f"{engine}-{precision}.log").open("w"))
        self._process = subprocess.Popen(
            [python, HERE / "serve" / "encoder_peer.py", "--engine",
             "onnxruntime" if engine == "tei" else engine, "--precision", precision,
             "--checkpoint", options.checkpoint, "--rule", rule, "--traffic",
             options.traffic.name], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, options.processors[:1]))
        stack.callback(self._process.kill)
        first = self._process.stdout.readline()
        if not first:
            lines = pathlib.Path(log.name).read_text().strip().splitlines()
            raise servers.NotStarted(lines[-1] if lines else "no output")
        told = json.loads(first)
        self.batch, self._answer = told["batch"], np.array(told["embedding"])

    def answer(self) -> np.ndarray:
        return self._answer

    def _ask(self, **asked) -> dict:
        self._process.stdin.write(json.dumps(asked) + "\n")
        return json.loads(self._process.stdout.readline())

    def closed(self, seconds: float, seed: int) -> dict:
        return self._ask(seconds=seconds, seed=seed)

    def open(self, seconds: float, seed: int, rate: float, objective_ms: float) -> dict:
        return self._ask(seconds=seconds, seed=seed, rate=rate, objective_ms=objective_ms)

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
        f"{peer[0]} {peer[1]}": (Library, peer) for peer in PEERS}
    reference = None
    for name, (kind, arguments) in makers.items():
        if options.only and not any(each in name for each in options.only):
            continue
        try:
            contender = kind(options, *arguments, scratch, stack)
        except (servers.NotStarted, OSError) as error:
            left_out[name] = str(error)[:200]
            print(name, "is left out:", error, flush=True)
            continue
        answer = contender.answer()
        reference = answer if reference is None else reference
        # A single score has no direction; its difference is told by the cosine of 1 and it.
        told[name] = {"cosine": cosine(np.append(reference, 1), np.append(answer, 1)),
                      "batch": contender.batch}
        contender.suspend()
        if told[name]["cosine"] < LEAST_COSINE:
            left_out[name] = f"its answer has a cosine of {told[name]['cosine']:.4f} to f32"
            continue
        started[name] = contender
        print(name, told[name], flush=True)
    return started, told, left_out


def run(contender, work) -> dict:
    contender.resume()
    try:
        return work(contender)
    finally:
        contender.suspend()


def measure(options) -> dict:
    rounds: dict[str, list[dict]] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        started, told, left_out = start_all(options, pathlib.Path(folder), stack)
        for name, contender in started.items():
            stack.callback(contender.resume)
            rounds[name] = []
        rates: list[float] = []
        for turn, order in enumerate(interleaved(list(started), options.rounds)):
            for name in order:
                rounds[name].append({"closed": run(
                    started[name], lambda it: it.closed(options.seconds, turn + 1))})
            if options.no_open:
                continue
            if not rates:
                best = max((made[0]["closed"]["per_s"] for name, made in rounds.items()
                            if not name.startswith("sluice")), default=0) or max(
                    made[0]["closed"]["per_s"] for made in rounds.values())
                rates = [share * best for share in options.shares]
            for name in order:
                rounds[name][-1]["open"] = [run(
                    started[name], lambda it, rate=rate: it.open(
                        options.seconds, turn + 1, rate, options.objective_ms))
                    for rate in rates]
            print(f"round {turn + 1} of {options.rounds}", flush=True)
    processor = next(line.split(":")[1].strip() for line in
                     pathlib.Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line)
    return {"benchmark": "encoders", "date": f"{datetime.date.today()}", "processor": processor,
            "size": options.size, "traffic": options.traffic.name, "seconds": options.seconds,
            "objective_ms": options.objective_ms, "rates": rates, "rounds": rounds, "told": told,
            "left_out": left_out}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    path = pathlib.Path
    parser.add_argument("--python", type=path, required=True)
    parser.add_argument("--llama-python", type=path, help="interpreter with llama-cpp-python")
    parser.add_argument("--build", type=path, default=ROOT / "build" / "release")
    parser.add_argument("--size", choices=("minilm", "bert_base"), default="minilm")
    parser.add_argument("--traffic", choices=TRAFFIC, default="embedding")
    parser.add_argument("--checkpoints", type=path, default=ROOT / "build" / "peers" / "encoders",
                        help="folder for the random models")
    parser.add_argument("--only", nargs="+", help="contenders whose names hold one of these")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each load of a round")
    parser.add_argument("--no-open", action="store_true", help="only the closed loop")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 0.9],
                        help="loads of the open loop, over what the quickest library bore")
    parser.add_argument("--objective-ms", type=float, default=100)
    parser.add_argument("--out", type=path)
    parser.add_argument("--table", type=path)
    options = parser.parse_args()
    options.processors = sorted(os.sched_getaffinity(0))
    options.traffic = TRAFFIC[options.traffic]
    labels = 1 if options.traffic.name == "rerank" else 0
    options.checkpoint = options.checkpoints.resolve() / f"{options.size}_{options.traffic.name}"
    if not (options.checkpoint / "config.json").exists():
        subprocess.run([options.python, HERE / "encoder.py", options.checkpoint, "--size",
                        options.size, "--labels", str(labels)], check=True)
    made = measure(options)
    if options.out:
        options.out.write_text(json.dumps(made, indent=1) + "\n")
    text = text_of(made)
    if options.table:
        options.table.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
