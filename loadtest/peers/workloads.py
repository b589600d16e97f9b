"""The workloads: lengths and arrivals of a recorded trace, shrunk to the model."""

import csv
import itertools
import math
import pathlib
from dataclasses import dataclass

TRACE_POSITIONS = 8192  # prompts of the trace with this length or more
CAP = 256  # become this long
# The first rows of the trace are repeated, so that a phase has all of them and their mean rate.
ROWS = 64


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    max_tokens: str  # as sluice-load's --max-tokens
    objective_ms: int
    concurrency: int  # of the closed loop


WORKLOADS = (
    Workload("score", "Next token of a prompt", "1", 500, 16),
    Workload("generate", "Greedy generation", "trace", 2000, 8),
)


def shrunk(tokens: int) -> int:
    return max(1, math.ceil(tokens * CAP / TRACE_POSITIONS))


def shrink(row: dict[str, str], answer_divisor: int) -> dict[str, str]:
    answer = max(1, math.ceil(int(row["output_tokens"]) / answer_divisor))
    return {"arrival_s": row["arrival_s"], "input_tokens": str(shrunk(int(row["input_tokens"]))),
            "output_tokens": str(answer)}


def write_trace(trace: pathlib.Path, to: pathlib.Path, answer_divisor: int = 16,
                rows: int = ROWS) -> None:
    """Writes the trace's first `rows`, with prompts shrunk from TRACE_POSITIONS to CAP and answers
    divided by `answer_divisor`.
    """
    with trace.open(newline="") as source, to.open("w", newline="") as target:
        made = csv.DictWriter(target, ["arrival_s", "input_tokens", "output_tokens"])
        made.writeheader()
        made.writerows(shrink(row, answer_divisor)
                       for row in itertools.islice(csv.DictReader(source), rows))
