#!/usr/bin/env python3
"""Compares the step sizes of two builds of the daemon on an encoder, below and above capacity.

    loadtest/step_size.py --old OLD/sluiced --new build/release/server/sluiced
        --sluice-load build/release/loadtest/load/sluice-load --model DIR --out F --table F

In each round, both daemons take turns with default options. A closed loop measures the throughput.
Then an open loop sends calls without a deadline at twice that rate; a call counts as in time if its
answer came within 1 s. The figures are medians over the rounds.
"""

import argparse
import pathlib
import statistics
import tempfile

import overload
import reporting

OBJECTIVE_MS = 1000


def round_of(options, load, seed):
    closed = load.run(seed, "--concurrency", options.concurrency)["phases"][0]
    rate = closed["answered_per_s"]
    phase = load.run(seed, "--rate", f"{2 * rate:.1f}", "--objective-ms", OBJECTIVE_MS)["phases"][0]
    answered = phase["answered_per_s"]
    return {"closed_per_s": rate, "closed_p50_ms": closed["latency_ms"]["p50"],
            "answered_per_s": answered, "in_time": phase["goodput_per_s"] / answered,
            "goodput_per_s": phase["goodput_per_s"], "p50_ms": phase["latency_ms"]["p50"],
            "p99_ms": phase["latency_ms"]["p99"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("old", "new", "sluice-load", "model"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--label", default="the model", help="name of the model in the table")
    parser.add_argument("--prompt", type=int, default=200, help="longest text, tokens")
    parser.add_argument("--concurrency", type=int, default=64, help="of the closed loop")
    parser.add_argument("--seconds", type=float, default=10, help="of a phase")
    parser.add_argument("--rounds", type=int, default=3)
    reporting.add_options(parser)
    options = parser.parse_args()
    options.tokens, options.warm_up = 0, 2
    rounds = {"old": [], "new": []}
    for seed in range(1, options.rounds + 1):
        for name, results in rounds.items():
            with tempfile.TemporaryDirectory() as scratch:
                daemon = overload.Daemon(getattr(options, name), options.model)
                try:
                    load = overload.Load(options, daemon, scratch)
                    results.append(round_of(options, load, seed))
                finally:
                    daemon.stop()
    medians = {name: {key: statistics.median(each[key] for each in results)
                      for key in results[0]} for name, results in rounds.items()}
    report = reporting.heading("step_size") | {
        "options": reporting.options_of(options), "rounds": rounds, "medians": medians}
    lines = ["# Step size on a CPU", "",
             f"{options.label}, texts of {options.prompt // 2} to {options.prompt} tokens, default "
             f"options; the old build takes steps of up to 4,096 tokens, the new one the fewest "
             f"tokens whose rate is within 5 % of the best. Medians of {options.rounds} rounds of "
             f"{options.seconds:g} s, in turns (`loadtest/step_size.py`, {report['processor']}).",
             "", "| | old | new |", "|---|---|---|"]
    for key, text, digits in (("closed_per_s", "texts/s, closed loop", 1),
                              ("closed_p50_ms", "p50 there, ms", 0),
                              ("answered_per_s", "texts/s at twice the rate", 1),
                              ("in_time", "share of the answers within 1 s", 3),
                              ("goodput_per_s", "texts/s within 1 s", 1),
                              ("p50_ms", "p50 of the answers, ms", 0),
                              ("p99_ms", "p99 of the answers, ms", 0)):
        lines.append(f"| {text} | {medians['old'][key]:.{digits}f} | "
                     f"{medians['new'][key]:.{digits}f} |")
    reporting.write(options, report, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
