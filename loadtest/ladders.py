#!/usr/bin/env python3
"""Sets ladders of a served model while it is under load, and counts the effects on calls.

Records the answers to all requests of an open loop. Then sends the same load again and sets one
strategy after another during it (`sluice ladder set`). Every call must be answered with the bits
that were recorded.
"""

import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import reporting
import sluice_load
from ready import Daemon

CHOICES = (
    ("--strategy", "geometric", "--ratio", "2"),
    ("--strategy", "fixed", "--fixed-tokens", "24,100,1000"),
    ("--strategy", "memory_optimal"),
    ("--strategy", "hardware_aware", "--max-buckets", "8"),
    ("--strategy", "fixed", "--fixed-tokens", "4096"),
    ("--strategy", "adaptive", "--max-buckets", "4"),
)


def load(options, daemon, seconds, *more, out=None):
    return sluice_load.Run(
        [options.sluice_load, "run", "--server", daemon.grpc, "--model", "m", "--rate",
         options.rate, "--lengths", options.lengths, "--max-tokens", options.tokens, "--outputs",
         "prompt_logprobs", "--duration", seconds, "--warm-up", 0, "--seed", 7, "--quiet", *more],
        out)


def choose(options, daemon, choice):
    begin = time.monotonic()
    set_ = subprocess.run(
        [options.sluice, "ladder", "set", "m", *choice, "--admin", daemon.grpc, "--json"],
        capture_output=True, text=True)
    if set_.returncode != 0:
        sys.exit(f"ladders.py: {' '.join(choice)}: {set_.stderr}")
    answer = json.loads(set_.stdout)
    return {"choice": " ".join(choice), "seconds": time.monotonic() - begin,
            "changed": answer.get("changed", False), "buckets": len(answer["after"])}


def measure(options):
    with tempfile.TemporaryDirectory() as scratch:
        book, out = pathlib.Path(scratch, "answers"), pathlib.Path(scratch, "load.json")
        daemon = Daemon(options.sluiced, options.model, "--server.admin.on-grpc-address=true")
        try:
            load(options, daemon, options.seconds, "--record", book).report()
            running = load(options, daemon, options.seconds, "--check", book, out=out)
            choices = []
            for choice in itertools.cycle(CHOICES):
                if running.process.poll() is not None:
                    break
                choices.append(choose(options, daemon, choice))
            report = running.report()
        finally:
            daemon.stop()
    phase = report["phases"][0]
    return {"benchmark": "ladders", "commit": report["commit"], "host": report["host"],
            "rate": options.rate, "lengths": options.lengths, "tokens": options.tokens,
            "seconds": options.seconds, "outcomes": phase["outcomes"],
            "p50_ms": phase["latency_ms"]["p50"], "p99_ms": phase["latency_ms"]["p99"],
            "choices": choices}


def table(options, figures):
    outcomes = figures["outcomes"]
    changed = [each for each in figures["choices"] if each["changed"]]
    return "\n".join([
        "# Ladders that are set under load", "",
        f"{options.label}. {options.rate} calls a second for {options.seconds} s, lengths "
        f"{options.lengths}, each scores its prompt and generates {options.tokens} tokens. "
        "During this load one strategy after another is set. The same calls were sent before, and "
        "their answers recorded.", "",
        "| calls | not answered | answers that differ | choices | that changed the ladder | "
        "longest choice | p50, p99 |", "|---|---|---|---|---|---|---|",
        f"| {sum(outcomes.values())} | "
        f"{sum(count for kind, count in outcomes.items() if kind not in ('ok', 'wrong'))} | "
        f"{outcomes['wrong']} | {len(figures['choices'])} | {len(changed)} | "
        f"{max(each['seconds'] for each in figures['choices']):.2f} s | "
        f"{figures['p50_ms']:.1f}, {figures['p99_ms']:.1f} ms |", ""])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/demo")
    parser.add_argument("--sluiced", default="build/release/server/sluiced")
    parser.add_argument("--sluice", default="build/release/client/sluice")
    parser.add_argument("--sluice-load", default="build/release/loadtest/load/sluice-load")
    parser.add_argument("--rate", type=float, default=100, help="calls a second")
    parser.add_argument("--lengths", default="uniform:2:200", help="as sluice-load reads them")
    parser.add_argument("--tokens", type=int, default=4, help="generated per call")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--label", default="A machine", help="name of the machine in the table")
    reporting.add_options(parser)
    options = parser.parse_args()
    figures = measure(options)
    reporting.write(options, figures, table(options, figures))


if __name__ == "__main__":
    main()
