#!/usr/bin/env python3
"""Measures for how long calls are late or fail after an overload, a killed replica, and a reload.

    build/venv/bin/python loadtest/recovery.py --out recovery.json --table recovery.md

A steady open loop of calls runs from before the event until after it. A call is late if it takes
longer than LATE times the 99th percentile before the event. The recovery lasts from the end of the
event until the last late or failed call was sent before IN_TIME calls in a row that are answered in
time. It is 0 if these calls begin at the end of the event. The events:
an overload of ten seconds at ten times the capacity, with deadlines, without deadlines, and with
limits on the wait and on the requests; one of two replicas behind Envoy is killed; a reload
replaces the model's version; and no event, which shows how many calls the machine itself makes
late. Needs sluice-load, tritonclient, grpcio and Envoy (build/venv has the last three).
"""

import argparse
import asyncio
import contextlib
import dataclasses
import multiprocessing
import pathlib
import signal
import statistics
import sys
import tempfile
import time

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "deploy"))  # before the package in Envoy's wheel
import reporting  # noqa: E402
import sluice_load  # noqa: E402
from envoy import Envoy  # noqa: E402
from lateness import IN_TIME, LATE, Call, figures  # noqa: E402
from processes import BUILD, DEMO, Daemon, wait_until  # noqa: E402

METHOD = "/inference.GRPCInferenceService/ModelInfer"
BEFORE_S, AFTER_S = 3.0, 6.0
CALIBRATION_S = 3.0
NO_DEADLINE_S = 0.0  # of sluice-load
SLUICE_LOAD = BUILD / "loadtest" / "load" / "sluice-load"


@dataclasses.dataclass(frozen=True)
class Traffic:
    prompt: int
    tokens: int

    def message(self, random: np.random.Generator) -> bytes:
        length = int(random.integers(self.prompt // 2, self.prompt + 1))
        ids = random.integers(0, 256, length).astype("<i4")
        made = service_pb2.ModelInferRequest(model_name="demo",
                                             raw_input_contents=[ids.tobytes()])
        made.inputs.add(name="input_ids", datatype="INT32", shape=[1, length])
        made.parameters["max_tokens"].int64_param = self.tokens
        made.parameters["ignore_eos"].bool_param = True
        return made.SerializeToString()


class Caller:
    """Sends calls on one channel and records them."""

    def __init__(self, channel: grpc.aio.Channel, traffic: Traffic, seed: int):
        self._infer = channel.unary_unary(METHOD)
        self._traffic, self._random = traffic, np.random.default_rng(seed)
        self.calls: list[Call] = []

    async def call(self, timeout_s: float) -> None:
        due = time.monotonic()
        try:
            await self._infer(self._traffic.message(self._random), timeout=timeout_s)
            status = "OK"
        except grpc.aio.AioRpcError as error:
            status = error.code().name
        self.calls.append(Call(due, time.monotonic() - due, status))

    async def open_loop(self, rate: float, seconds: float, timeout_s: float) -> None:
        """Sends at constant intervals, so that bursts do not make calls late."""
        begun, tasks, count = time.monotonic(), set(), 0
        while (due := count / rate) < seconds:
            await asyncio.sleep(max(0.0, begun + due - time.monotonic()))
            tasks.add(asyncio.create_task(self.call(timeout_s)))
            count += 1
        await asyncio.gather(*tasks)

    async def closed_loop(self, callers: int, seconds: float) -> float:
        """Returns the number of answered calls per second."""
        end = time.monotonic() + seconds

        async def one() -> None:
            while time.monotonic() < end:
                await self.call(60)

        await asyncio.gather(*(one() for _ in range(callers)))
        return sum(call.status == "OK" for call in self.calls) / seconds


def in_channel(address: str, traffic: Traffic, seed: int, work) -> Caller:
    """Runs `work(caller)` on a new channel and returns the caller."""
    async def run() -> Caller:
        async with grpc.aio.insecure_channel(address) as channel:
            caller = Caller(channel, traffic, seed)
            await work(caller)
            return caller

    return asyncio.run(run())


def _send(pipe, address, traffic, seed, rate, seconds, timeout_s) -> None:
    caller = in_channel(address, traffic, seed,
                        lambda made: made.open_loop(rate, seconds, timeout_s))
    pipe.send(caller.calls)


class Sender:
    """An open loop in its own process."""

    def __init__(self, *arguments):
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_send, args=(theirs, *arguments))
        self._process.start()

    def calls(self) -> list[Call]:
        made = self._pipe.recv()
        self._process.join()
        return made


class Measurement:
    def __init__(self, options, folder: pathlib.Path):
        self._options, self._folder = options, folder
        self._traffic = Traffic(options.prompt, options.tokens)

    def _capacity(self, address: str, callers: int | None = None) -> float:
        found = []

        async def work(caller: Caller) -> None:
            found.append(await caller.closed_loop(callers or self._options.concurrency,
                                                  CALIBRATION_S))

        in_channel(address, self._traffic, 1, work)
        return found[0]

    def _steady(self, address: str, rate: float, seconds: float, seed: int) -> Sender:
        return Sender(address, self._traffic, seed, rate, seconds, 60)

    def _flood(self, address: str, rate: float, deadline_s: float, seed: int) -> sluice_load.Run:
        """Starts the overload with sluice-load, because Python cannot send calls at this rate."""
        traffic, options = self._traffic, self._options
        return sluice_load.Run((
            SLUICE_LOAD, "run", "--server", address, "--arrivals", "constant", "--rate", rate,
            "--duration", options.seconds, "--warm-up", 0, "--deadline-ms", 1e3 * deadline_s,
            "--lengths", f"uniform:{traffic.prompt // 2}:{traffic.prompt}",
            "--cap", traffic.prompt + traffic.tokens, "--max-tokens", traffic.tokens,
            "--parameter", "ignore_eos", "true", "--variants", 16, "--seed", seed, "--quiet"),
            self._folder / "flood.json")

    def overload(self, deadline_s: float, seed: int, *flags: str,
                 callers: int | None = None) -> dict:
        options = self._options
        with Daemon(self._folder, "--engine.kv.prefix-reuse=false", *flags) as daemon:
            self._capacity(daemon.grpc, callers)  # the daemon learns the costs
            capacity = self._capacity(daemon.grpc, callers)
            steady = self._steady(daemon.grpc, options.share * capacity,
                                  BEFORE_S + options.seconds + options.after, seed)
            time.sleep(BEFORE_S)
            # The overload ends later than this, by the time that its process took to start.
            begin = time.monotonic()
            flood = self._flood(daemon.grpc, options.times * capacity, deadline_s, seed + 1)
            time.sleep(options.seconds)
            left = {each: daemon.metric(f"sluice_requests_{each}")
                    for each in ("waiting", "running")}
            calls = steady.calls()
            sent = flood.report()["phases"][0]
        return figures(calls, begin, begin + options.seconds) | {
            "capacity_per_s": capacity, "flood_per_s": sent["offered_per_s"],
            "flood_answered_per_s": sent["answered_per_s"], "left": left,
            "flood_latency_ms": sent["latency_ms"]["mean"]}

    def nothing(self, seed: int) -> dict:
        with Daemon(self._folder) as daemon:
            capacity = self._capacity(daemon.grpc)
            steady = self._steady(daemon.grpc, self._options.share * capacity,
                                  BEFORE_S + 2 * AFTER_S, seed)
            time.sleep(BEFORE_S)
            at = time.monotonic()
            return figures(steady.calls(), at, at) | {"capacity_per_s": capacity}

    def killed(self, seed: int) -> dict:
        with contextlib.ExitStack() as stack:
            replicas = [stack.enter_context(Daemon(self._folder)) for _ in range(2)]
            envoy = stack.enter_context(Envoy(self._folder, [each.ports[0] for each in replicas]))
            wait_until(lambda: envoy.healthy() == 2, "2 healthy replicas")
            capacity = self._capacity(envoy.address)
            steady = self._steady(envoy.address, self._options.share * capacity,
                                  BEFORE_S + AFTER_S, seed)
            time.sleep(BEFORE_S)
            at = time.monotonic()
            replicas[0].kill()
            return figures(steady.calls(), at, at) | {"capacity_per_s": capacity}

    def reload(self, seed: int) -> dict:
        config = self._folder / "config.yaml"

        def write(version: int) -> None:
            config.write_text(f"models:\n  - name: demo\n    path: {DEMO}\n"
                              f"    version: {version}\n")

        write(1)
        with Daemon(self._folder, "--config", config, model=None) as daemon:
            capacity = self._capacity(daemon.grpc)
            steady = self._steady(daemon.grpc, self._options.share * capacity,
                                  BEFORE_S + 2 * AFTER_S, seed)
            time.sleep(BEFORE_S)
            write(2)
            at = time.monotonic()
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: daemon.metric("sluice_config_reloads_total", result="ok") > 0,
                       "the reload")
            end = time.monotonic()
            return figures(steady.calls(), at, end) | {"capacity_per_s": capacity}


def measure(options) -> dict:
    events = {
        f"overload, deadlines of {options.deadline_s:g} s":
            lambda run, seed: run.overload(options.deadline_s, seed),
        "overload, no deadlines": lambda run, seed: run.overload(NO_DEADLINE_S, seed),
        f"overload, no deadlines, max_wait {options.max_wait}":
            lambda run, seed: run.overload(NO_DEADLINE_S, seed,
                                           f"--engine.queue.max-wait={options.max_wait}"),
        f"overload, no deadlines, max_requests {options.max_requests}":
            lambda run, seed: run.overload(NO_DEADLINE_S, seed,
                                           f"--engine.queue.max-requests={options.max_requests}",
                                           callers=options.max_requests // 2),
        "a replica of two killed": lambda run, seed: run.killed(seed),
        "a reload": lambda run, seed: run.reload(seed),
        "nothing": lambda run, seed: run.nothing(seed),
    }
    rounds: dict[str, list[dict]] = {name: [] for name in events}
    for turn in range(options.rounds):
        for name, event in events.items():
            if options.events and not any(each in name for each in options.events):
                continue
            with tempfile.TemporaryDirectory() as folder:
                rounds[name].append(event(Measurement(options, pathlib.Path(folder)),
                                          options.seed + 10 * turn))
            print(f"{turn + 1}/{options.rounds} {name}: {rounds[name][-1]}", file=sys.stderr)
    return reporting.heading("recovery") | {
            "options": reporting.options_of(options), "rounds": rounds}


def table(report: dict) -> str:
    options = report["options"]
    lines = [
        "# Recovery",
        "",
        f"{report['date']}, {report['processor']}. The demo model, prompts of "
        f"{options['prompt'] // 2} to {options['prompt']} tokens, {options['tokens']} generated. "
        f"A steady open loop at {options['share']:g} of the capacity. The overload adds "
        f"{options['seconds']:g} s at {options['times']:g} times the capacity. A call is "
        f"late above {LATE:g} times the 99th percentile before the event. The recovery lasts "
        "from the event's end until the last late or failed call before "
        f"{IN_TIME} calls in a row that are answered in time. Clients, Envoy and daemons share the "
        f"processors. Medians of {options['rounds']} rounds (all of them).",
        "",
        "| event | recovery ms | in mean latencies | mean latency before, ms | p99 before, ms | "
        "mean of the answered calls of the overload, ms | waiting, running at its end | "
        "worst during, ms | late calls after | worst after, ms | "
        "steady calls refused or failed |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rounds in report["rounds"].items():
        if not rounds:
            continue

        def median(key, rounds=rounds):
            return statistics.median(each[key] for each in rounds)

        each_of = ", ".join(f"{each['recovery_ms']:.0f}" for each in rounds)
        share = statistics.median(each["recovery_ms"] / each["service_ms"] for each in rounds)
        failed = sum(sum(each["failed"].values()) for each in rounds)
        flood, left = "", ""
        if "left" in rounds[0]:
            flood = f"{median('flood_latency_ms'):.0f}"
            left = ", ".join(f"{statistics.median(each['left'][kind] for each in rounds):.0f}"
                             for kind in ("waiting", "running"))
        lines.append(f"| {name} | {median('recovery_ms'):.0f} ({each_of}) | {share:.1f} | "
                     f"{median('service_ms'):.1f} | {median('p99_before_ms'):.1f} | "
                     f"{flood} | {left} | {median('worst_during_ms'):.1f} | "
                     f"{median('late_after'):.0f} | "
                     f"{median('worst_after_ms'):.1f} | {failed} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", nargs="+", help="events whose names contain one of these")
    parser.add_argument("--prompt", type=int, default=64, help="longest prompt, tokens")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--concurrency", type=int, default=48, help="of the closed loop")
    parser.add_argument("--times", type=float, default=10, help="overload / capacity")
    parser.add_argument("--share", type=float, default=0.2, help="steady load / capacity")
    parser.add_argument("--seconds", type=float, default=10, help="length of the overload")
    parser.add_argument("--after", type=float, default=8, help="seconds after the overload")
    parser.add_argument("--deadline-s", type=float, default=2, help="of the overload's calls")
    parser.add_argument("--max-wait", default="100ms", help="engine.queue.max_wait of one event")
    parser.add_argument("--max-requests", type=int, default=8,
                        help="engine.queue.max_requests of one event; its capacity is measured "
                             "with half as many callers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="for the prompts; 10 more each round")
    reporting.add_options(parser)
    options = parser.parse_args()
    report = measure(options)
    reporting.write(options, report, table(report))


if __name__ == "__main__":
    main()
