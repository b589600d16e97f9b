#!/usr/bin/env python3
"""Measures the time until a daemon is ready, and the latency of its first requests.

Starts each build with each model in turn. The time to ready is measured from the start of the
process to the line `ready`, as a median over the rounds. The last build then serves an open loop
from that moment for `--seconds`, and the same load again. By then the buckets are warm, so the
second run stands for a daemon that has served for a while.

A model is NAME=DIRECTORY,RATE,LENGTHS,TOKENS[,OUTPUT]: calls per second, lengths in the format of
sluice-load, tokens that each call generates, and an output to request.
"""

import argparse
import json
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import reporting
import sluice_load


class Daemon:
    def __init__(self, binary, directory, *flags):
        begin = time.monotonic()
        self.process = subprocess.Popen(
            [binary, "--model", f"m={directory}", "--server.grpc.address=127.0.0.1:0",
             "--server.metrics.address=127.0.0.1:0", "--server.admin.address=", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            ports = re.search(r"ready: gRPC on port (\d+), HTTP on port (\d+)", line)
            if ports:
                self.ready_s = time.monotonic() - begin
                self.grpc, self.http = (f"127.0.0.1:{port}" for port in ports.groups())
                return
        sys.exit("ready.py: the daemon does not start")

    def metric(self, name, label=""):
        """Returns the sum of the metric over all series that have this label."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines
                   if line.startswith(name + "{") and label in line)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


class Model:
    def __init__(self, text):
        self.name, rest = text.split("=", 1)
        self.directory, self.rate, self.lengths, self.tokens, *output = rest.split(",")
        self.outputs = ["--outputs", output[0]] if output else []


def run_load(options, daemon, model, scratch):
    out = pathlib.Path(scratch, "load.json")
    report = sluice_load.report_of(
        [options.sluice_load, "run", "--server", daemon.grpc, "--model", "m", "--rate", model.rate,
         "--lengths", model.lengths, "--max-tokens", model.tokens, *model.outputs, "--duration",
         options.seconds, "--warm-up", 0, "--seed", 1, "--quiet"], out)
    phase = report["phases"][0]
    return {"p50_ms": phase["latency_ms"]["p50"], "p99_ms": phase["latency_ms"]["p99"],
            "outcomes": phase["outcomes"], "lateness_p99_ms": phase["lateness_ms"]["p99"],
            "host": report["host"], "commit": report["commit"]}


def measure(options, model):
    builds = dict(build.split("=", 1) for build in options.build)
    ready = {name: [] for name in builds}
    exported = []
    for _ in range(options.rounds):
        for name, binary in builds.items():
            daemon = Daemon(binary, model.directory)
            ready[name].append(daemon.ready_s)
            if name == list(builds)[-1]:
                exported.append(daemon.metric("sluice_time_to_ready_seconds"))
            daemon.stop()
    daemon = Daemon(list(builds.values())[-1], model.directory)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            first, warm = (run_load(options, daemon, model, scratch) for _ in range(2))
    finally:
        daemon.stop()
    return {"model": model.name, "rate": model.rate, "lengths": model.lengths,
            "tokens": model.tokens, "ready_s": ready, "exported_s": exported, "first": first,
            "warm": warm}


def table(options, models):
    builds = [build.split("=", 1)[0] for build in options.build]
    first = models[0]["first"]
    lines = [
        "# Time to ready, and the first requests", "",
        f"{options.label}; client and daemon share the {first['host']['processors']} processors. "
        f"Time to ready: from the start of the process, medians of {options.rounds} alternating "
        f"starts. Then {options.seconds} s of an open loop from the moment of ready, and "
        f"{options.seconds} s more of the same load, with a warm daemon.", "",
        "| model | " + " | ".join(f"ready, {name}" for name in builds) + " | of that, the model | "
        "load | first: p50, p99 | warm: p50, p99 | not answered |",
        "|---|" + "---|" * (len(builds) + 5),
    ]
    for each in models:
        ready = " | ".join(f"{statistics.median(each['ready_s'][name]):.2f} s" for name in builds)
        failed = sum(count for run in (each["first"], each["warm"])
                     for outcome, count in run["outcomes"].items() if outcome != "ok")
        figures = [f"{run['p50_ms']:.1f}, {run['p99_ms']:.1f} ms"
                   for run in (each["first"], each["warm"])]
        lines.append(
            f"| {each['model']} | {ready} | {statistics.median(each['exported_s']):.2f} s | "
            f"{each['rate']}/s, {each['lengths']}, {each['tokens']} generated | "
            f"{' | '.join(figures)} | {failed} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", action="append", required=True,
                        help="NAME=SLUICED; may be repeated")
    parser.add_argument("--model", action="append", required=True,
                        help="see above; may be repeated")
    parser.add_argument("--sluice-load", default="build/release/loadtest/load/sluice-load")
    parser.add_argument("--label", default="A machine", help="name of the machine in the table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=30)
    reporting.add_options(parser)
    options = parser.parse_args()
    models = []  # models that the file already has are kept
    if options.out and options.out.exists():
        models = json.loads(options.out.read_text())["models"]
    for text in options.model:
        measured = measure(options, Model(text))
        models = [each for each in models if each["model"] != measured["model"]] + [measured]
    reporting.write(options, {"benchmark": "ready", "models": models}, table(options, models))


if __name__ == "__main__":
    main()
