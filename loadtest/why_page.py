#!/usr/bin/env python3
"""Makes docs/why.md and loadtest/results/why.html from the results of why_template.txt's commands.

docs/why.md has the text of the template. why.html is a self-contained page with each table in full,
its command and plots.

    build/venv/bin/python loadtest/why_page.py
"""

import argparse
import html
import json
import pathlib
import re
import statistics
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from why_tables import TABLES, behind

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "loadtest" / "results"
TEMPLATE = ROOT / "loadtest" / "why_template.txt"
WIDTH, BAR, GAP = 640, 16, 5

Bars = list[tuple[str, float]]


def rounds_of(name: str) -> Callable[[dict], list[tuple[str, Bars]]]:
    """Returns a function from a report of encoders to plots of its closed loop."""
    def plots(report: dict) -> list[tuple[str, Bars]]:
        return [(f"{name}: texts per second, closed loop",
                 [(contender, statistics.median(each["closed"]["per_s"] for each in rounds))
                  for contender, rounds in report["rounds"].items()])]

    return plots


def invariance(report: dict) -> list[tuple[str, Bars]]:
    return [(f"{task}: answers of a request (1: the same answer in any batch)",
             [(name, made["rows"][name]["mean_patterns"]) for name in report["contenders"]
              if name in made["rows"]])
            for task, made in report["tasks"].items()]


def price(report: dict) -> list[tuple[str, Bars]]:
    return [(f"{kind}: our time / the free order's",
             [(name, statistics.median(each)) for name, each in report[kind].items()])
            for kind in ("products", "attention")]


def recovery(report: dict) -> list[tuple[str, Bars]]:
    return [("milliseconds until no call is late",
             [(name, statistics.median(each["recovery_ms"] for each in rounds))
              for name, rounds in report["rounds"].items() if rounds])]


def predictions(report: dict) -> list[tuple[str, Bars]]:
    def over(place: int, figure: str) -> float:
        return statistics.median(
            each["loads"][place]["simulated_own_costs"][figure] /
            each["loads"][place]["measured"][figure] for each in report["rounds"])

    loads = report["rounds"][0]["loads"]
    return [(f"{figure}: simulated over measured, costs of the run",
             [(f"load {load['share']:g}", over(place, figure))
              for place, load in enumerate(loads)])
            for figure in ("sequences/s", "p50 ms", "p99 ms")]


def decoders_of(title: str) -> Callable[[dict], list[tuple[str, Bars]]]:
    def plots(report: dict) -> list[tuple[str, Bars]]:
        return [(f"{title}{work}: tokens per second",
                 [(name, statistics.median(of)) for name, of in rates.items()])
                for work, rates in report["rates"].items()]

    return plots


@dataclass(frozen=True)
class Part:
    name: str  # of the results' files
    plots: Callable[[dict], list[tuple[str, Bars]]]


PARTS = (Part("invariance", invariance), Part("invariance_price", price),
         Part("encoders_minilm", rounds_of("MiniLM's size")),
         Part("encoders_minilm_rerank", rounds_of("MiniLM's size, pairs")),
         Part("encoders_bert_base", rounds_of("BERT-base's size")),
         Part("encoders_bert_base_rerank", rounds_of("BERT-base's size, pairs")),
         Part("encoders_minilm_avx2", rounds_of("MiniLM's size, only AVX2")),
         Part("decoders", decoders_of("")), Part("decoders_avx2", decoders_of("AVX2 alone, ")),
         Part("predictions", predictions), Part("recovery", recovery))


def bars(title: str, values: Bars) -> str:
    """Returns a plot of horizontal bars, Sluice's in another colour."""
    most = max((value for _, value in values), default=0) or 1
    left = 10 + 7 * max((len(name) for name, _ in values), default=0)
    lines = []
    for place, (name, value) in enumerate(values):
        y = place * (BAR + GAP)
        width = max(1.0, (WIDTH - left - 70) * value / most)
        kind = "ours" if name.startswith("sluice") else "theirs"
        lines.append(f'<text x="{left - 6}" y="{y + 12}" text-anchor="end">{html.escape(name)}'
                     f'</text><rect class="{kind}" x="{left}" y="{y}" width="{width:.1f}" '
                     f'height="{BAR}"/><text x="{left + width + 5:.1f}" y="{y + 12}">{value:.4g}'
                     "</text>")
    height = len(values) * (BAR + GAP)
    return (f"<figure><figcaption>{html.escape(title)}</figcaption>"
            f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
            f"{''.join(lines)}</svg></figure>")


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def from_markdown(text: str) -> str:
    """Returns headings, paragraphs, lists and tables of a report as HTML."""
    made, table = [], []

    def end_table() -> None:
        if table:
            head, rows = table[0], table[2:]
            made.append("<table><tr>" + "".join(f"<th>{html.escape(each)}</th>"
                                                for each in cells(head)) + "</tr>")
            made.extend("<tr>" + "".join(f"<td>{html.escape(each)}</td>" for each in cells(row)) +
                        "</tr>" for row in rows)
            made.append("</table>")
            table.clear()

    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        if lines[0].startswith("|"):
            table.extend(lines)
            end_table()
        elif match := re.match(r"(#+) (.*)", lines[0]):
            level = len(match[1]) + 1
            made.append(f"<h{level}>{html.escape(match[2])}</h{level}>")
        else:
            made.append(f"<p>{html.escape(' '.join(lines))}</p>")
    return "\n".join(made)


def commands(template: str) -> dict[str, str]:
    """Returns the blocks of commands, by the result files that they write."""
    found = {}
    for block in re.findall(r"```\n(.*?)```", template, re.DOTALL):
        for name in re.findall(r"results/(\w+)\.json", block):
            found[name] = block
    return found


def reports_of(results: pathlib.Path) -> dict[str, dict]:
    return {part.name: json.loads(path.read_text()) for part in PARTS
            if (path := results / f"{part.name}.json").exists()}


def wrapped(line: str) -> str:
    if line.startswith("|"):
        return line
    return textwrap.fill(line, 100, subsequent_indent="  " if line.startswith("- ") else "")


def filled(template: str, reports: dict[str, dict]) -> str:
    """Returns the template with its marks replaced by tables. A section is left out if none of its
    marks has results. A mark without results is left out together with the paragraph before it.
    """
    sections = []
    for section in re.split(r"^(?=## )", template, flags=re.MULTILINE):
        marks = re.findall(r"^@(\w+)@$", section, re.MULTILINE)
        if marks and not any(mark == "behind" or mark in reports for mark in marks):
            continue
        for mark in marks:
            if mark != "behind" and mark not in reports:
                section = re.sub(rf"(?:[^\n]+\n)*\n@{mark}@\n+", "", section)
                continue
            lines = behind(reports) if mark == "behind" else TABLES[mark](reports[mark])
            section = section.replace(f"@{mark}@", "\n".join(map(wrapped, lines)))
        sections.append(section.rstrip() + "\n")
    return "\n".join(sections)


def page(results: pathlib.Path, template: str) -> str:
    told, body = commands(template), []
    for part in PARTS:
        report, table = results / f"{part.name}.json", results / f"{part.name}.md"
        if not report.exists():
            continue
        body.append(f'<section id="{part.name}">')
        body.append(from_markdown(table.read_text()))
        body += [bars(title, values) for title, values in part.plots(
            json.loads(report.read_text())) if values]
        body.append(f"<pre>{html.escape(told.get(part.name, ''))}</pre></section>")
    style = ("body{font:15px/1.45 sans-serif;margin:2em auto;max-width:72em;padding:0 1em}"
             "table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}"
             "td,th{border:1px solid #ccc;padding:2px 7px;text-align:right}"
             "td:first-child,th:first-child{text-align:left}svg{font:12px sans-serif}"
             "figure{margin:1em 0}figcaption{font-weight:bold;margin-bottom:.4em}"
             ".ours{fill:#c2410c}.theirs{fill:#64748b}pre{background:#f4f4f5;padding:.7em;"
             "overflow-x:auto}")
    return ("<!doctype html><html lang=en><meta charset=utf-8><title>Why Sluice: the tables"
            f"</title><style>{style}</style><body><h1>Why Sluice: the tables</h1>"
            "<p>Made by loadtest/why_page.py from the results in this folder. docs/why.md explains "
            "them.</p>" + "\n".join(body) + "</body></html>\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--why", type=pathlib.Path, default=ROOT / "docs" / "why.md",
                        help="the page to write")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS / "why.html",
                        help="the page of plots")
    options = parser.parse_args()
    template = TEMPLATE.read_text()
    options.why.write_text(filled(template, reports_of(options.results)))
    options.out.write_text(page(options.results, template))


if __name__ == "__main__":
    main()
