"""Plans the phases, their order and their duration, and runs one of them with sluice-load."""

import pathlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from arms import MODEL
from servers import Server
from workloads import CAP, Workload

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import sluice_load  # noqa: E402

OWN_SHARE = 0.8  # the offered share of the server's own closed-loop rate
COMMON_SHARE = 0.7  # the share of the best server's closed-loop rate, offered to all
PERCENTILE = 50  # so that a phase of 20 calls can be VALID; it has no other effect
WARM_UP_S = 1.0
OVERHEAD_S = 1.0  # per phase, for connections, the warm-up's answers and the last answers


@dataclass(frozen=True)
class Phase:
    name: str  # closed, own or common
    load: tuple[str, ...]
    seed: int


def interleaved(names: Sequence[str], rounds: int) -> list[list[str]]:
    """Returns the order of each round. It rotates, so that a server does not always run first or
    after the same server.
    """
    return [list(names[turn % len(names):]) + list(names[: turn % len(names)])
            for turn in range(rounds)]


def phase_seconds(budget_s: float, phases: int) -> float:
    """Returns the duration of each phase, at least 2 s, so that all phases together use the budget.
    """
    return max(2.0, budget_s / phases - WARM_UP_S - OVERHEAD_S)


def phases_of(workload: Workload, own_rate: float, common_rate: float, turn: int) -> list[Phase]:
    """Returns the phases of one arm in one round. Contents differ between phases, so that no cache
    helps, and are the same for all arms.
    """
    def offered(rate: float) -> tuple[str, ...]:
        return ("--arrivals", "trace", "--rate", f"{rate:.2f}",
                "--deadline-ms", str(2 * workload.objective_ms))

    loads = {"closed": ("--concurrency", str(workload.concurrency)), "own": offered(own_rate),
             "common": offered(common_rate)}
    return [Phase(name, load, 3 * turn + number + 1)
            for number, (name, load) in enumerate(loads.items())]


class Client:
    """Runs sluice-load on its own processors."""

    def __init__(self, binary: pathlib.Path, processors: list[int], trace: pathlib.Path,
                 vocabulary: int, scratch: pathlib.Path):
        self._prefix = ["taskset", "-c", ",".join(map(str, processors)), str(binary), "run"]
        self._trace, self._vocabulary, self._out = trace, vocabulary, scratch / "phase.json"

    def run(self, server: Server, workload: Workload, phase: Phase, seconds: float) -> dict:
        command = [
            *self._prefix, "--server", server.address, "--model", MODEL, "--outputs", "output_ids",
            "--lengths", "trace", "--trace", self._trace, "--cap", CAP + 64,
            "--max-tokens", workload.max_tokens, "--vocab", self._vocabulary, "--variants", 1 << 20,
            "--seed", phase.seed, "--warm-up", WARM_UP_S, "--duration", f"{seconds:.2f}",
            "--min-duration", f"{seconds - 0.1:.2f}", "--min-calls", 1, "--percentile", PERCENTILE,
            "--objective-ms", workload.objective_ms, "--quiet", *phase.load]
        before = server.cpu_seconds()
        report = sluice_load.report_of(command, self._out)
        return report | {"cpu_s": server.cpu_seconds() - before}


def figures(report: dict) -> dict:
    """Returns the figures of a phase. Both the server's processor time and the number of answers
    that divides it include the warm-up.
    """
    phase = report["phases"][0]
    answers = sum(second["answers"] for second in phase["seconds"])
    return {"answers_per_cpu_s": answers / max(report["cpu_s"], 1e-3),
            "offered_per_s": phase["offered_per_s"], "answered_per_s": phase["answered_per_s"],
            "goodput_per_s": phase["goodput_per_s"], "p50_ms": phase["latency_ms"]["p50"],
            "p99_ms": phase["latency_ms"]["p99"], "calls": phase["calls"],
            "outcomes": phase["outcomes"], "verdict": phase["verdict"],
            "reasons": phase.get("reasons", [])}
