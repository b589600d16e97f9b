"""Tests how docs/why.md and its page of plots are generated from results."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "loadtest"))

import why_page  # noqa: E402
import why_tables  # noqa: E402

RESULTS = ROOT / "loadtest" / "results"
FIGURE = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?!\w)")

RATES = {"sluice int8": [10.0, 20.0, 30.0], "sluice int4": [5.0, 5.0, 5.0],
         "a int8": [5.0, 40.0, 15.0], "b q8_0": [20.0, 40.0, 60.0], "c q4_0": [10.0, 1.0, 1.0],
         "d f32": [1.0, 1.0, 1.0]}


def test_precisions_are_compared_per_round_with_equal_precisions():
    assert why_tables.pairs(RATES) == [("sluice int8", "a int8", 2.0),
                                       ("sluice int8", "b q8_0", 0.5),
                                       ("sluice int4", "c q4_0", 5.0)]
    assert why_tables.equal_of("b q8_0", RATES) == "0.50"
    assert why_tables.equal_of("d f32", RATES) == "", "no f32 of ours was measured"


def test_worse_results_are_reported():
    told = why_tables.behind({
        "decoders": {"rates": {"decode 1": RATES}},
        "invariance_price": {"products": {"dear": [1.5, 1.2, 1.3], "cheap": [1.5, 0.9, 1.0]},
                             "attention": {}},
        "recovery": {"rounds": {"fire": [{"recovery_ms": 30, "service_ms": 10}], "rain": [],
                                "nothing": [{"recovery_ms": 30, "service_ms": 10}]}}})
    assert told == ["- decoders, decode 1: b q8_0 is 2.00 times as fast as sluice int8",
                    "- the fixed order costs over 10 % for: dear",
                    "- fire: calls are late for 3.0 mean latencies; the target is 2"]
    assert why_tables.behind({}) == ["Nowhere in these tables."]


def test_scoreboard_shows_why_a_cell_has_no_count():
    row = {"mean_patterns": 1.001, "flips": 1000}
    lines = why_tables.invariance({
        "count": 1000, "companies": 4, "contenders": ["sluice f32", "a f32", "b f32", "c f32"],
        "tasks": {"score": {"rows": {"a f32": row}, "left_out": {"b f32": "late"},
                            "does_not": {"c f32": "cannot"}}}})
    assert lines[-4:] == ["| sluice f32 | not measured | not measured |",
                          "| a f32 | 1.001 | 1000 |", "| b f32 | left out | left out |",
                          "| c f32 | does not do this | does not do this |"]


def test_missing_share_is_an_empty_cell():
    rounds = [{"closed": {"per_s": 2, "cpu_s_per_1000": 1, "executed_efficiency": told}}
              for told in (0.5, 0.7)]
    silent = [{"closed": each["closed"] | {"executed_efficiency": None}} for each in rounds]
    lines = why_tables.encoders({"rates": [], "rounds": {"a f32": rounds, "b f32": silent}})
    assert lines[-2:] == ["| a f32 | 2 |  | 1.00 | 0.60 |", "| b f32 | 2 |  | 1.00 |  |"]


def test_higher_processor_time_is_reported():
    def rounds(per_s, cpu_s):
        return [{"closed": {"per_s": per_s, "cpu_s_per_1000": cpu_s}}] * 3

    told = why_tables.behind({"encoders_minilm": {"rounds": {
        "sluice f32": rounds(11, 4), "a f32": rounds(10, 2), "b f32": rounds(10, 5)}}})
    assert told == ["- encoders minilm: sluice f32 takes 2.000 times the processor time of a f32"]


def test_larger_share_in_time_of_others_is_reported():
    def rounds(within):
        return [{"closed": {"per_s": 10, "cpu_s_per_1000": 1},
                 "open": [{"within": 0.9}, {"within": within}]}] * 3

    told = why_tables.behind({"encoders_minilm": {"rates": [5.0, 7.6], "rounds": {
        "sluice f32": rounds(0.4), "sluice int8": rounds(0), "a f32": rounds(0.6),
        "b f32": rounds(0), "c int8": rounds(0)}}})
    assert told == ["- encoders minilm: at 8 texts/s a f32 answers 60 % in time, sluice f32 40 %"]


def test_simulator_error_is_reported():
    def load(simulated):
        return {"share": 0.5, "measured": {"sequences/s": 10, "p50 ms": 10, "p99 ms": 10},
                "simulated_own_costs": {"sequences/s": 10, "p50 ms": 10.4, "p99 ms": simulated}}

    def told(simulated, *within):
        rounds = [{"loads": [load(simulated)], "size": {"loads": [{"within": each}]}}
                  for each in within]
        return why_tables.behind({"predictions": {"kept": 0.95, "rounds": rounds}})

    assert told(10.4, 0.95, 1) == ["Nowhere in these tables."]
    assert told(9, 1, 1) == [
        "- the simulator is off at load 0.5: p99 ms -10 %",
        "- the simulator is off in 2 of 2 runs at load 0.5: p99 ms -10 %, -10 %"]
    assert told(10, 1, 0.94, 1) == [
        "- sluice-size promised 95 % in time; in one round it was 94.0 %"]


RECOVERY = {"rounds": {"fire": [{"recovery_ms": 30, "service_ms": 10, "p99_before_ms": 12,
                                 "late_after": 3, "failed": {"OK": 2}}]}}


def test_only_parts_with_results_are_in_the_page():
    template = ("# A\n\ntext\n\n## B\nof it\n\n@recovery@\n\nof the other\n\n@decoders@\n\n"
                "## C\nnone\n\n@predictions@\n\n## D\nlast\n\n@behind@\n")
    made = why_page.filled(template, {"recovery": RECOVERY})
    assert "| fire | 30 | 3.0 | 10 | 12 |  | 3 | 2 |" in made and "of it" in made
    assert "of the other" not in made and "## C" not in made and "@" not in made
    assert "## D\nlast\n\n- fire: calls are late" in made and made.startswith("# A\n\ntext\n")


def test_report_becomes_escaped_html():
    made = why_page.from_markdown("# A <b>\n\n| x | y |\n|---|---|\n| 1 & 2 | <i> |\n\nText\nmore.")
    assert "<h2>A &lt;b&gt;</h2>" in made and "<p>Text more.</p>" in made
    assert "<td>1 &amp; 2</td><td>&lt;i&gt;</td>" in made and "<th>x</th>" in made


def test_every_part_has_a_command_and_a_position():
    template = why_page.TEMPLATE.read_text()
    told = why_page.commands(template)
    for part in why_page.PARTS:
        assert part.name in told, part.name
        assert f"\n@{part.name}@\n" in template
        assert part.name in why_tables.TABLES


def test_committed_pages_match_the_committed_results():
    """docs/why.md and why.html must be regenerated when results change."""
    results, template = ROOT / "loadtest" / "results", why_page.TEMPLATE.read_text()
    assert (ROOT / "docs" / "why.md").read_text() == \
        why_page.filled(template, why_page.reports_of(results))
    assert (results / "why.html").read_text() == why_page.page(results, template)


def values_of(report):
    """Yields all numbers of a report in JSON."""
    if isinstance(report, dict):
        report = report.values()
    if isinstance(report, (int, float)):
        yield float(report)
    elif not isinstance(report, str) and report is not None:
        for each in report:
            yield from values_of(each)


def figures(text):
    """Returns the numbers of a text as they are written, without code and addresses."""
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    return [each.replace(",", "").rstrip(".") for each in FIGURE.findall(text)]


def unmeasured(text, names):
    """Returns the figures of a text that are no rounded value of the named results.

    A value may also be written in percent, or in seconds instead of milliseconds. Numbers up to 20
    count things.
    """
    values = []
    for name in names:
        values += map(float, figures((RESULTS / f"{name}.md").read_text()))
        if (report := RESULTS / f"{name}.json").exists():
            values += values_of(json.loads(report.read_text()))

    def is_measured(figure):
        digits = len(figure.partition(".")[2])
        return any(f"{value * factor:.{digits}f}" == figure
                   for value in values for factor in (1, 100, 0.001))

    return [each for each in figures(text)
            if not (each.isdigit() and int(each) <= 20) and not is_measured(each)]


def measured_texts():
    """Yields each hand-written text about results, with the names of these results."""
    for section in re.split(r"^(?=## )", why_page.TEMPLATE.read_text(), flags=re.MULTILINE):
        title, _, text = section.partition("\n")
        if names := [each for each in re.findall(r"^@(\w+)@$", text, re.M) if each != "behind"]:
            yield title.strip("# "), text, names
    page = (ROOT / "docs" / "numbers.md").read_text()
    for item in re.split(r"^(?=- \*\*)", page, flags=re.MULTILINE)[1:]:
        title = re.match(r"- \*\*([^*.]*)", item)[1]
        yield title, item, re.findall(r"results/(\w+)\.md", item)


@pytest.mark.parametrize(
    "text, names", [pytest.param(text, names, id=title) for title, text, names in measured_texts()])
def test_figures_of_a_text_are_in_the_committed_results(text, names):
    assert names and unmeasured(text, names) == []


def test_figure_without_a_result_is_found():
    text = "A call takes 392.5 ms, 7.77 times as long; `--times 991` is not a figure."
    assert unmeasured(text, ["recovery"]) == ["392.5", "7.77"]
