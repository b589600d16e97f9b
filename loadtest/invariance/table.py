"""Prints the counts of the scoreboard as Markdown."""

import textwrap

from company import TASKS
from why_tables import absence

HEADS = {"mean_patterns": "patterns a request", "most_patterns": "most",
         "changed": "requests that changed", "largest_difference": "largest difference",
         "flips": "labels that flipped", "reordered": "top 10 that changed"}
TEXT_HEADS = {"mean_patterns": "texts a request"}


def cell(key: str, value: float | int | None) -> str:
    if value is None:
        return ""
    if key == "mean_patterns":
        return f"{value:.4g}"
    return f"{value:.1e}" if key == "largest_difference" and value else f"{value:g}"


def task_lines(name: str, task: dict[str, dict], contenders: list[str]) -> list[str]:
    rows = task["rows"]
    keys = [key for key in HEADS if any(row[key] is not None for row in rows.values())]
    heads = [(TEXT_HEADS if name == "text" else {}).get(key, HEADS[key]) for key in keys]
    lines = [f"## {TASKS[name].title}", "", f"| | {' | '.join(heads)} |",
             f"|---|{'---|' * len(keys)}"]
    for contender in contenders:
        cells = ([cell(key, rows[contender][key]) for key in keys] if contender in rows else
                 [absence(contender, task)] + [""] * (len(keys) - 1))
        lines.append(f"| {contender} | {' | '.join(cells)} |")
    if batched := [f"{rows[each]['rows_a_step']:.1f} ({each})" for each in contenders
                   if each in rows and rows[each]["rows_a_step"]]:
        lines += ["", "Mean rows per step of Sluice, including requests by themselves: "
                  f"{', '.join(batched)}."]
    lines += [f"\n{each} is left out: {task['left_out'][each]}." for each in contenders
              if each in task["left_out"]]
    return [*lines, ""]


def minutes(report: dict, key: str) -> float:
    """Returns the sum of the seconds of all arms, in minutes."""
    return sum(row[key] for task in report["tasks"].values()
               for row in task["rows"].values()) / 60


def markdown(report: dict) -> str:
    lines = [
        "# How many answers a request has",
        "",
        *textwrap.wrap(
            f"{report['date']}, {report['processor']}. {report['count']} requests of each kind, "
            f"each answered in {report['companies']} groupings: by itself, and among the others in "
            "random orders and groups of 1 to 32. The table counts the distinct answers of a "
            "request, bit by bit. The largest difference is between one value's answers in two "
            "groupings, divided by the largest value of all. All contenders use the same random "
            "weights from a seed: an encoder of the size of paraphrase-MiniLM-L3-v2, with and "
            "without a classifier of 8 labels, and a Llama of 4 layers, d 256, 24 greedy tokens. "
            "Libraries run in process and compute each group as one padded batch (`tei`: "
            "onnxruntime in batches by TEI's rule; llama.cpp: no padding). Sluice gets each group "
            "through gRPC as concurrent calls of one or more rows. "
            f"Each had {report['threads']} thread(s), and {report['jobs']} ran at a time: "
            f"{minutes(report, 'cpu_s'):.0f} minutes of processor time of all of them, "
            f"{minutes(report, 'seconds') / report['jobs']:.0f} minutes on the clock.", 100,
            break_on_hyphens=False),
        "",
    ]
    for name in TASKS:
        if name in report["tasks"]:
            lines += task_lines(name, report["tasks"][name], report["contenders"])
    reasons = {f"{contender.split()[0]}, {TASKS[name].title.split(':')[0].lower()}": reason
               for name, task in report["tasks"].items()
               for contender, reason in task["does_not"].items()}  # once for all precisions
    if reasons:
        lines += ["## Tasks that a contender cannot do", ""]
        lines += [f"- {what}: {reason}." for what, reason in reasons.items()]
    return "\n".join(lines).rstrip() + "\n"
