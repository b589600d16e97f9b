#!/usr/bin/env python3
"""Measures the goodput of a daemon in an overload, and for how long calls are late after it.

Starts one sluiced with its defaults. A closed loop measures the capacity, with as many calls in
flight as the daemon runs at once. Then one open loop sends a steady load, which is a share of the
capacity, and for some seconds also ten times the capacity. The deadline of a call is a minute after
the end of the load. With `--streaming`, calls have no deadline and may also wait in the client's
streams. `--tokens -1` is for models that generate nothing. `--flag` passes a flag to the daemon.
The table groups the calls by the second in which they were sent.

Goodput counts the answers that arrive between one second after the beginning of the overload and
one second before its end. It is compared with two numbers. One is the capacity. The other is the
number of answers that the model's threads could compute, at the capacity's processor time per
answer, in the processor time that the client and the daemon's refusals leave to them. With
`--apart` the daemon has one half of the processors and the client the other half, as if they ran on
two machines.
"""

import os
import pathlib
import random
import statistics
import tempfile
import time

import reporting
import sluice_load
from overload import Daemon, parser_of

BEFORE_S = 3  # seconds of the steady load before the overload
AFTER_S = 6
EDGE_S = 1  # at either end of the overload, left out of the goodput
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def seconds_of(stat):
    """Returns the processor time in a line of /proc/PID/stat."""
    fields = stat.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


class Usage:
    """The processor time that a daemon and its client use from now on."""

    def __init__(self, daemon, client):
        self.daemon, self.client = daemon, client
        self.began, self.first = time.monotonic(), self.read()

    def read(self):
        """Returns the time of the client, of gRPC's threads and of the daemon's others."""
        times = {"client": seconds_of(pathlib.Path(f"/proc/{self.client}/stat").read_text()),
                 "grpc": 0.0, "model": 0.0}
        for task in pathlib.Path(f"/proc/{self.daemon}/task").iterdir():
            try:
                own = (task / "comm").read_text().strip() == "sluiced"
                times["model" if own else "grpc"] += seconds_of((task / "stat").read_text())
            except FileNotFoundError:
                continue  # the thread has ended
        return times

    def processors(self):
        took = time.monotonic() - self.began
        return {name: (value - self.first[name]) / took for name, value in self.read().items()}


class Calls:
    def __init__(self, options, daemon, scratch):
        self.options, self.daemon = options, daemon
        self.out, self.trace = pathlib.Path(scratch, "run.json"), pathlib.Path(scratch, "trace.csv")

    def run(self, seed, seconds, usage_from, usage_to, *load):
        """Returns the report of a load, and the processors that were used during it."""
        command = [
            self.options.sluice_load, "run", "--server", self.daemon.grpc, "--max-tokens",
            self.options.tokens, "--cap", "256", "--duration", seconds, "--drain", "60", "--seed",
            seed, "--quiet", *load]
        if self.options.tokens > 0:
            command += ["--parameter", "ignore_eos", "true"]
        if self.options.streaming:
            command.append("--streaming")
        run = sluice_load.Run(command, self.out)
        time.sleep(usage_from)
        usage = Usage(self.daemon.process.pid, run.process.pid)
        time.sleep(usage_to - usage_from)
        processors = usage.processors()
        return run.report(), processors

    def lengths(self):
        return max(self.options.prompt // 2, 1), self.options.prompt

    def closed(self, seed):
        low, high = self.lengths()
        return self.run(seed, self.options.seconds, 3, self.options.seconds, "--lengths",
                        f"uniform:{low}:{high}", "--concurrency", self.options.concurrency,
                        "--warm-up", 2)

    def overload(self, seed, capacity):
        total = BEFORE_S + self.options.seconds + AFTER_S
        draw, at = random.Random(seed), 0.0
        rows = ["arrival_s,input_tokens"]
        while at < total:
            flooded = BEFORE_S <= at < BEFORE_S + self.options.seconds
            rate = capacity * (self.options.share + (self.options.times if flooded else 0))
            at += draw.expovariate(rate)
            rows.append(f"{at:.6f},{draw.randint(*self.lengths())}")
        self.trace.write_text("\n".join(rows) + "\n")
        # The client takes up to a second to start.
        return self.run(seed, total, BEFORE_S + 2, BEFORE_S + self.options.seconds - 1, "--trace",
                        self.trace, "--arrivals", "trace", "--lengths", "trace", "--warm-up", 0)


def measure_round(options, calls, seed):
    closed, closed_processors = calls.closed(seed)
    at_capacity = closed["phases"][0]
    capacity = at_capacity["answered_per_s"]
    report, processors = calls.overload(seed, capacity)
    seconds = report["phases"][0]["seconds"]
    within = seconds[BEFORE_S + EDGE_S:BEFORE_S + options.seconds - EDGE_S]
    answered = statistics.mean(second["answers"] for second in within)
    return {
        "host": closed["host"], "commit": closed["commit"], "started": closed["started"],
        "capacity_per_s": capacity,
        "callers_refused": at_capacity["outcomes"]["rejected"],
        "answered_per_s": answered,
        "goodput": answered / capacity,
        "goodput_of_time": answered / processors["model"] / (capacity / closed_processors["model"]),
        "refused_per_s": statistics.mean(second["outcomes"]["rejected"] for second in within),
        "processors": {"closed": closed_processors, "overload": processors},
        "seconds": [{"after_s": number - BEFORE_S - options.seconds, **second}
                    for number, second in enumerate(seconds)],
    }


def placed(options, rounds):
    count = rounds[0]["host"]["processors"]
    if not options.apart:
        return f"Client and daemon share {count} processors."
    return f"The daemon has half of {count} processors, and the client the other half."


def table(options, rounds):
    def median(*path):
        values = rounds
        for key in path:
            values = [value[key] for value in values]
        return statistics.median(values)

    def used(load):
        return " | ".join(f"{median('processors', load, part):.2f}"
                          for part in ("client", "grpc", "model"))

    asks = f"{options.tokens} generated" if options.tokens > 0 else "none generated"
    lines = [
        "# Backlog after an overload",
        "",
        f"{options.label}; {' '.join(options.flag) or 'defaults'}; prompts of "
        f"{max(options.prompt // 2, 1)} to {options.prompt} tokens, {asks}. "
        f"{options.seconds} s at {options.times:g} times the capacity, on top of a "
        f"steady load of {options.share:g} of the capacity, which continues for {AFTER_S} s. The "
        f"capacity was measured by a closed loop of {options.concurrency} callers; "
        f"{median('callers_refused'):.0f} of them stop because they are refused. "
        f"{placed(options, rounds)} "
        f"Medians of {len(rounds)} rounds.",
        "",
        "|  | answered/s | refused/s | processors: client | gRPC's threads | other threads |",
        "|---|---|---|---|---|---|",
        f"| at the capacity | {median('capacity_per_s'):.0f} | 0 | {used('closed')} |",
        f"| in the overload | {median('answered_per_s'):.0f} | {median('refused_per_s'):.0f} | "
        f"{used('overload')} |",
        "",
        f"Goodput within the overload, without its first and last {EDGE_S} s, divided by the "
        f"capacity: {median('goodput'):.2f}. Divided by the answers that the processor time of the "
        f"daemon's other threads allows: {median('goodput_of_time'):.2f}.",
        "",
        "| seconds after the end | answered | refused | p50 ms | p99 ms |",
        "|---|---|---|---|---|",
    ]
    for number, second in enumerate(rounds[0]["seconds"]):
        same = [each["seconds"][number] for each in rounds if number < len(each["seconds"])]

        def latency(key, same=same):
            values = [each[key] for each in same if key in each]
            return f"{statistics.median(values):.1f}" if values else ""

        def outcome(key, same=same):
            return f"{statistics.median(each['outcomes'].get(key, 0) for each in same):.0f}"

        lines.append(f"| {second['after_s']} | {outcome('ok')} | {outcome('rejected')} | "
                     f"{latency('p50_ms')} | {latency('p99_ms')} |")
    return "\n".join(lines) + "\n"


def main():
    parser = parser_of(__doc__)
    parser.set_defaults(concurrency=256)
    parser.add_argument("--times", type=float, default=10, help="overload / capacity")
    parser.add_argument("--share", type=float, default=0.2, help="steady load / capacity")
    parser.add_argument("--seconds", type=int, default=10, help="length of the overload")
    parser.add_argument("--streaming", action="store_true", help="calls on streams")
    parser.add_argument("--flag", action="append", default=[], help="for the daemon, --flag=--A=B")
    parser.add_argument("--apart", action="store_true",
                        help="give daemon and client separate processors")
    parser.add_argument("--rounds", type=int, default=3)
    reporting.add_options(parser)
    options = parser.parse_args()
    processors = sorted(os.sched_getaffinity(0))
    half = len(processors) // 2
    if options.apart and half == 0:
        parser.error("--apart needs two processors")
    with tempfile.TemporaryDirectory() as scratch:
        # Child processes inherit the processors of this process.
        os.sched_setaffinity(0, processors[:half] if options.apart else processors)
        daemon = Daemon(options.sluiced, options.model, *options.flag)
        os.sched_setaffinity(0, processors[half:] if options.apart else processors)
        try:
            calls = Calls(options, daemon, scratch)
            rounds = [measure_round(options, calls, number) for number in range(options.rounds)]
        finally:
            daemon.stop()
    reporting.write(options, {"benchmark": "backlog", "rounds": rounds}, table(options, rounds))


if __name__ == "__main__":
    main()
