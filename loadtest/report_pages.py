#!/usr/bin/env python3
"""Makes the two report pages under loadtest/results: latency against load, below and above
capacity.

The models are the demo model and the random Llama of peers/checkpoint.py. For each, one sluiced
runs on processors that the client does not use. A closed loop measures its capacity. Then open
loops (Poisson arrivals, lengths of a recorded trace) run at shares of the capacity. Writes
NAME.json and NAME.html.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "loadtest" / "peers"))
import checkpoint  # noqa: E402
import servers  # noqa: E402
import sluice_load  # noqa: E402
import workloads  # noqa: E402

SHARES = (0.3, 0.5, 0.7, 0.85, 1.0, 1.15)
CAPACITY_S = 6.0
WARM_UP_S = 2.0


@dataclass(frozen=True)
class Page:
    name: str
    label: str
    model: str
    max_tokens: str  # as sluice-load's --max-tokens
    objective_ms: int
    percentile: int
    min_calls: int  # for a phase to be VALID
    vocab: int
    cap: int
    options: tuple[str, ...] = ()


PAGES = (
    Page(
        "report_demo",
        "Demo model, prompts and answers of a trace",
        "demo",
        "trace",
        500,
        95,
        200,
        256,
        256,
    ),
    Page(
        "report_llama",
        "9 layers, d 512, random weights: next token of a prompt",
        "llama",
        "1",
        500,
        90,
        100,
        checkpoint.Shape().vocab,
        workloads.CAP,
        ("--engine.batch.max-batch-tokens=1024",),
    ),
)


class Daemon:
    """A context manager that runs one sluiced with the page's model."""

    def __init__(self, page: Page, options: argparse.Namespace, log: pathlib.Path):
        self.grpc, self.metrics = servers.free_address(), servers.free_address()
        folder = ROOT / "models" / "demo" if page.model == "demo" else options.checkpoint
        processors = options.processors[:-1] or options.processors
        self._server = servers.Server(
            [str(options.sluiced), "--model", f"{page.model}={folder}", "--server.grpc.address",
             self.grpc, "--server.metrics.address", self.metrics, "--server.admin.address=",
             f"--cpu.threads={len(processors)}", "--engine.kv.prefix-reuse=false", *page.options],
            self.grpc, processors, len(processors), log, page.model)

    def __enter__(self) -> "Daemon":
        try:
            self._server.wait_ready(180)
        except servers.NotStarted:
            self._server.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()


def run_load(page: Page, options: argparse.Namespace, daemon: Daemon, trace: pathlib.Path,
             out: pathlib.Path, seconds: float, *load: str) -> dict:
    """Runs sluice-load on the last processor, with its progress on our stderr."""
    command = [
        "taskset", "-c", options.processors[-1], options.sluice_load, "run", "--server",
        daemon.grpc, "--metrics-url", daemon.metrics, "--model", page.model, "--lengths", "trace",
        "--trace", trace, "--cap", page.cap, "--max-tokens", page.max_tokens, "--parameter",
        "ignore_eos", "true", "--vocab", page.vocab, "--variants", 1 << 20, "--objective-ms",
        page.objective_ms, "--percentile", page.percentile, "--min-calls", page.min_calls,
        "--warm-up", WARM_UP_S, "--duration", seconds, "--label", page.label, *load]
    return sluice_load.Run(command, out, shows=True).report()


def rates(capacity: float) -> str:
    return ",".join(f"{share * capacity:.1f}" for share in SHARES)


def make(page: Page, options: argparse.Namespace, scratch: pathlib.Path) -> None:
    trace = scratch / "trace.csv"
    # The prompts at the beginning of the trace suffice for any phase.
    workloads.write_trace(options.trace, trace, rows=4096)
    report = options.out / f"{page.name}.json"
    with Daemon(page, options, scratch / "sluiced.log") as daemon:
        closed = run_load(page, options, daemon, trace, scratch / "closed.json", CAPACITY_S,
                          "--concurrency", "32")
        capacity = closed["phases"][0]["answered_per_s"]
        run_load(page, options, daemon, trace, report, options.seconds, "--rate", rates(capacity))
    subprocess.run([options.sluice_load, "report", report, "--out",
                    options.out / f"{page.name}.html"], check=True)


def parse() -> argparse.Namespace:
    build = ROOT / "build" / "release"
    path = pathlib.Path
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=path, required=True,
                        help="CSV with arrival_s, input_tokens, output_tokens")
    parser.add_argument("--pages", nargs="+", default=[page.name for page in PAGES],
                        choices=[page.name for page in PAGES])
    parser.add_argument("--seconds", type=float, default=16, help="measured, of each load")
    parser.add_argument("--sluiced", type=path, default=build / "server" / "sluiced")
    parser.add_argument("--sluice-load", type=path,
                        default=build / "loadtest" / "load" / "sluice-load")
    parser.add_argument("--checkpoint", type=path, default=ROOT / "build" / "peers" / "checkpoint",
                        help="folder for the random Llama")
    parser.add_argument("--out", type=path, default=ROOT / "loadtest" / "results",
                        help="folder of the pages")
    options = parser.parse_args()
    options.processors = sorted(os.sched_getaffinity(0))
    return options


def main() -> None:
    options = parse()
    checkpoint.write(options.checkpoint, checkpoint.Shape(), seed=1)
    for page in PAGES:
        if page.name in options.pages:
            with tempfile.TemporaryDirectory() as scratch:
                make(page, options, pathlib.Path(scratch))


if __name__ == "__main__":
    main()
