"""Summarises the phases of all rounds as medians, spreads and ratios, and as a table."""

import re
import statistics

FIGURES = (
    "answers_per_cpu_s",
    "offered_per_s",
    "answered_per_s",
    "goodput_per_s",
    "p50_ms",
    "p99_ms",
)
REFERENCE = "sluice packed"


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def of_phases(rounds: list[dict], phase: str) -> dict:
    """Returns the spread of each figure over the rounds of one arm, each {phase: figures}, and the
    number of rounds that are not VALID. Percentiles cover only rounds with answers.
    """
    made = {}
    for figure in FIGURES:
        values = [each[phase][figure] for each in rounds
                  if not figure.endswith("_ms") or each[phase]["answered_per_s"] > 0]
        if values:
            made[figure] = spread(values)
    return made | {"invalid": sum(each[phase]["verdict"] != "VALID" for each in rounds)}


def of_arm(rounds: list[dict]) -> dict:
    best = [max(each[phase]["goodput_per_s"] for phase in ("own", "common")) for each in rounds]
    return {phase: of_phases(rounds, phase) for phase in ("closed", "own", "common")} | {
        "goodput_per_s": spread(best)}


def ratios(reference: dict, other: dict) -> dict[str, float | None]:
    """Returns the reference's figures divided by the other's; None if the other has none."""
    def ratio(ours: float, theirs: float) -> float | None:
        return ours / theirs if theirs > 0 else None

    return {
        "throughput": ratio(reference["closed"]["answered_per_s"]["median"],
                            other["closed"]["answered_per_s"]["median"]),
        "answers per CPU second": ratio(reference["closed"]["answers_per_cpu_s"]["median"],
                                        other["closed"]["answers_per_cpu_s"]["median"]),
        "goodput": ratio(reference["goodput_per_s"]["median"], other["goodput_per_s"]["median"]),
        "goodput at the common load": ratio(reference["common"]["goodput_per_s"]["median"],
                                            other["common"]["goodput_per_s"]["median"]),
    }


def of_workload(measured: dict[str, list[dict]]) -> dict:
    """Returns the summary of `measured`, which is {arm: its rounds}."""
    arms = {name: of_arm(rounds) for name, rounds in measured.items()}
    return {"arms": arms, "sluice_over": {name: ratios(arms[REFERENCE], arm)
                                          for name, arm in arms.items() if name != REFERENCE}}


def cell(figure: dict[str, float] | None, digits: int = 1) -> str:
    if figure is None:
        return "none"
    low, high = figure["min"], figure["max"]
    return f"{figure['median']:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def number(value: float | None, digits: int = 2) -> str:
    return "no answer in time" if value is None else f"{value:.{digits}f}"


def arm_row(name: str, arm: dict) -> str:
    own, common = arm["own"], arm["common"]
    cells = [name, cell(arm["closed"]["answered_per_s"]),
             cell(arm["closed"]["answers_per_cpu_s"]), cell(arm["goodput_per_s"]),
             cell(own.get("offered_per_s")), cell(own.get("p50_ms"), 0), cell(own.get("p99_ms"), 0),
             cell(common["goodput_per_s"]), cell(common.get("p50_ms"), 0),
             cell(common.get("p99_ms"), 0)]
    return f"| {' | '.join(cells)} |"


def workload_text(workload: dict) -> list[str]:
    summary = workload["summary"]
    offered = next(iter(summary["arms"].values()))["common"]["offered_per_s"]["median"]
    lines = [
        f"## {workload['title']}",
        "",
        f"Objective {workload['objective_ms']} ms. Offered to each: 80 % of its own rate in a "
        f"closed "
        f"loop of {workload['concurrency']}, and {offered:.1f}/s to all.",
        "",
        "| server | closed loop, answers/s | answers / CPU s | goodput/s, the better load | 80 %: "
        "offered/s | "
        "p50 ms | p99 ms | common load: goodput/s | p50 ms | p99 ms |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(arm_row(name, arm) for name, arm in summary["arms"].items()),
        "",
        f"| {REFERENCE} / other | closed loop | answers / CPU s | goodput, the better load | "
        f"goodput, "
        f"common load |",
        "|---|---|---|---|---|",
    ]
    for name, ratio in summary["sluice_over"].items():
        lines.append(f"| {name} | {' | '.join(number(value) for value in ratio.values())} |")
    return [*lines, ""]


def arms_text(arms: list[dict]) -> list[str]:
    lines = ["## Settings", "", "| server | work | versions | settings |", "|---|---|---|---|"]
    for arm in arms:
        versions = ", ".join(f"{name} {version}" for name, version in arm["versions"].items())
        lines.append(f"| {arm['name']} | {arm['workload']} | {versions} | {arm['settings']} |")
    return [*lines, ""]


def agreement_text(arms: list[dict]) -> list[str]:
    tokens = sum(arm["agreed_tokens"] for arm in arms)
    return [
        f"Before the measurement, each server gave the same {tokens // max(len(arms), 1)} "
        f"greedy "
        "tokens on average as Sluice's packed arm, and log-probabilities within 0.002 if it "
        "reports them.",
        "",
    ]


def left_out_text(left_out: list[dict]) -> list[str]:
    if not left_out:
        return []
    return ["## Not run", "", *(f"- {each['name']} ({each['workload']}): {each['reason']}"
                                for each in left_out), ""]


def invalid_text(workloads: list[dict]) -> list[str]:
    reasons: dict[str, int] = {}
    for workload in workloads:
        for rounds in workload["rounds"].values():
            for phase in (phase for each in rounds for phase in each.values()):
                for reason in phase["reasons"]:
                    kind = re.sub(r"[\d.]+", "..", reason)
                    reasons[kind] = reasons.get(kind, 0) + 1
    return [f"- {count} phases are INVALID: {kind}" for kind, count in sorted(reasons.items())]


def text(report: dict) -> str:
    host, options = report["host"], report["options"]
    return (
        "\n".join(
            [
                "# Sluice and its alternatives",
                "",
                f"{report['date']}, commit {report['commit']}, {host['processor']}, "
                f"{host['processors']} processors: the servers on processor "
                f"{options['server_processors']} with "
                f"{options['threads']} compute thread(s), the client on "
                f"{options['client_processors']}. The same "
                f"random weights for all, f32 throughout: {report['model']}. Prompts and arrivals "
                f"of a recorded "
                f"trace, shrunk. Medians of {options['rounds']} interleaved rounds (minimum to "
                f"maximum), phases "
                f"of {options['seconds']:.1f} s; an answer after twice the objective is dropped.",
                "",
                *agreement_text(report["arms"]),
                *(line for workload in report["workloads"] for line in workload_text(workload)),
                *arms_text(report["arms"]),
                *left_out_text(report["left_out"]),
                *invalid_text(report["workloads"]),
            ]
        ).rstrip()
        + "\n"
    )
