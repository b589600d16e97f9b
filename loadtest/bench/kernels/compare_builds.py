#!/usr/bin/env python3
"""Compares the benchmarks of two builds of Sluice in alternating rounds.

    loadtest/bench/kernels/compare_builds.py --old OTHER/build/release --new build/release \\
        --old-name COMMIT --binary attention_bench --out loadtest/results/attention_builds

writes attention_builds.json and .md. Both builds must have the same cases. If a case is newer than
the older build, add its line to the older source before building. A round runs all cases of one
build and then of the other; the build that runs first alternates. The ratio of a case is the median
over rounds of old time / new time; above 1 the new build is faster.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))
import reporting  # noqa: E402


def run(build, binary, arguments, pattern):
    """Returns the medians, in microseconds, of each series of each case."""
    done = subprocess.run(
        [
            next((build / "loadtest" / "bench").glob(f"*/{binary}")),
            *arguments,
            f"--benchmark_filter={pattern}",
            "--benchmark_format=json",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    times = {}
    for row in json.loads(done.stdout)["benchmarks"]:
        name = row["name"].split("/iterations:")[0]
        series = [key for key in row if key.endswith("_us") and not key.startswith("probe")]
        for key in series:
            times[f"{name} {key.removesuffix('_us')}"] = row[key]
    return times


def markdown(made):
    lines = [
        f"# {' '.join([made['binary'], *made['arguments']])}: this build and {made['old_name']}",
        "",
        f"{made['date']}, {made['processor']}. Made by `loadtest/bench/kernels/compare_builds.py`,",
        f"{made['rounds']} alternating rounds. Ratio: the older build's time / this build's time,",
        "the median over rounds, minimum to maximum; above 1 this build is faster.",
        "",
        "| case | older µs | this µs | ratio |",
        "|---|---|---|---|",
    ]
    for name, row in made["cases"].items():
        ratios = row["ratios"]
        lines.append(
            f"| {name} | {row['old_us']:.1f} | {row['new_us']:.1f} | "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=pathlib.Path, required=True, help="build folder")
    parser.add_argument("--new", type=pathlib.Path, required=True, help="build folder")
    parser.add_argument("--old-name", required=True, help="the older build, for the report")
    parser.add_argument("--binary", default="attention_bench")
    parser.add_argument("--argument", action="append", default=[], help="for the benchmark")
    parser.add_argument("--filter", default=".", help="cases, as a regular expression")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="without .json, .md")
    arguments = parser.parse_args()
    builds = {"old": arguments.old, "new": arguments.new}
    rounds = []
    for number in range(arguments.rounds):
        order = ["old", "new"] if number % 2 == 0 else ["new", "old"]
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
        times = {
            which: run(builds[which], arguments.binary, arguments.argument, arguments.filter)
            for which in order
        }
        rounds.append(times)
    cases = {}
    for name in rounds[0]["new"]:
        old = [times["old"][name] for times in rounds]
        new = [times["new"][name] for times in rounds]
        cases[name] = {
            "old_us": statistics.median(old),
            "new_us": statistics.median(new),
            "ratios": [a / b for a, b in zip(old, new, strict=True)],
        }
    made = {
        **reporting.heading("builds"),
        "binary": arguments.binary,
        "arguments": [pathlib.Path(argument).name for argument in arguments.argument],
        "old_name": arguments.old_name,
        "rounds": arguments.rounds,
        "cases": cases,
    }
    arguments.out.with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(markdown(made))
    print(markdown(made))


if __name__ == "__main__":
    main()
