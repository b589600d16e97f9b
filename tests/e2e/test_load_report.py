"""Tests the report page of sluice-load for real runs, in a real browser."""

import json
import subprocess

import pytest
from browser import DESKTOP, PHONE, Browser
from conftest import BUILD
from waiting import PATIENCE_S

SLUICE_LOAD = BUILD / "loadtest" / "load" / "sluice-load"


@pytest.fixture(scope="module")
def page(demo, tmp_path_factory):
    """A page with two runs, and their reports. The runs are too short to be VALID."""
    folder = tmp_path_factory.mktemp("reports")
    reports = []
    for label, rates in (("first", ["20", "40"]), ("second <b>&", ["30"])):
        reports.append(folder / f"{len(reports)}.json")
        run = subprocess.run(
            [
                SLUICE_LOAD,
                "run",
                "--server",
                demo.grpc,
                "--metrics-url",
                demo.http,
                "--rate",
                *rates,
                "--duration",
                "4",
                "--warm-up",
                "1",
                "--lengths",
                "lognormal:16:0.6",
                "--label",
                label,
                "--quiet",
                "--out",
                reports[-1],
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert run.returncode == 1, run.stderr  # The run is INVALID.
    made = folder / "page.html"
    subprocess.run([SLUICE_LOAD, "report", *reports, "--out", made], check=True, timeout=PATIENCE_S)
    return made, [json.loads(report.read_text()) for report in reports]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.mark.parametrize("device, screen", [("desktop", DESKTOP), ("phone", PHONE)])
def test_the_report_page_draws_the_measurements(page, browser, device, screen):
    path, reports = page
    browser.show(path.as_uri(), screen)
    headings = browser.value("[...document.querySelectorAll('figure h2')].map(h => h.textContent)")
    for heading in ("Latency against load", "Answers and goodput against load",
                    "Share of good answers within a latency", "Throughput over time",
                    "Queue of the server", "Tokens of a batch", "Efficiency"):
        assert heading in headings
    empty = browser.value("[...document.querySelectorAll('figure')]"
                          ".filter(f => !f.querySelector('svg path, table'))"
                          ".map(f => f.textContent)")
    assert empty == []
    broken = browser.value("[...document.querySelectorAll('svg *')].filter(e => [...e.attributes]"
                           ".some(a => /NaN|undefined|Infinity/.test(a.value))).length")
    assert broken == 0
    check_table(browser, reports)
    assert browser.overflow() <= 0
    assert browser.errors == []
    folder = BUILD / "screenshots"
    folder.mkdir(exist_ok=True)
    browser.screenshot(folder / f"load_report_{device}.png")


def check_table(browser, reports):
    rows = browser.value("[...document.querySelectorAll('#table tr')].map(r => "
                         "[...r.cells].map(c => c.textContent))")
    phases = [(report["label"], phase) for report in reports for phase in report["phases"]]
    rows = [row for row in rows[1:] if len(row) > 1]  # The other rows give reasons.
    assert len(rows) == len(phases) == 3
    for row, (label, phase) in zip(rows, phases):
        assert row[0].startswith(label)
        # The page rounds numbers below 1 to two digits and others to three.
        median = phase["latency_ms"]["p50"]
        rounding = 0.0501 if median < 1 else 0.00501
        assert float(row[3]) == pytest.approx(median, rel=rounding)
        assert row[-1] == phase["verdict"] == "INVALID"


def test_a_report_that_cannot_be_written_is_an_error_before_the_connection(tmp_path):
    run = subprocess.run([SLUICE_LOAD, "run", "--server", "127.0.0.1:1", "--rate", "5", "--out",
                          tmp_path / "missing" / "x.json"],
                         capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 2 and "cannot write" in run.stderr, run.stderr
