"""Prints the counts of the scoreboard as Markdown."""

import pathlib

from company import TASKS

HEADS = {"mean_patterns": "patterns a request", "most_patterns": "most",
         "changed": "requests that changed", "largest_difference": "largest difference",
         "flips": "labels that flipped", "reordered": "top 10 that changed"}


def processor() -> str:
    return next(line.split(":")[1].strip() for line in
                pathlib.Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line)


def cell(key: str, value: float | int | None) -> str:
    if value is None:
        return ""
    if key == "mean_patterns":
        return f"{value:.3g}"
    return f"{value:.1e}" if key == "largest_difference" and value else f"{value:g}"


def task_lines(name: str, rows: dict[str, dict]) -> list[str]:
    rows = dict(sorted(rows.items(), key=lambda item: not item[0].startswith("sluice")))
    keys = [key for key in HEADS if any(row[key] is not None for row in rows.values())]
    heads = [HEADS[key] if name != "text" or key != "mean_patterns" else "texts a request"
             for key in keys]
    lines = [f"## {TASKS[name].title}", "", f"| | {' | '.join(heads)} |",
             f"|---|{'---|' * len(keys)}"]
    for contender, row in rows.items():
        lines.append(f"| {contender} | {' | '.join(cell(key, row[key]) for key in keys)} |")
    batched = [f"{row['rows_a_step']:.1f} ({contender})" for contender, row in rows.items()
               if row["rows_a_step"]]
    if batched:
        lines += ["", f"Mean rows of a step of Sluice: {', '.join(batched)}."]
    return [*lines, ""]


def markdown(report: dict) -> str:
    lines = [
        "# How many answers a request has",
        "",
        f"{report['date']}, {report['processor']}, {report['threads']} threads.",
        f"{report['count']} requests of each kind, each answered in {report['companies']}",
        "companies: alone, and among the others in random orders and groups of 1 to 32. Counted",
        "are the distinct answers of a request, bit by bit; the largest difference is that of one",
        "value between two companies, over the largest value of all. Random weights from a seed,",
        "the same for all: an encoder of MiniLM's size, with and without a classifier of 8 labels,",
        "and a Llama of 4 layers, d 256, 32 greedy tokens. Libraries run in process, each group as",
        "one padded batch (`tei`: onnxruntime in batches by TEI's rule); Sluice through gRPC, each",
        "group from as many callers at once.",
        "",
    ]
    for name in TASKS:
        if name in report["tasks"]:
            lines += task_lines(name, report["tasks"][name]["rows"])
            lines += [f"{contender} is left out: {reason}\n" for contender, reason
                      in report["tasks"][name]["left_out"].items()]
    return "\n".join(lines).rstrip() + "\n"
