#!/usr/bin/env python3
"""Measures the daemon at 2 and 10 times its capacity, in an open loop.

Starts one sluiced and drives it with sluice-load. A closed loop measures the capacity. Then open
loops at shares of the capacity measure the peak of the goodput (answers within the objective), and
overloads follow. Every call has the objective as its deadline. Each round has all of these phases,
so that other work on the machine affects all of them. The figures are medians over the rounds.
"""

import argparse
import pathlib
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import reporting
import sluice_load

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))

from ports import free_port  # noqa: E402

SHARES = (0.7, 0.85, 1.0)
OVERLOADS = (2, 10)


class Daemon:
    def __init__(self, sluiced, model, *flags, prefix_reuse=False):
        self.grpc, self.http = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.process = subprocess.Popen(
            [sluiced, "--model", f"demo={model}", "--server.grpc.address", self.grpc,
             "--server.metrics.address", self.http, "--server.admin.address=",
             # Prefixes of earlier phases would make a load lighter.
             f"--engine.kv.prefix-reuse={str(prefix_reuse).lower()}", *flags],
            stdout=subprocess.DEVNULL)
        give_up = time.monotonic() + 120
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > give_up:
                sys.exit("overload.py: the daemon does not start")
            select.select([], [], [], 0.05)

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://{self.http}/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


class Load:
    """Runs phases against one daemon."""

    def __init__(self, options, daemon, scratch):
        self.options, self.daemon, self.out = options, daemon, pathlib.Path(scratch, "load.json")

    def run(self, seed, *load):
        options = self.options
        command = [
            options.sluice_load, "run", "--server", self.daemon.grpc, "--metrics-url",
            self.daemon.http, "--lengths", f"uniform:{options.prompt // 2}:{options.prompt}",
            "--max-tokens", options.tokens, "--parameter", "ignore_eos", "true", "--cap", "256",
            "--duration", options.seconds, "--warm-up", options.warm_up, "--drain", "20",
            "--seed", seed, "--quiet", *load]
        return sluice_load.report_of(command, self.out)

    def closed(self, seed):
        return self.run(seed, "--concurrency", self.options.concurrency)

    def open(self, seed, rate):
        limit = self.options.objective_ms
        return self.run(
            seed, "--rate", f"{rate:.1f}", "--objective-ms", limit, "--deadline-ms", limit
        )


def figures(report):
    phase = report["phases"][0]
    rejected = phase.get("rejected_ms", {})
    return {
        "offered_per_s": phase["offered_per_s"],
        "goodput_per_s": phase["goodput_per_s"],
        "outcomes": phase["outcomes"],
        "latency_p50_ms": phase["latency_ms"]["p50"],
        "latency_p99_ms": phase["latency_ms"]["p99"],
        "rejected_p50_ms": rejected.get("p50"),
        "rejected_p99_ms": rejected.get("p99"),
        "lateness_p99_ms": phase["lateness_ms"]["p99"],
        "reconciled": phase.get("server", {}).get("reconciled"),
    }


def measure(options):
    rounds = []
    with tempfile.TemporaryDirectory() as scratch:
        daemon = Daemon(options.sluiced, options.model)
        try:
            load = Load(options, daemon, scratch)
            load.closed(0)  # the daemon learns the costs
            for number in range(1, options.rounds + 1):
                closed = load.closed(number)
                capacity = closed["phases"][0]["answered_per_s"]
                loads = {f"{share:g}": figures(load.open(number, share * capacity))
                         for share in (*SHARES, *OVERLOADS)}
                rounds.append({"capacity_per_s": capacity, "loads": loads})
        finally:
            daemon.stop()
    return {
        "benchmark": "overload",
        "commit": closed["commit"],
        "started": closed["started"],
        "host": closed["host"],
        "options": reporting.options_of(options),
        "rounds": rounds,
        "summary": summary(rounds),
    }


def summary(rounds):
    def median(values):
        values = [value for value in values if value is not None]
        return statistics.median(values) if values else None

    peaks = [max(each["loads"][f"{share:g}"]["goodput_per_s"] for share in SHARES)
             for each in rounds]
    lines = {}
    for load in rounds[0]["loads"]:
        of_load = [each["loads"][load] for each in rounds]
        lines[load] = {key: median(each[key] for each in of_load)
                       for key in ("offered_per_s", "goodput_per_s", "latency_p50_ms",
                                   "latency_p99_ms", "rejected_p50_ms", "rejected_p99_ms")}
        lines[load]["of_peak"] = median(
            each["goodput_per_s"] / peak for each, peak in zip(of_load, peaks))
    return lines


def table(report):
    options = report["options"]

    def cell(value, digits=1):
        return "" if value is None else f"{value:.{digits}f}"

    lines = [
        "# Overload",
        "",
        f"{options['label']}; prompts of {int(options['prompt']) // 2} to {options['prompt']} "
        f"tokens, "
        f"{options['tokens']} generated; open loop, each call with a deadline of "
        f"{options['objective_ms']} ms; answers within it count as goodput. Client and "
        f"daemon "
        f"share {report['host']['processors']} processors. Medians of {options['rounds']} rounds "
        f"of "
        f"{options['seconds']} s a load; the capacity was measured by a closed loop of "
        f"{options['concurrency']} "
        "callers. Rejections are timed from sending.",
        "",
        "| load / capacity | offered/s | goodput/s | goodput / peak | answered p50 ms | p99 ms | "
        "rejected p50 ms | p99 ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for load, line in report["summary"].items():
        lines.append(f"| {load} | {cell(line['offered_per_s'])} | {cell(line['goodput_per_s'])} | "
                     f"{cell(line['of_peak'], 2)} | {cell(line['latency_p50_ms'])} | "
                     f"{cell(line['latency_p99_ms'])} | {cell(line['rejected_p50_ms'], 2)} | "
                     f"{cell(line['rejected_p99_ms'], 2)} |")
    return "\n".join(lines) + "\n"


def parser_of(doc):
    """Returns a parser with the options that all measurements of an overload share."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    path = pathlib.Path
    parser.add_argument("--sluiced", type=path, required=True, help="path of the daemon")
    parser.add_argument("--sluice-load", type=path, required=True,
                        help="path of the load generator")
    parser.add_argument("--model", type=path, required=True,
                        help="model directory, 256 positions or more")
    parser.add_argument("--label", default="The demo model", help="name of the model in the table")
    parser.add_argument("--prompt", type=int, default=64, help="longest prompt, tokens")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--concurrency", type=int, default=48, help="of the closed loop")
    return parser


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--objective-ms", type=int, default=2000)
    parser.add_argument("--seconds", type=int, default=10, help="length of a phase")
    parser.add_argument("--warm-up", type=int, default=3, help="seconds before each phase")
    parser.add_argument("--rounds", type=int, default=3)
    reporting.add_options(parser)
    options = parser.parse_args()
    report = measure(options)
    reporting.write(options, report, table(report))


if __name__ == "__main__":
    main()
