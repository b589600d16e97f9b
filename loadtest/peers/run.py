#!/usr/bin/env python3
"""Compares Sluice with its alternatives: same weights, same trace, same client.

Makes one random checkpoint and converts it to each server's format. Starts all servers on
processors that the client does not use, and compares their answers with Sluice's. Then measures
them in turn in each round with sluice-load. A server that cannot be installed, does not start or
answers differently is left out, and the report gives the reason.
"""

import argparse
import contextlib
import datetime
import os
import pathlib
import signal
import sys
import tempfile
import time

from tritonclient.utils import InferenceServerException

import answers
import checkpoint
import phases
import servers
import summary
import venvs
import workloads
from arms import ARMS, NOT_RUN, Arm, peer_command, sluice_command

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "loadtest"))
import reporting  # noqa: E402

CALIBRATION_S = 4.0
CALIBRATION_TURN = 10_000  # not the number of a measured round, so that contents differ
CHECKED_LENGTHS = (1, 2, 7, 16, 33, 64, 100, 250)


def say(text: str) -> None:
    print(f"[{datetime.datetime.now():%H:%M:%S}] {text}", file=sys.stderr, flush=True)


class Comparison:
    """Measures the servers of one workload. `stack` owns the servers."""

    def __init__(self, options: argparse.Namespace, scratch: pathlib.Path,
                 stack: contextlib.ExitStack):
        self._options, self._scratch, self._stack = options, scratch, stack
        self._shape = checkpoint.Shape()
        self.arms: list[dict] = []
        self.left_out: list[dict] = []
        self.commit, self.host = "", {}  # set from the reports of sluice-load
        trace = scratch / "trace.csv"
        workloads.write_trace(options.trace, trace)
        self._client = phases.Client(options.sluice_load, options.client_processors, trace,
                                     self._shape.vocab, scratch)

    def _start(self, arm: Arm) -> tuple[servers.Server, dict[str, str]]:
        options, versions = self._options, {}
        address = servers.free_address()
        if arm.ours:
            command = sluice_command(arm, options.sluiced, options.checkpoint,
                                     [address, servers.free_address()], options.threads)
        else:
            python = venvs.python_of(options.venvs, arm.peer)
            versions = venvs.versions(python, arm.packages)
            command = peer_command(arm, python, options.checkpoint, address, options.threads)
        log = self._scratch / f"{arm.workload}-{arm.name.replace(' ', '-')}.log"
        server = servers.Server(command, address, options.server_processors, options.threads, log)
        self._stack.callback(server.stop)
        server.wait_ready(options.start_within)
        return server, versions

    def _admit(self, arm: Arm, asked: list, expected: list) -> tuple[servers.Server, list]:
        """Starts a server and returns it with its answers. Raises NotStarted if `expected` is not
        empty and the answers differ from it.
        """
        server, versions = self._start(arm)
        tokens = 1 if arm.workload == "score" else 16
        found = answers.ask_all(server.address, asked, tokens)
        if wrong := answers.differences(expected or found, found):
            server.stop()
            raise servers.NotStarted(
                f"{len(wrong)} of {len(asked)} answers differ: {wrong[0][:200]}"
            )
        self.arms.append({"name": arm.name, "workload": arm.workload, "settings": arm.settings,
                          "versions": versions, "options": list(arm.options),
                          "agreed_tokens": sum(len(each.tokens) for each in found)})
        server.suspend()
        return server, found

    def _leave_out(self, name: str, workload: workloads.Workload, reason: str) -> None:
        say(f"{workload.name}: {name} is left out: {reason}")
        self.left_out.append({"name": name, "workload": workload.name, "reason": reason})

    def start_all(self, workload: workloads.Workload) -> dict[str, servers.Server]:
        """Starts the servers that can run. Sluice's packed arm is first, because the others'
        answers are compared with its answers.
        """
        asked = answers.prompts(self._options.seed, CHECKED_LENGTHS, self._shape.vocab)
        started: dict[str, servers.Server] = {}
        expected: list = []
        for arm in (each for each in ARMS if each.workload == workload.name):
            if arm.peer and arm.peer in self._options.skip:
                continue
            say(f"{workload.name}: starting {arm.name}")
            try:
                server, found = self._admit(arm, asked, expected)
            except (venvs.NotInstalled, servers.NotStarted, OSError) as error:
                self._leave_out(arm.name, workload, str(error))
                continue
            started[arm.name] = server
            expected = expected or found
        return started

    def _run(self, server: servers.Server, workload: workloads.Workload, phase: phases.Phase,
             seconds: float) -> dict:
        """Runs one phase after earlier work has ended."""
        server.resume()
        try:
            answers.ask_all(server.address, answers.prompts(0, (4,), self._shape.vocab), 1)
            return self._client.run(server, workload, phase, seconds)
        finally:
            server.suspend()

    def _round(self, server: servers.Server, workload: workloads.Workload,
               planned: list[phases.Phase], seconds: float) -> dict:
        made = {}
        for phase in planned:
            report = self._run(server, workload, phase, seconds)
            self.commit, self.host = report["commit"], report["host"]
            made[phase.name] = phases.figures(report)
        return made

    def measure(self, workload: workloads.Workload, started: dict[str, servers.Server],
                budget_s: float) -> dict:
        begun = time.monotonic()
        peaks = self._calibrate(workload, started)
        common = phases.COMMON_SHARE * max(peaks.values())
        left = budget_s - (time.monotonic() - begun)
        seconds = phases.phase_seconds(left, 3 * len(started) * self._options.rounds)
        measured: dict[str, list[dict]] = {name: [] for name in started}
        for turn, order in enumerate(phases.interleaved(list(started), self._options.rounds)):
            for name in (each for each in order if each in measured):
                try:
                    of_arm = self._round(started[name], workload, phases.phases_of(
                        workload, phases.OWN_SHARE * peaks[name], common, turn), seconds)
                except (InferenceServerException, RuntimeError) as error:
                    # The measurements of the other servers are kept.
                    self._leave_out(name, workload, f"failed when it was measured: {error}")
                    del measured[name]
                    continue
                measured[name].append(of_arm)
                say(f"{workload.name} {turn + 1}/{self._options.rounds}: {name}: "
                    f"{of_arm['closed']['answered_per_s']:.1f}/s")
        return {"name": workload.name, "title": workload.title, "concurrency": workload.concurrency,
                "objective_ms": workload.objective_ms, "seconds": seconds, "rounds": measured,
                "summary": summary.of_workload(measured)}

    def _calibrate(self, workload: workloads.Workload,
                   started: dict[str, servers.Server]) -> dict[str, float]:
        """Returns each server's approximate closed-loop rate. This also warms the servers up."""
        peaks = {}
        for name, server in started.items():
            closed = phases.phases_of(workload, 1, 1, CALIBRATION_TURN)[0]
            report = self._run(server, workload, closed, CALIBRATION_S)
            peaks[name] = max(0.1, phases.figures(report)["answered_per_s"])
            say(f"{workload.name}: {name} bears {peaks[name]:.1f}/s")
        return peaks


def compare(options: argparse.Namespace) -> dict:
    begun = time.monotonic()
    options.venvs.mkdir(parents=True, exist_ok=True)
    checkpoint.write(options.checkpoint, checkpoint.Shape(), options.seed)
    chosen = [each for each in workloads.WORKLOADS if each.name in options.workloads]
    measured, arms = [], []
    left_out = [each for each in NOT_RUN if each["workload"] in options.workloads]
    for number, workload in enumerate(chosen):
        with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
            comparison = Comparison(options, pathlib.Path(scratch), stack)
            started = comparison.start_all(workload)
            # Each remaining workload gets an equal share of the remaining time.
            left = (60 * options.minutes - (time.monotonic() - begun)) / (len(chosen) - number)
            measured.append(comparison.measure(workload, started, left))
            arms += comparison.arms
            left_out += comparison.left_out
    shape = checkpoint.Shape()
    return {
        "benchmark": "peers",
        "date": f"{datetime.date.today()}",
        "commit": comparison.commit,
        "host": comparison.host,
        "model": (
            f"Llama, {shape.layers} layers, d {shape.hidden}, {shape.heads} heads, "
            f"{shape.kv_heads} KV heads, "
            f"vocabulary {shape.vocab}"
        ),
        "options": {
            "rounds": options.rounds,
            "seed": options.seed,
            "threads": options.threads,
            "seconds": min(each["seconds"] for each in measured),
            "server_processors": options.server_processors,
            "client_processors": options.client_processors,
        },
        "arms": arms,
        "left_out": left_out,
        "workloads": measured,
    }


def parse() -> argparse.Namespace:
    processors = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    path = pathlib.Path
    build = ROOT / "build" / "release"
    parser.add_argument("--trace", type=path, required=True,
                        help="CSV with arrival_s, input_tokens, output_tokens")
    parser.add_argument("--sluiced", type=path, default=build / "server" / "sluiced")
    parser.add_argument("--sluice-load", type=path,
                        default=build / "loadtest" / "load" / "sluice-load")
    parser.add_argument("--checkpoint", type=path, default=ROOT / "build" / "peers" / "checkpoint",
                        help="folder for the weights and their conversions")
    parser.add_argument("--venvs", type=path, default=ROOT / "build" / "peers" / "venvs",
                        help="folder for the peers' packages")
    parser.add_argument(
        "--workloads",
        nargs="+",
        default=[each.name for each in workloads.WORKLOADS],
        choices=[each.name for each in workloads.WORKLOADS],
    )
    parser.add_argument("--skip", nargs="*", default=[], metavar="PEER", help="leave these out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=8.5,
                        help="of all phases; sets the length of a phase. Installing is extra")
    parser.add_argument("--start-within", type=float, default=120, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1, help="for weights and compared prompts")
    parser.add_argument("--client-processors", type=int, nargs="+", default=processors[-1:])
    parser.add_argument("--server-processors", type=int, nargs="+",
                        default=processors[:-1] or processors)
    reporting.add_options(parser)
    options = parser.parse_args()
    options.threads = len(options.server_processors)
    return options


def main() -> None:
    options = parse()
    # SIGTERM raises an exception, so that the servers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("run.py: terminated"))
    report = compare(options)
    reporting.write(options, report, summary.text(report))


if __name__ == "__main__":
    main()
