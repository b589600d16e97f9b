#!/usr/bin/env python3
"""Measures batches whose rows have different low-rank adapters.

Makes a random encoder and --adapters adapters of rank --rank on the four matrices of each attention
and the two of each MLP. A burst is --rows calls at the same time, each with one text; --mixes
gives the numbers of adapters that the calls of a burst use in turn, and 0 stands for calls without
an adapter. Lengths are drawn from a lognormal distribution, with a median of --median tokens and
sigma 0.5, between 8 and 256 tokens. All bursts of a round have the same texts. Reports rows per
second, the median over the rounds of the ratio to bursts of one adapter, and next to it:

- the same rows by a daemon that holds one merged model at a time: it loads the model of each
  adapter before the rows of that adapter (8 adapters),
- the memory of the process, and of a process with a merged model, of which one per adapter would be
  needed.

With --soak, adapters are instead loaded and unloaded during calls for that many seconds. Fails if a
call fails that did not arrive while its adapter was unloaded, if an answer differs from the first
one to the same text and adapter, or if memory for adapters is left in the end.
"""

import argparse
import asyncio
import collections
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time
import urllib.request

import ml_dtypes
import numpy as np
import tritonclient.grpc as triton
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "clients" / "python"), str(ROOT / "loadtest")]

import reporting  # noqa: E402
from peers import encoder, lora  # noqa: E402
from programs import Process, free_port  # noqa: E402
from sluice_client import AsyncClient, errors  # noqa: E402

LAYERS = ("attention.self.query", "attention.self.key", "attention.self.value",
          "attention.output.dense", "intermediate.dense", "output.dense")
MERGED = 8


def write_models(folder, options):
    """Writes base/ with its adapters a0, a1, ... and merged/0, merged/1, ..."""
    shape = encoder.SIZES[options.size]
    encoder.write(folder / "base", 1, shape)
    weights = encoder.tensors_of(shape, 1)
    stored = load_file(folder / "base" / "model.safetensors")
    matrices = [f"encoder.layer.{layer}.{each}" for layer in range(shape.layers) for each in LAYERS]
    for i in range(options.adapters):
        changes = lora.write(folder / "base" / "adapters" / f"a{i}", weights, matrices,
                             options.rank, seed=100 + i)
        if i < MERGED and not options.soak:
            merged = folder / "merged" / str(i)
            merged.mkdir(parents=True)
            (merged / "config.json").write_text(json.dumps(shape.config()))
            changed = {name: (weights[name] + change).astype(ml_dtypes.bfloat16)
                       for name, change in changes.items()}
            save_file({**stored, **changed}, merged / "model.safetensors",
                      metadata={"format": "pt"})


class Daemon:
    """A daemon with one model, and a client of it."""

    def __init__(self, options, *flags):
        self.grpc, self.http, self.admin = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.process = Process(
            [options.sluiced, "--server.grpc.address", self.grpc, "--server.metrics.address",
             self.http, "--server.admin.address", self.admin, "--cpu.threads",
             str(options.threads), *flags], f"http://{self.http}/readyz")
        self.client = AsyncClient(self.grpc)
        self.repository = triton.InferenceServerClient(self.admin)

    def memory_mib(self):
        status = pathlib.Path(f"/proc/{self.process.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def adapter_bytes(self):
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines
                   if line.startswith("sluice_device_memory_bytes") and 'state="adapters"' in line)

    async def burst(self, names, texts):
        """Returns the seconds that calls with these models and texts take together."""
        began = time.perf_counter()
        await asyncio.gather(*(self.client.embed(name, [text])
                               for name, text in zip(names, texts, strict=True)))
        return time.perf_counter() - began


def draw_texts(source, options, count):
    sizes = np.exp(source.normal(np.log(options.median), 0.5, count)).clip(8, 256)
    return [source.integers(1, 30000, int(size)).tolist() for size in sizes]


def names_of(mix, rows):
    return ["base" if mix == 0 else f"base:a{row % mix}" for row in range(rows)]


async def swapped(daemon, folder, texts):
    """Returns the seconds in which a daemon with one merged model at a time computes the texts."""
    served = folder / "models" / "model"
    began = time.perf_counter()
    for i in range(MERGED):
        own = folder / "merged" / str(i)
        own.rename(served)
        daemon.repository.load_model("model")
        rows = texts[i::MERGED]
        await daemon.burst(["model"] * len(rows), rows)
        served.rename(own)
    return time.perf_counter() - began


async def compare(options, folder):
    source = np.random.default_rng(options.seed)
    (folder / "models").mkdir()
    daemon = Daemon(options, "--model", f"base={folder / 'base'}")
    other = Daemon(options, "--model-repository", str(folder / "models"),
                   "--server.lifecycle.ready-without-models=true")
    seconds = {mix: [] for mix in options.mixes}
    swaps = []
    for number in range(options.rounds + 1):
        texts = draw_texts(source, options, options.rows)
        mixes = list(options.mixes)
        random.Random(number).shuffle(mixes)
        for mix in mixes:
            taken = await daemon.burst(names_of(mix, options.rows), texts)
            if number > 0:  # The first round loads the adapters.
                seconds[mix].append(taken)
        taken = await swapped(other, folder, texts)
        if number > 0:
            swaps.append(taken)
        print(f"round {number} of {options.rounds}", file=sys.stderr, flush=True)
    memory = {"adapters_mib": daemon.memory_mib(), "merged_mib": other.memory_mib()}
    for each in (daemon, other):
        await each.client.close()
        each.process.stop()
    return seconds, swaps, memory


def ratios_of(seconds, of):
    ratios = sorted(a / b for a, b in zip(of, seconds, strict=True))
    return statistics.median(ratios), ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]


def table(options, seconds, swaps, memory):
    one = seconds[1]
    rows = [("no adapter" if mix == 0 else f"{mix} adapter{'s' * (mix > 1)}", seconds[mix])
            for mix in options.mixes]
    rows.append((f"{MERGED} adapters, one merged model at a time", swaps))
    lines = [
        "# Adapters in one batch", "",
        f"A random encoder of the size {options.size}; adapters of rank {options.rank} in bf16 on"
        f" all layers; bursts of {options.rows} calls, lengths lognormal with a median of"
        f" {options.median} tokens; {options.threads} threads, {reporting.processor()}. Medians of"
        f" {options.rounds} rounds, by `loadtest/adapters.py`.", "",
        "| rows of a burst have | rows/s | ratio to 1 adapter (quartiles) |", "|---|---|---|"]
    for name, taken in rows:
        middle, low, high = ratios_of(taken, one)
        lines.append(f"| {name} | {options.rows / statistics.median(taken):.1f} |"
                     f" {middle:.2f} ({low:.2f} to {high:.2f}) |")
    lines += ["", f"The process with the model and {options.adapters} adapters has"
              f" {memory['adapters_mib']:.0f} MiB resident. A process with one merged model has"
              f" {memory['merged_mib']:.0f} MiB."]
    return "\n".join(lines) + "\n"


class Soak:
    """Calls to adapters while a task unloads and loads them."""

    def __init__(self, options, daemon, texts):
        self._options, self._daemon, self._texts = options, daemon, texts
        self._away = set()
        self._unloads = collections.Counter()
        self._answers = {}
        self._source = random.Random(options.seed)
        self.calls = self.loads = self.late = 0

    async def run(self, seconds):
        self._ends = time.monotonic() + seconds
        await asyncio.gather(self.churn(), *(self.call() for _ in range(self._options.callers)))
        await self.unload_all()

    async def call(self):
        while time.monotonic() < self._ends:
            names = [i for i in range(self._options.adapters) if i not in self._away]
            adapter, text = self._source.choice(names), self._source.randrange(len(self._texts))
            unloads = self._unloads[adapter]
            try:
                answer = await self._daemon.client.embed(f"base:a{adapter}", [self._texts[text]])
            except errors.NotFound:
                if unloads == self._unloads[adapter]:
                    raise
                self.late += 1  # It arrived after the unload.
                continue
            self.calls += 1
            if self._answers.setdefault((adapter, text), answer.raw) != answer.raw:
                sys.exit(f"adapters.py: adapter {adapter}, text {text}: the answer differs")

    async def churn(self):
        while time.monotonic() < self._ends:
            adapter = self._source.randrange(self._options.adapters)
            self._unloads[adapter] += 1
            self._away.add(adapter)  # Calls in progress continue.
            await asyncio.to_thread(self._daemon.repository.unload_model, f"base:a{adapter}")
            await asyncio.to_thread(self._daemon.repository.load_model, f"base:a{adapter}")
            self._away.discard(adapter)
            self.loads += 1

    async def unload_all(self):
        for i in range(self._options.adapters):
            await asyncio.to_thread(self._daemon.repository.unload_model, f"base:a{i}")

    async def load_all(self):
        for i in range(self._options.adapters):
            await asyncio.to_thread(self._daemon.repository.load_model, f"base:a{i}")


async def soak(options, folder):
    daemon = Daemon(options, "--model", f"base={folder / 'base'}")
    try:
        return await soak_of(options, daemon)
    finally:
        await daemon.client.close()
        daemon.process.stop()


async def soak_of(options, daemon):
    run = Soak(options, daemon, draw_texts(np.random.default_rng(options.seed), options, 4))
    await daemon.burst(names_of(options.adapters, options.rows),
                       draw_texts(np.random.default_rng(0), options, options.rows))
    # Buffers of the process and the memory that it keeps for later grow during the first calls.
    await run.run(options.soak / 10)
    before = daemon.adapter_bytes(), daemon.memory_mib()
    run.calls = run.loads = run.late = 0
    await run.load_all()
    await run.run(options.soak)
    after = daemon.adapter_bytes(), daemon.memory_mib()
    text = (f"{run.calls} calls to {options.adapters} adapters in {options.soak:g} s, of which"
            f" {run.loads} times one was unloaded and loaded: no call in progress failed, no answer"
            f" differed; {run.late} calls arrived while their adapter was unloaded."
            f" Memory of adapters without any: {before[0]:.0f} bytes before, {after[0]:.0f} after;"
            f" resident {before[1]:.1f} MiB before, {after[1]:.1f} after.\n")
    reporting.write(options, {**reporting.heading("adapters_soak"),
                              "options": reporting.options_of(options), "calls": run.calls,
                              "loads": run.loads, "late": run.late,
                              "adapter_bytes": [before[0], after[0]],
                              "resident_mib": [before[1], after[1]]}, text)
    return 0 if after[0] == before[0] == 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluiced", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "server" / "sluiced",
                        help="the daemon")
    parser.add_argument("--size", choices=encoder.SIZES, default="bert_base")
    parser.add_argument("--adapters", type=int, default=64)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--mixes", type=int, nargs="+", default=[0, 1, 8, 64],
                        help="adapters of a burst; must contain 1")
    parser.add_argument("--rows", type=int, default=64, help="calls of a burst")
    parser.add_argument("--median", type=int, default=48, help="tokens of a text")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--soak", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--callers", type=int, default=8, help="of --soak")
    reporting.add_options(parser)
    options = parser.parse_args()
    if 1 not in options.mixes or max(options.mixes) > options.adapters:
        parser.error("--mixes must contain 1 and no number above --adapters")
    if options.adapters < MERGED:
        parser.error(f"--adapters must be at least {MERGED}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        write_models(folder, options)
        if options.soak:
            return asyncio.run(soak(options, folder))
        seconds, swaps, memory = asyncio.run(compare(options, folder))
    report = {**reporting.heading("adapters"), "options": reporting.options_of(options),
              "seconds": seconds, "swapped_seconds": swaps, "memory": memory}
    reporting.write(options, report, table(options, seconds, swaps, memory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
