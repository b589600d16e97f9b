#!/usr/bin/env python3
"""Compares decoding and scoring on a CPU with other libraries, each at the precisions that are
typical for it.

    build/venv/bin/python loadtest/peers/decoders.py --llama-python PYTHON --python PYTHON \\
      --out FILE --table FILE

The model is a Llama of 12 layers, d 768 (134M parameters, bf16), or with `--model experts` a
Qwen3-MoE. Each contender has one processor. Sluice serves through gRPC to sluice-load on the last
processor; the libraries run in process. Each is suspended while another is measured. Rounds are
interleaved and their order rotates. --llama-python has the packages of
requirements-llama_native.txt, built for the machine; --python has the packages of
requirements-encoders.txt.
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import contest
import isa
import numpy as np
import servers
import tritonclient.grpc as grpcclient
from contest import Library
from decode_work import FIXED, LONGEST, NEW, PROMPT, SHORTEST, TEXT
from phases import interleaved

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent))
import reporting  # noqa: E402
import sluice_load  # noqa: E402

NAME = "llama"
VOCABULARY = 32000
# For each model, its words in the table and its shape in checkpoint.py.
MODELS = {
    "llama": ("a Llama of 12 layers, d 768", "hidden=768, intermediate=2048, layers=12, heads=12, "
              "kv_heads=12, dtype='bfloat16', positions=640"),
    "experts": ("a Qwen3-MoE of 8 layers, d 768, 4 of 32 experts of width 512",
                "hidden=768, intermediate=512, layers=8, heads=12, kv_heads=4, experts=32, "
                "chosen=4, dtype='bfloat16', positions=640"),
}
SLUICE = {"bf16": ("bf16", "none"), "int8": ("auto", "int8"), "int4": ("auto", "int4")}
PEERS = (("llama_cpp", "bf16"), ("llama_cpp", "q8_0"), ("llama_cpp", "q4_0"),
         ("onnxruntime", "f32"), ("onnxruntime", "int8"), ("openvino", "bf16"),
         ("openvino", "int8"), ("ctranslate2", "int8"))
WORK = {"decode 1": ("one stream, generated tokens/s", {"work": "decode", "streams": 1}),
        "decode 8": ("eight streams, generated tokens/s", {"work": "decode", "streams": 8}),
        "score": (f"the next token of prompts of {SHORTEST} to {LONGEST} tokens, prompt tokens/s",
                  {"work": "score", "lengths": [SHORTEST, LONGEST]}),
        "score long": (f"the next token of prompts of {TEXT} tokens, prompt tokens/s",
                       {"work": "score", "lengths": [TEXT, TEXT]})}
SCORING = 16  # concurrent calls


class Sluice:
    def __init__(self, options, precision: str, scratch: pathlib.Path, stack):
        self._options, self._out = options, scratch / "phase.json"
        profile, quantization = isa.sluice(options.isa, SLUICE)[precision]
        head = "" if quantization == "none" else "    quantize_head: true\n"
        config = scratch / f"{precision}.yaml"
        config.write_text(f"models:\n  - name: {NAME}\n    path: {options.checkpoint}\n"
                          f"    quantization: {quantization}\n{head}    kv_dtype: bf16\n")
        address = servers.free_address()
        command = [str(options.build / "server" / "sluiced"), "--config", str(config),
                   "--server.grpc.address", address, "--server.metrics.address",
                   servers.free_address(), "--server.admin.address=", "--cpu.threads=1",
                   f"--cpu.profile={profile}", "--engine.batch.max-batch-tokens=1024",
                   "--engine.kv.prefix-reuse=false"]
        self._server = servers.Server(command, address, options.processors[:1], 1,
                                      scratch / f"{precision}.log", NAME)
        stack.callback(self._server.stop)
        self._server.wait_ready(180)
        self.decodes = True
        # Plans that the warm-up did not finish are prepared while requests run.
        for _, work in WORK.values():
            self.rate(work, options.seconds, 1)

    def first(self) -> tuple[int, float]:
        with grpcclient.InferenceServerClient(self._server.address) as client:
            tensor = grpcclient.InferInput("input_ids", [1, len(FIXED)], "INT32")
            tensor.set_data_from_numpy(np.array([FIXED], np.int32))
            result = client.infer(NAME, [tensor], parameters={"max_tokens": 1})
            return (int(result.as_numpy("output_ids")[0, 0]),
                    float(result.as_numpy("logprobs")[0, 0]))

    def rate(self, work: dict, seconds: float, seed: int) -> float:
        if work["work"] == "decode":
            lengths, new, at_once, tokens = f"fixed:{PROMPT}", NEW, work["streams"], float(NEW)
        else:
            least, most = work["lengths"]
            lengths, new, at_once = f"uniform:{least}:{most}", 1, SCORING
            tokens = (least + most) / 2
        command = ["taskset", "-c", self._options.processors[-1],
                   self._options.build / "loadtest" / "load" / "sluice-load", "run", "--server",
                   self._server.address, "--model", NAME, "--outputs", "output_ids", "--parameter",
                   "ignore_eos", "true", "--cap", TEXT, "--vocab", VOCABULARY, "--variants",
                   1 << 12, "--seed", seed, "--warm-up", 0.5, "--duration", seconds,
                   "--min-duration", seconds - 0.1, "--min-calls", 1, "--quiet", "--lengths",
                   lengths, "--max-tokens", new, "--concurrency", at_once]
        phase = sluice_load.report_of(command, self._out)["phases"][0]
        latency_ms = phase["latency_ms"]["mean"]
        if not latency_ms:
            raise RuntimeError(f"no call was answered within {seconds:g} s; raise --seconds")
        # By Little's law. A count of the few calls that end within the seconds would be coarse.
        return tokens * at_once * 1e3 / latency_ms

    def suspend(self) -> None:
        self._server.suspend()

    def resume(self) -> None:
        self._server.resume()


class LibraryDecoder(Library):
    def __init__(self, options, engine: str, precision: str, scratch: pathlib.Path, stack):
        python = options.llama_python if engine == "llama_cpp" else options.python
        super().__init__(
            python, HERE / "serve" / "decoder_peer.py",
            ["--engine", engine, "--precision", precision, "--checkpoint", options.checkpoint],
            options.processors[0], scratch / f"{engine}-{precision}.log", stack,
            isa.environment(options.isa, engine, precision, python))
        self.decodes = self.told["decodes"]

    def first(self) -> tuple[int, float]:
        return self.told["token"], self.told["logprob"]

    def rate(self, work: dict, seconds: float, seed: int) -> float:
        return self.ask(**work, seconds=seconds, seed=seed)


def start_all(options, scratch: pathlib.Path, stack) -> tuple[dict, dict, dict]:
    makers = {f"sluice {each}": lambda each=each: Sluice(options, each, scratch, stack)
              for each in isa.sluice(options.isa, SLUICE)} | {
        f"{peer[0]} {peer[1]}": lambda peer=peer: LibraryDecoder(options, *peer, scratch, stack)
        for peer in PEERS}
    return contest.start_all(makers, options.only, lambda contender: dict(
        zip(("token", "logprob"), contender.first(), strict=True)))


def measure(options) -> dict:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        started, told, left_out = start_all(options, pathlib.Path(folder), stack)
        rates: dict[str, dict[str, list[float]]] = {work: {} for work in WORK}
        for turn, order in enumerate(interleaved(list(started), options.rounds)):
            for work, (_, asked) in WORK.items():
                for name in order:
                    if asked["work"] == "decode" and not started[name].decodes:
                        continue
                    with contest.turn_of(started[name]) as contender:
                        rates[work].setdefault(name, []).append(
                            contender.rate(asked, options.seconds, turn + 1))
            print(f"round {turn + 1} of {options.rounds}", flush=True)
    return reporting.heading("decoders") | {
        "isa": options.isa, "model": options.model, "rounds": options.rounds,
        "seconds": options.seconds, "rates": rates,
        "told": told, "left_out": left_out}


def table(made: dict) -> str:
    lines = [
        "# Decoding and scoring at typical precisions", "",
        f"{made['date']}, {made['processor']}, one processor each"
        f"{isa.IN_WORDS[made['isa']]}; {MODELS[made['model']][0]},",
        f"vocabulary {VOCABULARY}, random weights. {made['rounds']} interleaved rounds of",
        f"{made['seconds']:g} s: medians (minimum to maximum), and the median over the rounds of",
        "Sluice's rate / the library's. Sluice serves through gRPC; the libraries run in process.",
        f"Decoding: prompts of {PROMPT} tokens, {NEW} generated.", "",
    ]
    for work, rates in made["rates"].items():
        ours = [name for name in rates if name.startswith("sluice")]
        lines += [f"## {WORK[work][0][0].upper()}{WORK[work][0][1:]}", "",
                  "| contender | rate | " + " | ".join(f"{each} over it" for each in ours) + " |",
                  "|---|---|" + "---|" * len(ours)]
        for name, of in rates.items():
            over = [statistics.median(a / b for a, b in zip(rates[each], of, strict=True))
                    for each in ours]
            lines.append(f"| {name} | {statistics.median(of):.0f} ({min(of):.0f} to {max(of):.0f})"
                         f" | {' | '.join(f'{each:.2f}' for each in over)} |")
        lines.append("")
    first = ", ".join(f"{name} {told['token']} ({told['logprob']:.3f})"
                      for name, told in made["told"].items())
    lines += [f"The next token of a fixed prompt, and its log-probability: {first}."]
    lines += [f"\n{name} is left out: {why}" for name, why in made["left_out"].items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    path = pathlib.Path
    parser.add_argument("--python", type=path, required=True, help="with onnxruntime")
    parser.add_argument("--llama-python", type=path, help="with llama-cpp-python")
    parser.add_argument("--build", type=path, default=ROOT / "build" / "release")
    parser.add_argument("--model", choices=MODELS, default="llama",
                        help="experts: only Sluice and llama.cpp read it")
    parser.add_argument("--checkpoint", type=path, help="default: a folder of build/peers")
    parser.add_argument("--only", nargs="+", help="contenders whose names contain one of these")
    parser.add_argument("--isa", choices=isa.IN_WORDS, default=isa.BEST,
                        help="instructions of all contenders; those that cannot be restricted are "
                        "left out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="per work and round")
    reporting.add_options(parser)
    options = parser.parse_args()
    options.processors = sorted(os.sched_getaffinity(0))
    options.checkpoint = (
        options.checkpoint or ROOT / "build" / "peers" / f"decoder_{options.model}").resolve()
    if not (options.checkpoint / "recipe.json").exists():
        code = (f"import sys, pathlib; sys.path.append({str(HERE)!r})\nimport checkpoint\n"
                f"checkpoint.write(pathlib.Path(sys.argv[1]), checkpoint.Shape("
                f"{MODELS[options.model][1]}), 1)")
        subprocess.run([options.python, "-c", code, options.checkpoint], check=True)
    made = measure(options)
    reporting.write(options, made, table(made))


if __name__ == "__main__":
    main()
