#!/usr/bin/env python3
"""Measures how long a daemon with its defaults serves late after an overload.

Starts one sluiced with its defaults. A closed loop finds the capacity. Then a steady open loop at a
share of it runs for the whole round, and beside it for some seconds another one at ten times the
capacity. The deadline of a call is a minute behind the end of its load, unless `--streaming` sends
calls without one, which then also wait in the streams of the client. The table has the steady calls
by the second in which they were sent. The goodput is what the daemon answered, by its own count,
between one second after the beginning of the overload and one second before its end, over the
capacity of that time: nothing that is answered later counts.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import reporting
from overload import Daemon, parser_of

BEFORE_S = 3  # seconds of the steady load before the overload
AFTER_S = 6
EDGE_S = 1  # at either end of the overload, which the goodput leaves out


class Calls:
    def __init__(self, options, daemon, scratch):
        self.options, self.daemon, self.scratch = options, daemon, scratch

    def start(self, name, seed, seconds, *load):
        out = pathlib.Path(self.scratch, f"{name}.json")
        command = [
            self.options.sluice_load, "run", "--server", self.daemon.grpc, "--lengths",
            f"uniform:{self.options.prompt // 2}:{self.options.prompt}", "--max-tokens",
            self.options.tokens, "--parameter", "ignore_eos", "true", "--cap", "256", "--duration",
            seconds, "--drain", "60", "--seed", seed, "--quiet", "--out", out, *load]
        if self.options.streaming:
            command.append("--streaming")
        return subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE), out

    def finish(self, started):
        process, out = started
        _, errors = process.communicate()
        if process.returncode > 1:
            sys.exit(f"backlog.py: {errors.decode()}")
        return json.loads(out.read_text())

    def run(self, *arguments):
        return self.finish(self.start(*arguments))


def answered(daemon):
    """Returns how many requests the daemon has answered so far."""
    with urllib.request.urlopen(f"http://{daemon.http}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines
               if line.startswith("sluice_requests_total{") and 'code="OK"' in line)


def measure_round(options, calls, seed):
    closed = calls.run("closed", seed, options.seconds, "--concurrency", options.concurrency,
                       "--warm-up", 2)
    capacity = closed["phases"][0]["answered_per_s"]
    steady = calls.start("steady", seed, BEFORE_S + options.seconds + AFTER_S, "--rate",
                         f"{options.share * capacity:.1f}", "--warm-up", 0)
    time.sleep(BEFORE_S)
    flood = calls.start("flood", seed + 1, options.seconds, "--rate",
                        f"{options.times * capacity:.1f}", "--warm-up", 0)
    time.sleep(EDGE_S)
    began, before = time.monotonic(), answered(calls.daemon)
    time.sleep(options.seconds - 2 * EDGE_S)
    during = answered(calls.daemon) - before
    took = time.monotonic() - began
    flood = calls.finish(flood)
    report = calls.finish(steady)
    seconds = report["phases"][0]["seconds"]
    return {
        "host": closed["host"], "commit": closed["commit"], "started": closed["started"],
        "capacity_per_s": capacity,
        "goodput": during / took / capacity,
        "flood": flood["phases"][0]["outcomes"],
        "seconds": [{"after_s": number - BEFORE_S - options.seconds, **second}
                    for number, second in enumerate(seconds)],
    }


def table(options, rounds):
    lines = [
        "# Backlog after an overload",
        "",
        f"{options.label}; defaults; prompts of {options.prompt // 2} to {options.prompt} tokens, "
        f"{options.tokens} generated. {options.seconds} s at {options.times} times the capacity, "
        f"beside a steady load of {options.share:g} of it, whose calls the table shows by the "
        "second in which they were sent. Client and daemon share "
        f"{rounds[0]['host']['processors']} processors. Medians of {len(rounds)} rounds.",
        "",
        "Goodput within the overload, over the capacity; answers after its end do not count: "
        f"{statistics.median(each['goodput'] for each in rounds):.2f}.",
        "",
        "| seconds after the end | answered | refused | p50 ms | p99 ms |",
        "|---|---|---|---|---|",
    ]
    for number, second in enumerate(rounds[0]["seconds"]):
        same = [each["seconds"][number] for each in rounds if number < len(each["seconds"])]

        def median(key, same=same):
            values = [each[key] for each in same if key in each]
            return f"{statistics.median(values):.1f}" if values else ""

        def outcome(key, same=same):
            return f"{statistics.median(each['outcomes'].get(key, 0) for each in same):.0f}"

        lines.append(f"| {second['after_s']} | {outcome('ok')} | {outcome('rejected')} | "
                     f"{median('p50_ms')} | {median('p99_ms')} |")
    return "\n".join(lines) + "\n"


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--times", type=float, default=10, help="overload over capacity")
    parser.add_argument("--share", type=float, default=0.2, help="steady load over capacity")
    parser.add_argument("--seconds", type=int, default=10, help="length of the overload")
    parser.add_argument("--streaming", action="store_true", help="calls on streams")
    parser.add_argument("--rounds", type=int, default=3)
    reporting.add_options(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        daemon = Daemon(options.sluiced, options.model)
        try:
            calls = Calls(options, daemon, scratch)
            rounds = [measure_round(options, calls, 2 * number) for number in range(options.rounds)]
        finally:
            daemon.stop()
    reporting.write(options, {"benchmark": "backlog", "rounds": rounds}, table(options, rounds))


if __name__ == "__main__":
    main()
