#!/usr/bin/env python3
"""Compares sluice-load with other clients that send the same schedule.

Takes the beginning of a trace, stretched to a mean rate, and sends the same arrivals and lengths to
a running server with sluice-load, with perf_analyzer and with a loop around Python's tritonclient,
in turn in each round. Prints throughput, median and 99th percentile of each.
"""

import argparse
import csv
import json
import math
import pathlib
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass

import numpy as np
import sluice_load
import tritonclient.grpc as grpcclient

ROOT = pathlib.Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Schedule:
    arrivals_s: list[float]  # from the start, ascending
    lengths: list[int]  # tokens of each prompt

    @property
    def seconds(self) -> float:
        """Returns the length of the schedule: the time of the last arrival plus one mean gap."""
        return self.arrivals_s[-1] * len(self.lengths) / (len(self.lengths) - 1)


@dataclass(frozen=True)
class Result:
    calls: int
    answered_per_s: float
    p50_ms: float
    p99_ms: float
    within: float | None  # share of the calls within the objective, if the client reports it


def schedule(rows: list[dict[str, str]], rate: float, count: int, cap: int) -> Schedule:
    """Returns the schedule of the first `count` rows, stretched to the mean rate, with lengths
    reduced to `cap`.
    """
    rows = rows[:count]
    first = float(rows[0]["arrival_s"])
    arrivals = [float(row["arrival_s"]) - first for row in rows]
    stretch = (count - 1) / rate / arrivals[-1]
    return Schedule([at * stretch for at in arrivals],
                    [min(max(int(row["input_tokens"]), 1), cap) for row in rows])


def percentile(ordered: list[float], percent: float) -> float:
    """Returns the percentile by nearest rank, as sluice-load does."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


class SluiceLoad:
    name = "sluice-load"

    def __init__(self, options: argparse.Namespace, scratch: pathlib.Path):
        self._options, self._scratch = options, scratch

    def send(self, plan: Schedule) -> Result:
        options, out = self._options, self._scratch / "load.json"
        trace = self._scratch / "trace.csv"
        with trace.open("w", newline="") as target:
            writer = csv.writer(target)
            writer.writerow(["arrival_s", "input_tokens"])
            writer.writerows((f"{at:.6f}", length) for at, length in
                             zip(plan.arrivals_s, plan.lengths))
        # The phase ends half a gap before the trace would start again.
        duration = (plan.arrivals_s[-1] + plan.seconds) / 2
        command = [options.sluice_load, "run", "--server", options.server, "--model", options.model,
                   "--arrivals", "trace", "--lengths", "trace", "--trace", trace, "--cap",
                   options.cap + 1, "--max-tokens", 1, "--vocab", options.vocab, "--warm-up", 0,
                   "--duration", f"{duration:.6f}", "--objective-ms", options.objective_ms,
                   "--quiet"]
        phase = sluice_load.report_of(command, out)["phases"][0]
        return Result(phase["calls"], phase["outcomes"]["ok"] / plan.seconds,
                      phase["latency_ms"]["p50"], phase["latency_ms"]["p99"],
                      phase["within_objective"])


def answered_requests(profile: dict) -> list[dict]:
    (experiment,) = profile["experiments"]
    return [each for each in experiment["requests"] if each["response_timestamps"]]


class PerfAnalyzer:
    """Sends with perf_analyzer. perf_analyzer counts throughput in windows of whole seconds, so the
    throughput is computed here from the times of its requests. The percentiles are its own.
    """

    name = "perf_analyzer"

    def __init__(self, options: argparse.Namespace, scratch: pathlib.Path):
        self._options, self._scratch = options, scratch

    def send(self, plan: Schedule) -> Result:
        options = self._options
        gaps, data = self._scratch / "gaps.txt", self._scratch / "data.json"
        report, profile = self._scratch / "perf.csv", self._scratch / "perf.json"
        at = [*plan.arrivals_s, plan.seconds]
        gaps.write_text("".join(f"{round(1e6 * (later - earlier))}\n"
                                for earlier, later in zip(at, at[1:])))
        data.write_text(json.dumps({"data": [
            {"input_ids": {"content": ids.tolist(), "shape": [len(ids)]}}
            for ids in prompts(plan, options.vocab)]}))
        profile.unlink(missing_ok=True)  # perf_analyzer does not overwrite the previous round's
        command = [options.perf_analyzer, "-m", options.model, "-i", "grpc", "-u", options.server,
                   "--async", "--max-threads", 1, "--input-data", data, "--request-intervals",
                   gaps,
                   "--request-count", len(plan.lengths), "-f", report, "--profile-export-file",
                   profile]
        ended = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(ended.stdout + ended.stderr)
        (row,) = csv.DictReader(report.open())
        answered = answered_requests(json.loads(profile.read_text()))
        sent = [each["timestamp"] for each in answered]
        span_s = (max(sent) - min(sent)) / 1e9 * len(sent) / (len(sent) - 1)
        return Result(len(sent), len(sent) / span_s, float(row["p50 latency"]) / 1e3,
                      float(row["p99 latency"]) / 1e3, None)


class TritonClient:
    """Sends with tritonclient. Latency counts from when a call was due, as in sluice-load."""

    name = "tritonclient"

    def __init__(self, options: argparse.Namespace, _scratch: pathlib.Path):
        self._options = options

    def send(self, plan: Schedule) -> Result:
        made = [self._input(ids) for ids in prompts(plan, self._options.vocab)]
        ended: queue.SimpleQueue = queue.SimpleQueue()
        with grpcclient.InferenceServerClient(self._options.server) as client:
            start = time.perf_counter() + 0.05
            for at, tensor in zip(plan.arrivals_s, made):
                time_left(start + at)
                client.async_infer(
                    self._options.model, [tensor], parameters={"max_tokens": 1},
                    callback=lambda result, error, due=start + at: ended.put(
                        (time.perf_counter() - due, error)))
            calls = [ended.get(timeout=60) for _ in made]
        latencies = sorted(1e3 * latency for latency, error in calls if error is None)
        if not latencies:
            raise RuntimeError(f"no call was answered: {calls[0][1]}")
        good = sum(latency <= self._options.objective_ms for latency in latencies)
        return Result(len(calls), len(latencies) / plan.seconds, percentile(latencies, 50),
                      percentile(latencies, 99), good / len(calls))

    @staticmethod
    def _input(ids: np.ndarray) -> grpcclient.InferInput:
        tensor = grpcclient.InferInput("input_ids", [1, len(ids)], "INT32")
        tensor.set_data_from_numpy(ids[None])
        return tensor


def time_left(until: float) -> None:
    """Waits until the performance counter reaches `until`."""
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    while (left := until - time.perf_counter()) > 0:
        try:
            waiting.get(timeout=left)
        except queue.Empty:
            pass


def prompts(plan: Schedule, vocabulary: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    return [random.integers(0, vocabulary, length, np.int32) for length in plan.lengths]


def medians(rounds: list[Result]) -> dict[str, float | None]:
    columns = {name: [asdict(each)[name] for each in rounds] for name in asdict(rounds[0])}
    return {name: None if None in values else statistics.median(values)
            for name, values in columns.items()}


def table(measured: dict[str, list[Result]]) -> str:
    lines = ["| client | calls | answers/s | p50 ms | p99 ms | within the objective |",
             "|---|---|---|---|---|---|"]
    for name, rounds in measured.items():
        of = medians(rounds)
        within = "not told" if of["within"] is None else f"{100 * of['within']:.1f} %"
        spread = ", ".join(f"{each.p50_ms:.1f}" for each in rounds)
        lines.append(f"| {name} | {of['calls']:.0f} | {of['answered_per_s']:.1f} | "
                     f"{of['p50_ms']:.1f} ({spread}) | {of['p99_ms']:.1f} | {within} |")
    return "\n".join(lines) + "\n"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="127.0.0.1:8001", help="HOST:PORT of gRPC")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--vocab", type=int, default=256, help="ids are drawn from [0, vocab)")
    parser.add_argument("--trace", type=pathlib.Path, required=True,
                        help="CSV with arrival_s and input_tokens")
    parser.add_argument("--cap", type=int, default=255, help="longer prompts are cut to it")
    parser.add_argument("--rate", type=float, default=50, help="mean arrivals per second")
    parser.add_argument("--count", type=int, default=600, help="calls of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--objective-ms", type=float, default=100)
    parser.add_argument("--sluice-load", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "loadtest" / "load" / "sluice-load")
    parser.add_argument("--perf-analyzer", type=pathlib.Path,
                        help="its binary; without it, perf_analyzer is left out")
    parser.add_argument("--table", type=pathlib.Path, help="write the table to this file as well")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> dict[str, list[Result]]:
    with options.trace.open(newline="") as source:
        plan = schedule(list(csv.DictReader(source)), options.rate, options.count, options.cap)
    kinds = [SluiceLoad, *([PerfAnalyzer] if options.perf_analyzer else []), TritonClient]
    with tempfile.TemporaryDirectory() as scratch:
        clients = [kind(options, pathlib.Path(scratch)) for kind in kinds]
        measured: dict[str, list[Result]] = {client.name: [] for client in clients}
        for number in range(options.rounds):
            for client in clients:
                print(f"round {number + 1}/{options.rounds}: {client.name}", file=sys.stderr)
                measured[client.name].append(client.send(plan))
    return measured


def main() -> None:
    options = parse()
    text = table(measure(options))
    if options.table:
        options.table.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
