#!/usr/bin/env python3
"""Compares the predictions of sluice-simulate and sluice-size with a daemon that serves the same
arrivals.

    build/venv/bin/python loadtest/predictions.py --trace azure2023_conv.csv \\
      --out predictions.json --table predictions.md

Shrunk prompts and arrivals of a trace are sent to one sluiced at several shares of its capacity. A
separate daemon with a journal serves each load. sluice-simulate replays the journal and compares
the decisions. It also runs the journal's arrivals on virtual time, with the host's times between
steps and the machine's pace from the journal. It does so twice: with the costs that an earlier
daemon had learned (its ladder file), and with the costs of the run's own steps. sluice-size
computes from the journal of one load the growth of that load that a replica can carry. A daemon
with the advised options then serves that load and a clearly higher one. The daemon has all
processors but the last, which the client has. With --adapters, each request has one of so many
low-rank adapters of the model.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "loadtest" / "peers"))
import checkpoint  # noqa: E402
import lora  # noqa: E402
import reporting  # noqa: E402
import servers  # noqa: E402
import sluice_load  # noqa: E402
import why_tables  # noqa: E402
import workloads  # noqa: E402

MODEL = "llama"
SHAPE = checkpoint.Shape(layers=4, hidden=256, intermediate=704, heads=4)
MATRICES = [f"model.layers.{layer}.{each}_proj" for layer in range(SHAPE.layers)
            for each in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate",
                         "mlp.up", "mlp.down")]
FIGURES = ("sequences/s", "mean ms", "p50 ms", "p99 ms", "steps", "busy share")
# Shares of the growth that a replica can carry by sluice-size: one that must be carried and one
# that cannot be.
BORNE, ABOVE = 1.0, 1.3


class Run:
    """Runs daemons and loads in one folder."""

    def __init__(self, options: argparse.Namespace, scratch: pathlib.Path):
        self._options, self._scratch = options, scratch
        self._trace = scratch / "trace.csv"
        workloads.write_trace(options.trace, self._trace, rows=options.rows)
        self._count = 0

    @contextlib.contextmanager
    def daemon(self, *flags: str):
        options = self._options
        self._count += 1
        processors = options.processors[:-1] or options.processors
        address = servers.free_address()
        server = servers.Server(
            [str(options.build / "server" / "sluiced"), "--model", f"{MODEL}={options.checkpoint}",
             "--server.grpc.address", address, "--server.metrics.address", servers.free_address(),
             "--server.admin.address=", f"--cpu.threads={len(processors)}",
             "--engine.kv.prefix-reuse=false", "--engine.batch.max-batch-tokens=1024", *flags],
            address, processors, len(processors), self._scratch / f"{self._count}.log", MODEL)
        try:
            server.wait_ready(120)
            yield address
        finally:
            server.stop()

    def load(self, address: str, seconds: float, seed: int, *load: str,
             objective_ms: float = 1000) -> dict:
        options, out = self._options, self._scratch / "load.json"
        command = [
            "taskset", "-c", options.processors[-1],
            options.build / "loadtest" / "load" / "sluice-load", "run", "--server", address,
            "--model", MODEL, "--lengths", "trace", "--trace", self._trace, "--cap",
            workloads.CAP + 64, "--max-tokens", 1, "--outputs", "output_ids", "--vocab",
            SHAPE.vocab, "--adapters", options.adapters, "--seed", seed, "--warm-up", 0,
            "--duration", seconds, "--objective-ms", objective_ms, "--min-duration", 1, "--quiet",
            *load]
        return sluice_load.report_of(command, out)["phases"][0]

    def tool(self, name: str, *arguments) -> str:
        folder = "size" if name == "sluice-size" else "simulate"
        ended = subprocess.run([str(self._options.build / "loadtest" / folder / name),
                                *map(str, arguments)], capture_output=True, text=True)
        if ended.returncode:
            sys.exit(f"predictions.py: {name}: {ended.stdout} {ended.stderr}")
        return ended.stdout

    def path(self, name: str) -> pathlib.Path:
        return self._scratch / name

    def predict(self, journal: pathlib.Path, *costs) -> dict:
        out = self.path("prediction.json")
        self.tool("sluice-simulate", "--journal", journal, "--predict", "--out", out, *costs)
        return json.loads(out.read_text())


def of_load(run: Run, share: float, capacity: float, costs: pathlib.Path, options, seed: int):
    """Returns the figures of one load and its journal."""
    journal = run.path(f"{seed}-{share:g}.journal")
    with run.daemon("--engine.history.journal", str(journal)) as address:
        phase = run.load(address, options.seconds, seed, "--arrivals", "trace", "--rate",
                         f"{share * capacity:.2f}")
    replayed = run.tool("sluice-simulate", "--journal", journal).strip()
    before, own = run.predict(journal, "--costs", costs), run.predict(journal)
    return {"share": share, "replay": replayed, "measured": own["measured"], "host": own["host"],
            "slow_times": own["slow times"], "simulated": before["simulated"],
            "simulated_own_costs": own["simulated"],
            "client": {"p50 ms": phase["latency_ms"]["p50"], "p99 ms": phase["latency_ms"]["p99"],
                       "sequences/s": phase["answered_per_s"]}}, journal


def of_size(run: Run, journal: pathlib.Path, rate: float, options, seed: int) -> dict:
    """Runs the load that one replica can carry by sluice-size, and a higher one."""
    out, advice = run.path("size.json"), run.path("advice.yaml")
    text = run.tool("sluice-size", "--journal", journal, "--objective-ms", options.objective_ms,
                    "--share", options.kept, "--max-replicas", 1, "--out", out)
    advice.write_text(text[text.index("engine:"):])
    sized = json.loads(out.read_text())
    bears = sized["bears_growth"]
    made = {"bears_growth": bears, "margin": sized["margin"], "rate_per_s": rate, "loads": []}
    for share in (BORNE, ABOVE):
        with run.daemon("--config", str(advice)) as address:
            phase = run.load(address, options.seconds, seed, "--arrivals", "trace", "--rate",
                             f"{share * bears * rate:.2f}", objective_ms=options.objective_ms)
        made["loads"].append({"share": share, "within": phase["within_objective"],
                              "p99 ms": phase["latency_ms"]["p99"],
                              "offered_per_s": phase["offered_per_s"]})
    return made


def measure(options: argparse.Namespace) -> dict:
    rounds = []
    for turn in range(options.rounds):
        with contextlib.ExitStack() as stack:
            if options.folder:
                folder = options.folder / f"round_{turn + 1}"
                folder.mkdir(parents=True)
            else:
                folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            run, seed = Run(options, folder), options.seed + turn
            costs = run.path("ladder.json")
            with run.daemon("--engine.ladder.file", str(costs)) as address:
                capacity = run.load(address, options.seconds / 2, 100 + seed, "--concurrency",
                                    "32")["answered_per_s"]
            loads, sized = [], None
            for share in options.shares:
                made, journal = of_load(run, share, capacity, costs, options, seed + 1)
                loads.append(made)
                print(f"{turn + 1}/{options.rounds} {share:g}: {made}", file=sys.stderr)
                if share == options.size_from:
                    sized = journal
            size = of_size(run, sized, made_rate(loads, options), options, seed + 1)
            print(f"{turn + 1}/{options.rounds} size: {size}", file=sys.stderr)
        rounds.append({"capacity_per_s": capacity, "loads": loads, "size": size})
    return reporting.heading("predictions") | {
        "adapters": options.adapters, "rank": options.rank,
        "seconds": options.seconds, "objective_ms": options.objective_ms, "kept": options.kept,
        "size_from": options.size_from, "rounds": rounds}


def made_rate(loads: list[dict], options: argparse.Namespace) -> float:
    return next(each["measured"]["sequences/s"] for each in loads
                if each["share"] == options.size_from)


def host_lines(rounds: list[dict]) -> list[str]:
    """Returns a table of the host's times outside steps."""
    lines = ["The host's times by the journals: from an arrival while it is idle until the step "
             "begins; from the end of a step until the next one, and the extra time for each "
             "sequence of the step; and the time that each arrival adds to the step or after it.",
             "",
             "| load | to wake, ms | after a step, ms | extra per sequence, ms | per arrival, ms |",
             "|---|---|---|---|---|"]
    for place, first in enumerate(rounds[0]["loads"]):
        hosts = [each["loads"][place]["host"] for each in rounds]
        cells = [f"{statistics.median(host[key] for host in hosts):.3f}"
                 for key in ("wake ms", "turnaround ms", "turnaround ms per sequence",
                             "arrival ms")]
        lines.append(f"| {first['share']:g} | {' | '.join(cells)} |")
    return lines


def run_lines(report: dict) -> list[str]:
    """Returns the accuracy of the simulator in each run, with the run's own costs."""
    rows = [[f"{load['share']:g}", f"{turn + 1}",
             *(f"{load['measured'][figure]:.1f}" for figure in ("p50 ms", "p99 ms")),
             *(f"{why_tables.of_run(load, 'simulated_own_costs', figure):.3f}"
               for figure in ("p50 ms", "p99 ms")),
             f"{load['slow_times']['count']}", f"{load['slow_times']['pace']:.2f}"]
            for place in range(len(report["rounds"][0]["loads"]))
            for turn, each in enumerate(report["rounds"]) for load in [each["loads"][place]]]
    return ["Each run, with its own costs. The sequences above the measured 99th percentile waited "
            "or ran in `slow times` separate periods. `pace in them` is the time that work took in "
            "these periods / its time in the whole run. If there are few periods, one burst of "
            "arrivals or one stall of the machine decides the percentile; a stall shows as a pace "
            "above 1.",
            "",
            *why_tables.grid(["load", "round", "p50 ms", "p99 ms", "simulated / it, p50",
                              "simulated / it, p99", "slow times", "pace in them"], rows),
            "",
            why_tables.nearness(report)]


def of_adapters(report: dict) -> str:
    if not report["adapters"]:
        return ""
    return (f", each for one of {report['adapters']} adapters of rank {report['rank']} on all "
            "dense layers")


def table(report: dict) -> str:
    rounds = report["rounds"]
    lines = [
        "# Accuracy of the simulator",
        "",
        f"{report['date']}, {report['processor']}. A Llama of 4 layers, d 256, on one processor; "
        f"shrunk prompts and arrivals of a recorded trace{of_adapters(report)}; the next token of "
        "each. Loads are "
        f"shares of the rate of a closed loop of 32; {report['seconds']:g} s each. Latency counts "
        "from the queue to the end of the step; the client's latency counts from when a call was "
        f"due. Medians of {len(rounds)} rounds. The last two groups of columns divide the "
        "simulated figure by the figure in the daemon's journal, for the same arrivals: with the "
        "costs of an earlier daemon's ladder file, and with the costs of the run's own steps. Both "
        "use the run's host times and machine pace.",
        "",
        "| load | sequences/s | p50 ms | p99 ms | client p50 ms | client p99 ms | "
        + " | ".join(f"{each}, earlier costs" for each in FIGURES) + " | "
        + " | ".join(f"{each}, own costs" for each in FIGURES) + " |",
        "|---" * (6 + 2 * len(FIGURES)) + "|",
    ]
    decisions = 0
    for place, first in enumerate(rounds[0]["loads"]):
        loads = [each["loads"][place] for each in rounds]
        decisions += sum(int(re.search(r"identical: (\d+)", each["replay"])[1]) for each in loads)
        cells = [f"{first['share']:g}"]
        cells += [f"{statistics.median(each['measured'][key] for each in loads):.1f}"
                  for key in ("sequences/s", "p50 ms", "p99 ms")]
        cells += [f"{statistics.median(each['client'][key] for each in loads):.1f}"
                  for key in ("p50 ms", "p99 ms")]
        cells += [f"{why_tables.simulated(report, place, kind, figure):.2f}"
                  for kind in ("simulated", "simulated_own_costs") for figure in FIGURES]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"The replay of the journals made the same {decisions} decisions.",
        "",
        *run_lines(report),
        "",
        *host_lines(rounds),
        "",
        "## sluice-size's advice",
        "",
        f"From the journal of the load {report['size_from']:g}: the growth that one replica can "
        f"carry with {100 * report['kept']:g} % of the sequences within "
        f"{report['objective_ms']:g} ms, if steps take "
        f"{100 * rounds[0]['size']['margin']:g} % longer than recorded. A daemon "
        f"with the advised options then served {BORNE:g} and {ABOVE:g} times that.",
        "",
        "| round | growth that one replica can carry | " + " | ".join(
            f"within the objective at {share:g} of it | p99 ms" for share in (BORNE, ABOVE)) + " |",
        "|---|---|---|---|---|---|",
    ]
    for turn, each in enumerate(rounds):
        cells = [f"{turn + 1}", f"{each['size']['bears_growth']:.2f}"]
        for load in each["size"]["loads"]:
            cells += [f"{100 * load['within']:.1f} %", f"{load['p99 ms']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    path = pathlib.Path
    parser.add_argument("--trace", type=path, required=True,
                        help="CSV with arrival_s, input_tokens, output_tokens")
    parser.add_argument("--build", type=path, default=ROOT / "build" / "release")
    parser.add_argument("--checkpoint", type=path,
                        default=ROOT / "build" / "peers" / "predictions",
                        help="folder for the random Llama")
    parser.add_argument("--folder", type=path, help="keeps journals, costs and logs here")
    parser.add_argument("--adapters", type=int, default=0, help="requests are for one of so many")
    parser.add_argument("--rank", type=int, default=16, help="of the adapters")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.3, 0.5, 0.7, 0.85])
    parser.add_argument("--size-from", type=float, default=0.5, help="one of the shares")
    parser.add_argument("--objective-ms", type=float, default=100, help="for sluice-size")
    parser.add_argument("--kept", type=float, default=0.95, help="share within the objective")
    parser.add_argument("--rows", type=int, default=4096, help="of the trace, used repeatedly")
    parser.add_argument("--seconds", type=float, default=15, help="per load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="for arrivals; 1 more each round")
    reporting.add_options(parser)
    options = parser.parse_args()
    if options.adapters:
        options.checkpoint = options.checkpoint.with_name(
            f"{options.checkpoint.name}_{options.adapters}_adapters_{options.rank}")
    options.processors = sorted(os.sched_getaffinity(0))
    checkpoint.write(options.checkpoint, SHAPE, seed=1)
    for i in range(options.adapters):
        folder = options.checkpoint / "adapters" / f"a{i}"
        if not folder.exists():
            lora.write(folder, checkpoint.read(options.checkpoint)[1], MATRICES, options.rank,
                       seed=100 + i)
    report = measure(options)
    reporting.write(options, report, table(report))


if __name__ == "__main__":
    main()
